"""What an ingest made, and everything that it left out, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from heisd_ros.demonstrations.ingest_journal import Totals
from heisd_ros.demonstrations.ingestion import IngestJob

MOST_REASONS = 12


def report(job: IngestJob, totals: Totals) -> str:
    """Return the report: profile, counts of everything dropped, one line per task."""
    solved = sum(episode.success for episode in totals.episodes)
    kept, recorded = totals.kept, totals.recorded
    lines = [
        f"source    {job.source}: {', '.join(map(str, job.paths))}",
        "profile",
        *job.profile.lines(),
        f"written   {len(totals.episodes)} episodes ({solved} solved), {sum(kept.values())} of "
        f"{sum(recorded.values())} steps, in {job.out}",
        *_counts("left out  episodes:", totals.dropped_episodes),
        *_counts("left out  steps:", totals.dropped_steps),
        *_counts("noticed", totals.notes),
        f"{'episodes':>8} {'steps':>7} {'recorded':>8}  task",
    ]
    episodes = Counter(episode.task for episode in totals.episodes)
    lines += [
        f"{episodes[task]:>8} {kept[task]:>7} {recorded[task]:>8}  {task}"
        for task in sorted(recorded)
    ]
    return "\n".join(lines)


def _counts(title: str, counts: Mapping[str, int]) -> list[str]:
    entries = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    if not entries:
        return [f"{title} none"]
    lines = [title, *(f"  {count:>6}  {reason}" for reason, count in entries[:MOST_REASONS])]
    rest = entries[MOST_REASONS:]
    if rest:
        lines.append(f"  {sum(count for _, count in rest):>6}  for {len(rest)} other reasons")
    return lines
