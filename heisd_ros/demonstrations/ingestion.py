"""Read pieces of a data set, convert their episodes and write them as files."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from heisd_ros.demonstrations.conversion import convert
from heisd_ros.demonstrations.episode import Episode, save_episode
from heisd_ros.demonstrations.ingest_journal import PieceResult, Totals, WrittenEpisode
from heisd_ros.demonstrations.ingest_profile import IngestProfile
from heisd_ros.demonstrations.source import DemonstrationSource, Piece, RawEpisode, SourceOptions
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import DataError, StoreError

UNJUDGED = "episodes without a verdict, believed to be solved"
FAILED = "episodes with a failed task (kept and marked)"
SLUG_LENGTH = 60


@dataclass(frozen=True, slots=True)
class IngestJob:
    """What to read and how; crosses process borders.

    Attributes:
        source: Name of the format.
        paths: Files or folders.
        options: How to find things.
        profile: What they mean.
        out: Folder of the episode files.
    """

    source: str
    paths: tuple[Path, ...]
    profile: IngestProfile
    out: Path
    options: SourceOptions = field(default_factory=SourceOptions)


def ingest_piece(source: DemonstrationSource, piece: Piece, job: IngestJob) -> PieceResult:
    """Read, convert and write the episodes of one piece; what cannot be used is counted.

    Raises:
        StoreError: If the disk is full.
    """
    tally = _Tally()
    lost_before = Counter(source.lost)
    episodes = source.read(piece)
    while True:
        try:
            raw = next(episodes, None)
        except DataError as error:
            tally.refuse(error, piece.name)
            break
        if raw is None:
            break
        _ingest_episode(raw, job, len(tally.written), tally)
    tally.notes.update(source.lost - lost_before)
    return PieceResult(
        piece.name,
        tuple(tally.written),
        dict(tally.recorded),
        dict(tally.refused),
        dict(tally.steps),
        dict(tally.notes),
    )


def check_losses(totals: Totals, max_lost: float) -> None:
    """Refuse a silent loss: nothing left, or a task that lost too many of its steps.

    Raises:
        DataError: Naming the tasks and the most frequent reason.
    """
    reasons = (totals.dropped_episodes + totals.dropped_steps).most_common(1)
    reason = f"most often because: {reasons[0][0]}" if reasons else "nothing was read"
    if not totals.episodes:
        raise DataError(f"no episode could be used, {reason}")
    kept = totals.kept
    lost = [
        f"{task!r} ({steps - kept[task]} of {steps} steps)"
        for task, steps in sorted(totals.recorded.items())
        if steps - kept[task] > max_lost * steps
    ]
    if lost:
        raise DataError(
            f"more than {max_lost:.0%} lost of {', '.join(lost)}, {reason}; correct the profile, "
            "or allow it with --max-lost 1"
        )


def episode_path(instruction: str, name: str) -> Path:
    """Return where an episode is written below the folder; safe whatever the source says."""
    checksum = zlib.crc32(name.encode("utf-8", "replace"))
    return Path(_slug(instruction) or "task") / f"{_slug(name)}-{checksum:08x}.npz"


class _Tally:
    """Counts of one piece."""

    def __init__(self) -> None:
        self.written: list[WrittenEpisode] = []
        self.recorded: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    def refuse(self, error: DataError, name: str) -> None:
        """Count an episode that cannot be used, by a reason without its name."""
        self.refused[str(error).replace(f"{name}: ", "").replace(name, "an episode")] += 1


def _ingest_episode(raw: RawEpisode, job: IngestJob, number: int, tally: _Tally) -> None:
    task = normalise_task(raw.instruction)
    tally.recorded[task] += len(raw.actions)
    tally.notes.update(raw.notes)
    dropped: Counter[str] = Counter()
    try:
        episode = convert(raw, job.profile, dropped, source=job.source)
    except DataError as error:
        tally.refuse(error, raw.name)
        return
    tally.steps.update(dropped)
    if job.profile.success == "recorded" and raw.success is None:
        tally.notes[UNJUDGED] += 1
    tally.notes[FAILED] += not episode.success
    path = episode_path(raw.instruction, f"{raw.name}/{number}")
    try:
        save_episode(job.out / path, episode)
    except OSError as error:
        raise StoreError(
            f"writing {job.out / path} failed: {error.strerror or error}; all complete episodes "
            "are kept; free some space and run the same command again"
        ) from error
    tally.written.append(
        WrittenEpisode(
            str(path), task, len(raw.actions), len(episode), episode.success, _digest(episode)
        )
    )


def _digest(episode: Episode) -> str:
    """Return what two copies of one episode share, whatever their names."""
    digest = hashlib.sha256(normalise_task(episode.instruction).encode())
    for array in (episode.actions, episode.images[0], episode.images[-1]):
        digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[-SLUG_LENGTH:]
