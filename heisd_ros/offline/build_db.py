"""`heisd build-db`: make a demonstration store from collected episodes."""

from __future__ import annotations

import argparse
import shlex
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from heisd_ros.config import HeisdConfig, load_config
from heisd_ros.demonstrations.builder import BuildOptions, build_store
from heisd_ros.demonstrations.embedding_cache import EmbeddingCache
from heisd_ros.demonstrations.episode import Episode, load_episode
from heisd_ros.demonstrations.ingest_journal import read_ingests
from heisd_ros.demonstrations.manifest import DTYPES, Manifest
from heisd_ros.demonstrations.readers.rosbag2_episodes import read_episodes
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.errors import DataError
from heisd_ros.offline.bag import bag_settings
from heisd_ros.offline.growth import growth_report, judge_of
from heisd_ros.offline.target_answers import TargetAnswers
from heisd_ros.perception.embedding import NORMALISATIONS

if TYPE_CHECKING:
    from heisd_ros.build import Components

DAMAGED = "damaged files"
MAX_DAMAGED = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument("--demos", type=Path, help="folder of episodes (.npz)")
    parser.add_argument("--bags", type=Path, nargs="+", default=[], help="recorded runs (rosbag2)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the store")
    parser.add_argument("--append", action="store_true", help="keep what the store holds already")
    parser.add_argument(
        "--target-answers",
        action="store_true",
        help="also store the model's own tokens and lm_head features: 7 forwards a step",
    )
    parser.add_argument("--checkpoint", default="", help="checkpoint folder; default: the shipped")
    parser.add_argument("--config", type=Path, help="configuration that will be served (YAML)")
    parser.add_argument("--tasks", nargs="+", default=[], help="instructions to keep; default: all")
    parser.add_argument("--per-task", type=int, help="largest number of episodes per task")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="type of the embeddings")
    parser.add_argument(
        "--normalise", choices=NORMALISATIONS, help="of the embeddings [perception.normalise]"
    )
    parser.add_argument("--max-lost", type=float, default=0.5, help="share that may have failed")
    parser.add_argument("--cache", type=Path, help="folder of embeddings, to resume a build")


def main(argv: Sequence[str]) -> int:
    """Build the store and print what is in it."""
    parser = argparse.ArgumentParser(prog="heisd build-db", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    if arguments.per_task is not None and arguments.per_task < 1:
        parser.error("--per-task must be at least 1")
    if arguments.demos is None and not arguments.bags:
        parser.error("--demos or --bags is needed")
    from heisd_ros.build import build_components

    config = served_config(arguments.config, arguments.checkpoint, arguments.normalise)
    paths = sorted(arguments.demos.rglob("*.npz")) if arguments.demos else []
    if not paths and not arguments.bags:
        raise DataError(f"no episode (.npz) below {arguments.demos}; make some: heisd ingest")
    command = "heisd build-db " + shlex.join(argv)
    with ExitStack() as stack:
        base = stack.enter_context(MemoryStore.open(arguments.out)) if arguments.append else None
        parts = build_components(config)
        manifest = _build(arguments, config, parts, _Sources(paths, base), command)
        sys.stdout.write(report(manifest, arguments.out) + "\n")
        if base is not None:
            with MemoryStore.open(arguments.out) as grown:
                judge = judge_of(config, parts)
                sys.stdout.write("\n" + growth_report(base, grown, judge) + "\n")
    return 0


def report(manifest: Manifest, folder: Path) -> str:
    """Return what is in a store, what was left out and how well it is searched, as text."""
    profile = manifest.profile
    lines = [
        f"store     {folder}",
        f"content   {len(manifest.tasks)} tasks, {manifest.episodes} episodes, "
        f"{manifest.rows} rows of {profile.embedding_size} {manifest.dtype}, "
        f"{manifest.size_bytes / 1e6:.1f} MB",
        f"encoder   {profile.fingerprint}, cameras {', '.join(profile.cameras)}, unit norm of "
        f"{profile.preprocessing.get('normalise', 'blocks')}",
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


def served_config(path: Path | None, checkpoint: str, normalise: str | None = None) -> HeisdConfig:
    """Return the configuration that embeds stored pictures as the served one embeds live ones."""
    # A stored picture is upright already: the rotation is for live cameras. Without a store to
    # open, the method must not need one.
    overrides: dict[str, object] = {"perception.rotate_deg": 0, "decode.method": "ar"}
    if checkpoint:
        overrides["model.checkpoint"] = checkpoint
    if normalise is not None:
        overrides["perception.normalise"] = normalise
    return load_config(path, overrides)


@dataclass(frozen=True)
class _Sources:
    """What goes into the store: saved episodes, and the store that grows."""

    paths: list[Path]
    base: MemoryStore | None


def _build(
    arguments: argparse.Namespace,
    config: HeisdConfig,
    parts: Components,
    sources: _Sources,
    command: str,
) -> Manifest:
    from heisd_ros.build import embedding_facts

    preprocessing = embedding_facts(config)
    fingerprint = parts.target.info.fingerprint
    options = BuildOptions(
        fingerprint=fingerprint,
        cameras=config.perception.cameras,
        preprocessing=preprocessing,
        per_task=arguments.per_task,
        tasks=tuple(arguments.tasks),
        dtype=arguments.dtype,
        gripper_max_m=config.command.gripper_max_m,
        statistics_key=parts.statistics.key,
        max_lost=arguments.max_lost,
        created_by=command,
        ingests=_ingests(arguments.demos) if arguments.demos else (),
    )
    cache = None
    if arguments.cache:
        cache = EmbeddingCache(
            arguments.cache, fingerprint=fingerprint, preprocessing=preprocessing
        )
    dropped: Counter[str] = Counter()
    episodes = chain(
        _episodes(sources.paths, arguments.demos, dropped), _recorded(arguments.bags, config)
    )
    answers = None
    if arguments.target_answers:
        answers = TargetAnswers(parts.target, parts.encoder)
    return build_store(
        episodes,
        parts.encoder,
        arguments.out,
        options,
        cache=cache,
        dropped=dropped,
        base=sources.base,
        answers=answers,
    )


def _recorded(bags: Sequence[Path], config: HeisdConfig) -> Iterator[Episode]:
    """Yield the runs of bags; only those whose episode status says solved will be stored."""
    for bag in bags:
        # Without a verdict of the bag a run is no success: a store must not learn from failures.
        found = read_episodes(bag, config.command, bag_settings(config), success=False)
        for number, episode in enumerate(found):
            yield replace(episode, source={**episode.source, "file": f"{bag}#{number}"})


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
