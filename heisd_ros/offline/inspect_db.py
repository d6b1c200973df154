"""`heisd inspect-db`: look into a demonstration store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heisd_ros.demonstrations.episode import load_episode
from heisd_ros.demonstrations.explanation import Explanation, explain
from heisd_ros.demonstrations.quality import TaskQuality, measure_task
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import DataError
from heisd_ros.offline.build_db import report, served_config
from heisd_ros.offline.gallery import K, Pictures, case_of, write_gallery


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("store", type=Path, help="folder of the store")
    add("--verify", action="store_true", help="also compare every checksum")
    add("--queries", type=int, default=200, help="steps searched per task")
    add("--demos", type=Path, help="folder of the episodes it was built from, for the pictures")
    add("--gallery", type=Path, metavar="OUT", help="write sheets of neighbours; needs --demos")
    add("--per-task", type=int, default=6, help="queries of a task in the gallery")
    add("--why", metavar="EPISODE:STEP", help="why was this retrieved: a stored or a saved episode")
    add("--checkpoint", default="", help="for --why of an episode that is not stored")
    add("--config", type=Path, help="for --why of an episode that is not stored")


def main(argv: Sequence[str]) -> int:
    """Print the content of a store and what leave-one-episode-out search finds in it."""
    parser = argparse.ArgumentParser(prog="heisd inspect-db", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    if arguments.queries < 1 or arguments.per_task < 1:
        parser.error("--queries and --per-task must be at least 1")
    if arguments.gallery and not arguments.demos:
        parser.error("--gallery needs --demos, the episodes the store was built from")
    with MemoryStore.open(arguments.store, verify=arguments.verify) as store:
        if arguments.why:
            sys.stdout.write(why(store, arguments) + "\n")
            return 0
        sys.stdout.write("\n".join(_overview(store, arguments)) + "\n")
        if arguments.gallery:
            pictures = Pictures(arguments.demos)
            missing = write_gallery(store, pictures, arguments.gallery, per_task=arguments.per_task)
            lost = f", {missing} pictures not found" if missing else ""
            sys.stdout.write(f"gallery   {arguments.gallery / 'index.html'}{lost}\n")
    return 0


def why(store: MemoryStore, arguments: argparse.Namespace) -> str:
    """Return why the neighbours of one step are its neighbours, as text.

    Raises:
        DataError: If there is no such episode or step.
    """
    source, _, number = arguments.why.rpartition(":")
    if not source or not number.isdigit():
        raise DataError(f"--why must be EPISODE:STEP, got {arguments.why!r}")
    step = int(number)
    if source in store.manifest.sources:
        return _why_stored(store, source, step)
    return _why_saved(store, Path(source), step, arguments)


def explanation_text(found: Explanation) -> str:
    """Return the table of one search."""
    names = [block.name for block in found.blocks]
    lines = [f"{'score':>8} {'margin':>9} {'place':>5}  {'  '.join(names)}  episode:step, action"]
    for i, source in enumerate(found.sources):
        parts = "  ".join(
            f"{cosine:>{len(name)}.4f}"
            for name, cosine in zip(names, found.cosines[i], strict=True)
        )
        action = np.array2string(found.hits.action[i], precision=2, suppress_small=True)
        place = "exact" if found.places[i] < 0 else f"{found.places[i] + 1}"
        lines.append(
            f"{found.hits.score[i]:>8.5f} {found.margins[i]:>9.2e} {place:>5}  {parts}  "
            f"{source}:{found.hits.step[i]} {action}"
        )
    if found.rerank_rows:
        lines.append(f"place: in the prefix scan; its best {found.rerank_rows} were scored exactly")
    lines.append("margin: to the next score; columns of names: cosine within view and tower")
    return "\n".join(lines)


def _why_stored(store: MemoryStore, source: str, step: int) -> str:
    for task in store.manifest.tasks:
        steps = store.rows_of(task.key)
        episode = store.episode_named(task.key, source)
        mine = np.flatnonzero((steps.episode == episode) & (steps.step == step))
        if episode is not None and len(mine):
            case = case_of(store, task.key, int(steps.row[mine[0]]))
            return f"{source}:{step}, {task.key}, in the other episodes:\n" + explanation_text(
                case.found
            )
    raise DataError(f"episode {source} is stored, but has no step {step}")


def _why_saved(store: MemoryStore, path: Path, step: int, arguments: argparse.Namespace) -> str:
    from heisd_ros.build import build_encoder

    if not path.is_file():
        raise DataError(
            f"{path} is neither a stored episode nor a file; stored is, for example, "
            f"{store.manifest.sources[0]}"
        )
    episode = load_episode(path, privileged=False)
    if step >= len(episode):
        raise DataError(f"{path} has {len(episode)} steps, got step {step}")
    frames = {frame.camera: frame for frame in episode.step(step).frames}
    encoder = build_encoder(served_config(arguments.config, arguments.checkpoint))
    query = encoder.encode([frames[c] for c in store.manifest.profile.cameras]).embedding
    task = normalise_task(episode.instruction)
    if task not in store.tasks:
        raise DataError(f"the store has no task {task!r}; it has {', '.join(store.tasks)}")
    found = explain(store, query, task, K)
    return f"{path}:{step}, {task}:\n" + explanation_text(found)


def _overview(store: MemoryStore, arguments: argparse.Namespace) -> list[str]:
    manifest = store.manifest
    extras = [f"{manifest.feature_size} lm_head features a row"] if manifest.feature_size else []
    extras += ["the target's own tokens"] if manifest.target_tokens else []
    lines = [
        report(manifest, arguments.store),
        f"made by   {manifest.profile.created_by or 'unknown'}",
        f"actions   {dict(manifest.profile.action)}",
        f"pictures  {dict(manifest.profile.preprocessing)}",
        f"extras    {', '.join(extras) or 'none'}",
        "",
        "leave one episode out, best hit in the other episodes of the task:",
        f"{'queries':>7} {'equal':>6} {'cosine':>7} {'drift':>7} {'pose':>7} {'best5':>7} "
        f"{'grip':>6} {'recall@5':>8}  task",
    ]
    for task in store.tasks:
        lines += [_line(measure_task(store, task, queries=arguments.queries))]
    return lines


def _line(quality: TaskQuality) -> str:
    return (
        f"{quality.queries:>7} {quality.duplicates:>6} {quality.top1_cosine:>7.4f} "
        f"{quality.drift:>+7.4f} {quality.top1_distance:>7.4f} {quality.best_distance:>7.4f} "
        f"{quality.gripper_agreement:>6.3f} {quality.recall:>8.4f}  {quality.task}"
    )
