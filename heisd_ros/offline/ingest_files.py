"""`heisd ingest --source FORMAT`: read a data set of a foreign format into episode files."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.config import to_flat
from heisd_ros.demonstrations.bag_topics import load_mapping
from heisd_ros.demonstrations.episode import load_episode
from heisd_ros.demonstrations.ingest_journal import IngestJournal, PieceResult, open_journal
from heisd_ros.demonstrations.ingest_profile import (
    ACTIONS,
    FLIPS,
    GRIPPERS,
    NO_OPS,
    OBSERVATIONS,
    PRESETS,
    ROTATIONS,
    STATES,
    SUCCESSES,
    resolve_profile,
)
from heisd_ros.demonstrations.ingestion import IngestJob, check_losses, ingest_piece
from heisd_ros.demonstrations.plausibility import statistics_problem
from heisd_ros.demonstrations.readers.catalogue import open_source
from heisd_ros.demonstrations.source import DemonstrationSource, Piece, SourceOptions
from heisd_ros.errors import DataError
from heisd_ros.offline.command_line import name_and_value, read_config
from heisd_ros.offline.ingest_report import report

HOPELESS_AFTER = 20
"""Pieces without a single usable episode until the profile is taken for wrong."""
DUPLICATE = "duplicates of another episode"
LISTED = "(while listing)"

_WORKER: list[tuple[DemonstrationSource, IngestJob]] = []
"""The data set that a worker process has open."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("paths", type=Path, nargs="+", metavar="PATH", help="files or folders of the data set")
    add("--out", type=Path, required=True, help="folder of episodes; a second run goes on there")
    add("--camera", action="append", default=[], metavar="NAME=KEY", help="e.g. wrist=wrist_image")
    add("--instruction", default="", help="the task in words; default: what is recorded")
    add("--split", default="train", help="TFDS split (default %(default)s)")
    add("--config", type=Path, action="append", default=[], help="robot of the bags (YAML)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="one setting of it")
    add("--topics", type=Path, help="topic mapping of foreign bags (YAML)")
    add("--processes", type=int, default=1, help="pieces read at a time (default %(default)s)")
    add("--limit", type=int, help="read only the first pieces, to try a profile")
    add("--max-lost", type=float, default=0.5, help="share of a task's steps that may be lost")
    add("--statistics", type=Path, help="action statistics of the checkpoint, to check against")
    add("--statistics-key", default="", help="entry in it")
    add_profile_arguments(parser)


def add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the numbers mean; see docs/demonstrations.md."""
    group = parser.add_argument_group("profile, see docs/demonstrations.md")
    add = group.add_argument
    add("--preset", default="", help=f"answers for a known data set: {', '.join(PRESETS)}")
    add("--flip", choices=FLIPS, help="what turns a picture into what the served model sees")
    add("--observation", choices=OBSERVATIONS, help="recorded before or after the row's action")
    add("--gripper", choices=GRIPPERS, help="meaning of the last action value")
    add("--action", choices=ACTIONS, help="pose delta per step, absolute pose, or velocity")
    add("--rate", type=float, dest="control_hz", help="steps per second [Hz]")
    add("--rotation", choices=ROTATIONS, help="spelling of an absolute orientation")
    add("--translation-scale", type=float, help="metres per action unit of the model")
    add("--rotation-scale", type=float, help="radians per action unit of the model")
    add("--no-ops", choices=NO_OPS, help="steps that do nothing (default keep)")
    add("--state", choices=STATES, help="layout of the state vector (default none)")
    add("--success", choices=SUCCESSES, help="believe the recorded verdicts (default) or all")
    add("--image-size", type=int, help="resize to this side [px] (default: leave)")


PROFILE_FIELDS = (
    "flip",
    "observation",
    "gripper",
    "action",
    "control_hz",
    "rotation",
    "translation_scale",
    "rotation_scale",
    "no_ops",
    "state",
    "success",
    "image_size",
)


def main(source: str, argv: Sequence[str]) -> int:
    """Read what is missing and print what was made and what was dropped."""
    parser = argparse.ArgumentParser(prog=f"heisd ingest --source {source}", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    if arguments.processes < 1 or (arguments.limit is not None and arguments.limit < 1):
        parser.error("--processes and --limit must be at least 1")
    options = _options(arguments)
    with closing(open_source(source, arguments.paths, options)) as opened:
        job = _job(source, arguments, options, opened)
        pieces = opened.pieces()[: arguments.limit]
        with open_journal(job.out, _facts(job)) as journal:
            journal.results.pop(LISTED, None)
            if opened.lost:
                journal.add(PieceResult(LISTED, dropped_episodes=dict(opened.lost)))
            run(job, pieces, journal, opened, processes=arguments.processes)
            totals = journal.totals()
    sys.stdout.write(report(job, totals) + "\n")
    check_losses(totals, arguments.max_lost)
    if arguments.statistics:
        _check_statistics(arguments, [job.out / episode.file for episode in totals.episodes])
    return 0


def run(
    job: IngestJob,
    pieces: Sequence[Piece],
    journal: IngestJournal,
    source: DemonstrationSource,
    *,
    processes: int = 1,
) -> None:
    """Ingest the pieces that the journal does not know.

    Raises:
        DataError: If the first pieces give no episode at all: the profile is wrong.
        StoreError: If the disk is full.
    """
    missing = [piece for piece in pieces if piece.name not in journal.results]
    digests = {e.digest for result in journal.results.values() for e in result.episodes}
    results = _results(job, missing, source, processes)
    with closing(results):
        for result in tqdm(results, total=len(missing), unit="piece", disable=None):
            journal.add(_without_duplicates(result, digests, job.out))
            if len(journal.results) == HOPELESS_AFTER and not journal.totals().episodes:
                check_losses(journal.totals(), 1.0)


def _results(
    job: IngestJob, pieces: Sequence[Piece], source: DemonstrationSource, processes: int
) -> Generator[PieceResult, None, None]:
    """Yield the results in the order of the pieces, so that every run keeps the same duplicates."""
    if processes == 1 or len(pieces) < 2:
        yield from (ingest_piece(source, piece, job) for piece in pieces)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(processes, len(pieces)), mp_context=context, initializer=_start_worker, initargs=(job,)
    )
    try:
        yield from pool.map(_work, pieces)
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(job: IngestJob) -> None:
    _WORKER[:] = [(open_source(job.source, job.paths, job.options), job)]


def _work(piece: Piece) -> PieceResult:
    source, job = _WORKER[0]
    return ingest_piece(source, piece, job)


def _without_duplicates(result: PieceResult, digests: set[str], out: Path) -> PieceResult:
    kept = []
    dropped = dict(result.dropped_episodes)
    recorded = dict(result.recorded)
    for episode in result.episodes:
        if episode.digest not in digests:
            digests.add(episode.digest)
            kept.append(episode)
            continue
        (out / episode.file).unlink(missing_ok=True)
        dropped[DUPLICATE] = dropped.get(DUPLICATE, 0) + 1
        recorded[episode.task] -= episode.recorded  # nothing is lost with a copy
    return replace(result, episodes=tuple(kept), dropped_episodes=dropped, recorded=recorded)


def _options(arguments: argparse.Namespace) -> SourceOptions:
    config: dict[str, Any] = {}
    if arguments.config or arguments.set:
        config = to_flat(read_config(arguments.config, arguments.set))
    return SourceOptions(
        cameras=dict(name_and_value(text, "--camera") for text in arguments.camera),
        instruction=arguments.instruction,
        split=arguments.split,
        state=arguments.state or str(PRESETS.get(arguments.preset, {}).get("state", "none")),
        config=config,
        mapping=load_mapping(arguments.topics) if arguments.topics else None,
    )


def _job(
    source: str,
    arguments: argparse.Namespace,
    options: SourceOptions,
    opened: DemonstrationSource,
) -> IngestJob:
    given = {name: getattr(arguments, name) for name in PROFILE_FIELDS}
    where = f"{source} {' '.join(map(str, arguments.paths))}"
    profile = resolve_profile(given, opened.settled, preset=arguments.preset, source=where)
    return IngestJob(source, tuple(arguments.paths), profile, arguments.out, options)


def _facts(job: IngestJob) -> dict[str, Any]:
    """Return what an ingest is, as the folder remembers it."""
    return {
        "source": job.source,
        "paths": [str(path.resolve()) for path in job.paths],
        "profile": asdict(job.profile),
        "options": asdict(job.options),
    }


def _check_statistics(arguments: argparse.Namespace, files: Sequence[Path]) -> None:
    statistics = ActionStatistics.load(arguments.statistics, arguments.statistics_key)
    actions = [load_episode(f, images=False, privileged=False).actions for f in files]
    problem = statistics_problem(np.concatenate(actions).astype(np.float64), statistics)
    if problem:
        raise DataError(
            f"the statistics do not belong to these demonstrations: {problem}; give the statistics "
            "of the checkpoint you serve, or correct the profile"
        )
    sys.stdout.write(f"statistics of {statistics.key!r} fit the actions\n")
