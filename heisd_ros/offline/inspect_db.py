"""`heisd inspect-db`: look into a demonstration store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.demonstrations.quality import TaskQuality, measure_task
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.offline.build_db import report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument("store", type=Path, help="folder of the store")
    parser.add_argument("--verify", action="store_true", help="also compare every checksum")
    parser.add_argument("--queries", type=int, default=200, help="steps searched per task")


def main(argv: Sequence[str]) -> int:
    """Print the content of a store and what leave-one-episode-out search finds in it."""
    parser = argparse.ArgumentParser(prog="heisd inspect-db", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    if arguments.queries < 1:
        parser.error("--queries must be at least 1")
    with MemoryStore.open(arguments.store, verify=arguments.verify) as store:
        lines = [
            report(store.manifest, arguments.store),
            f"made by   {store.manifest.profile.created_by or 'unknown'}",
            f"actions   {dict(store.manifest.profile.action)}",
            f"pictures  {dict(store.manifest.profile.preprocessing)}",
            "",
            "leave one episode out, best hit in the other episodes of the task:",
            f"{'queries':>7} {'equal':>6} {'cosine':>7} {'pose':>7} {'best5':>7} {'grip':>6} "
            f"{'recall@5':>8}  task",
        ]
        for task in store.tasks:
            lines += [_line(measure_task(store, task, queries=arguments.queries))]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _line(quality: TaskQuality) -> str:
    return (
        f"{quality.queries:>7} {quality.duplicates:>6} {quality.top1_cosine:>7.4f} "
        f"{quality.top1_distance:>7.4f} {quality.best_distance:>7.4f} "
        f"{quality.gripper_agreement:>6.3f} {quality.recall:>8.4f}  {quality.task}"
    )
