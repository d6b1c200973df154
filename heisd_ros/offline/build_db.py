"""`heisd build-db`: make a demonstration store from collected episodes."""

from __future__ import annotations

import argparse
import shlex
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from heisd_ros.config import HeisdConfig, load_config
from heisd_ros.demonstrations.builder import BuildOptions, build_store
from heisd_ros.demonstrations.embedding_cache import EmbeddingCache
from heisd_ros.demonstrations.episode import Episode, load_episode
from heisd_ros.demonstrations.ingest_journal import read_ingests
from heisd_ros.demonstrations.manifest import DTYPES, Manifest
from heisd_ros.errors import DataError

DAMAGED = "damaged files"
MAX_DAMAGED = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument("--demos", type=Path, required=True, help="folder of episodes (.npz)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the store")
    parser.add_argument("--checkpoint", default="", help="checkpoint folder; default: the shipped")
    parser.add_argument("--config", type=Path, help="configuration that will be served (YAML)")
    parser.add_argument("--tasks", nargs="+", default=[], help="instructions to keep; default: all")
    parser.add_argument("--per-task", type=int, help="largest number of episodes per task")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="type of the embeddings")
    parser.add_argument("--max-lost", type=float, default=0.5, help="share that may have failed")
    parser.add_argument("--cache", type=Path, help="folder of embeddings, to resume a build")


def main(argv: Sequence[str]) -> int:
    """Build the store and print what is in it."""
    parser = argparse.ArgumentParser(prog="heisd build-db", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    if arguments.per_task is not None and arguments.per_task < 1:
        parser.error("--per-task must be at least 1")
    config = _served_config(arguments)
    paths = sorted(arguments.demos.rglob("*.npz"))
    if not paths:
        raise DataError(f"no episode (.npz) below {arguments.demos}; make some: heisd ingest")
    manifest = _build(arguments, config, paths, "heisd build-db " + shlex.join(argv))
    sys.stdout.write(report(manifest, arguments.out) + "\n")
    return 0


def report(manifest: Manifest, folder: Path) -> str:
    """Return what is in a store, what was left out and how well it is searched, as text."""
    profile = manifest.profile
    lines = [
        f"store     {folder}",
        f"content   {len(manifest.tasks)} tasks, {manifest.episodes} episodes, "
        f"{manifest.rows} rows of {profile.embedding_size} {manifest.dtype}, "
        f"{manifest.size_bytes / 1e6:.1f} MB",
        f"encoder   {profile.fingerprint}, cameras {', '.join(profile.cameras)}",
        f"dropped   {_counts(manifest) or 'nothing'}",
        f"{'rows':>7} {'episodes':>8} {'search':>13} {'recall@5':>8}  task",
    ]
    for task in manifest.tasks:
        pair = f"{task.prefix_size}/{task.rerank_rows}"
        search = f"prefix {pair}" if task.prefix_size else "exact"
        recall = f"{task.measured_recall:.4f}" if task.prefix_size else "1"
        lines.append(f"{task.rows:>7} {len(task.sources):>8} {search:>13} {recall:>8}  {task.key}")
    return "\n".join(lines)


def _counts(manifest: Manifest) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in manifest.dropped.items() if count)


def _served_config(arguments: argparse.Namespace) -> HeisdConfig:
    # A stored picture is upright already: the rotation is for live cameras. Without a store to
    # open, the method must not need one.
    overrides: dict[str, object] = {"perception.rotate_deg": 0, "decode.method": "ar"}
    if arguments.checkpoint:
        overrides["model.checkpoint"] = arguments.checkpoint
    return load_config(arguments.config, overrides)


def _build(
    arguments: argparse.Namespace, config: HeisdConfig, paths: list[Path], command: str
) -> Manifest:
    from heisd_ros.build import build_components

    parts = build_components(config)
    perception = config.perception
    preprocessing = {"crop_area": perception.crop_area, "pool": perception.pool}
    fingerprint = parts.target.info.fingerprint
    options = BuildOptions(
        fingerprint=fingerprint,
        cameras=perception.cameras,
        preprocessing=preprocessing,
        per_task=arguments.per_task,
        tasks=tuple(arguments.tasks),
        dtype=arguments.dtype,
        gripper_max_m=config.command.gripper_max_m,
        statistics_key=parts.statistics.key,
        max_lost=arguments.max_lost,
        created_by=command,
        ingests=_ingests(arguments.demos),
    )
    cache = None
    if arguments.cache:
        cache = EmbeddingCache(
            arguments.cache, fingerprint=fingerprint, preprocessing=preprocessing
        )
    dropped: Counter[str] = Counter()
    episodes = _episodes(paths, arguments.demos, dropped)
    return build_store(
        episodes, parts.encoder, arguments.out, options, cache=cache, dropped=dropped
    )


def _ingests(folder: Path) -> tuple[dict[str, object], ...]:
    """Return the profile of every data set below the folder, with what was dropped on the way."""
    return tuple(
        {
            "source": facts.get("source"),
            "paths": facts.get("paths"),
            "profile": facts.get("profile"),
            "dropped_episodes": dict(totals.dropped_episodes),
            "dropped_steps": dict(totals.dropped_steps),
        }
        for facts, totals in read_ingests(folder)
    )


def _episodes(paths: list[Path], folder: Path, dropped: Counter[str]) -> Iterator[Episode]:
    """Yield the episodes; a damaged file is reported and counted, many are an error."""
    for path in tqdm(paths, unit="episode", disable=None):
        try:
            episode = load_episode(path, privileged=False)
        except (DataError, zipfile.BadZipFile, zlib.error) as error:
            tqdm.write(f"left out {path}: {error}", file=sys.stderr)
            dropped[DAMAGED] += 1
            continue
        name = str(path.relative_to(folder))
        yield replace(episode, source={**episode.source, "file": name})
    if dropped[DAMAGED] > MAX_DAMAGED * len(paths):
        raise DataError(
            f"{dropped[DAMAGED]} of {len(paths)} files below {folder} are damaged; collect again"
        )
