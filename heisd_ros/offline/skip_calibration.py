"""`heisd calibrate --skip`: the thresholds of verify-skip from demonstrations (Algorithm 1)."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from heisd_ros.build import build_components
from heisd_ros.config import HeisdConfig
from heisd_ros.demonstrations.episode import Episode, load_episode, read_episodes
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import DataError
from heisd_ros.offline.command_line import read_config
from heisd_ros.offline.provenance import provenance
from heisd_ros.offline.skip_learning import learn
from heisd_ros.offline.skip_tracks import SkipTrack, judge_task, save_tracks
from heisd_ros.verify.skip_table import Learned, SkipCalibration

logger = logging.getLogger(__name__)


def calibrate_skip(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Judge every demonstrated step with the target, learn, and write the file."""
    files = [options.config] if options.config else []
    # A stored picture is upright already: the rotation is for live cameras.
    settings = ["perception.rotate_deg=0", "decode.method=ar", "model.threads=1"]
    config = read_config(files, [*settings, *options.set])
    tracks = list(_tracks(options, config))
    if options.judged:
        save_tracks(options.judged, tracks)
    made = learn(options.suite, tracks, floor=options.floor, error=options.max_error)
    origin = provenance("calibrate", list(arguments))
    facts = {name: origin[name] for name in ("command", "commit", "date")}
    facts["labels"] = "the target's own answers; drafts from the other demonstrations of the task"
    made = SkipCalibration(made.suite, made.tables, {**facts, **made.facts})
    made.save(options.out)
    SkipCalibration.load(options.out)
    for line in summary(made):
        logger.info("%s", line)
    return 0


def summary(made: SkipCalibration) -> list[str]:
    """Return what was learned as lines of text."""
    facts = made.facts
    lines = [
        f"{facts['episodes']} episodes, {facts['steps']} steps; the best draft is acceptable in "
        f"{100 * facts['acceptable_share']:.1f} %, in {100 * facts['eligible_share']:.1f} % the "
        "other predicates hold, of those "
        f"{100 * facts['acceptable_share_of_eligible']:.1f} % are acceptable"
    ]
    for way, table in made.tables.items():
        tests = facts["held_out"][way]
        lines.append(_line(way, "all tasks", table.default, tests["default"]))
        lines += [_line(way, t, known, tests["tasks"][t]) for t, known in table.tasks.items()]
    return lines


def _line(way: str, scope: str, known: Learned, tests: dict[str, dict[str, float]]) -> str:
    if known is None:
        return f"{way}, {scope}: nothing may be skipped within the error"
    text = f"{way}, {scope}: min_S {known.min_similarity:.4f}, O_dist {known.max_distance:.4f} m"
    for name, test in tests.items():
        text += (
            f"; held out, {name}: {test['unacceptable']} of {test['pairs']} pairs unacceptable, "
            f"at most {100 * test['upper_95']:.1f} %"
        )
    return text


def _tracks(options: argparse.Namespace, config: HeisdConfig) -> Iterator[SkipTrack]:
    groups = _episode_files(options.demos, options.suite)
    parts = build_components(config)
    for task, paths in groups.items():
        logger.info("%s: %d demonstrations", task, len(paths))
        episodes = [load_episode(path, privileged=False) for path in paths]
        yield from judge_task(episodes, parts, config, judged=options.per_task)


def _episode_files(folder: Path, suite: str) -> dict[str, list[Path]]:
    """Return the files of a suite's successful demonstrations, by task."""
    groups: dict[str, list[Path]] = {}
    for path, episode in _read(folder):
        if episode.suite == suite and episode.success:
            groups.setdefault(normalise_task(episode.instruction), []).append(path)
    if not groups:
        raise DataError(f"{folder} holds no successful demonstration of suite {suite!r}")
    return groups


def _read(folder: Path) -> Iterator[tuple[Path, Episode]]:
    if not folder.is_dir():
        next(read_episodes(folder))  # raises, and says what to do
    for path in sorted(folder.rglob("*.npz")):
        yield path, load_episode(path, images=False, privileged=False)
