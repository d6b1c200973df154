"""`heisd calibrate`: what is learned from demonstrations and logged runs, as files.

Ranges and threshold of F as a configuration file: for a given setting from demonstrations, or with
a setting that logged drafts have chosen. With `--skip` the thresholds of verify-skip.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from heisd_ros.config import HeisdConfig, TrajectoryConfig, VerifyConfig, load_config
from heisd_ros.demonstrations.episode import read_episodes
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.offline.evaluation_plan import EPISODES
from heisd_ros.offline.gate_choice import StepCosts, calibrated, choose, described
from heisd_ros.offline.gate_study import Track as DraftTrack
from heisd_ros.offline.gate_study import tracks_of
from heisd_ros.offline.kinematic_calibration import (
    Calibration,
    Track,
    calibrate_trajectory,
    to_yaml,
)
from heisd_ros.offline.latency_model import DeviceProfile
from heisd_ros.offline.provenance import provenance
from heisd_ros.offline.records import read_records
from heisd_ros.offline.skip_tracks import load_tracks
from heisd_ros.share import config_file
from heisd_ros.trajectory.normaliser import THRESHOLD_PERCENTILE

logger = logging.getLogger(__name__)

SETTING = ("window", "alpha", "radius", "displacement")


def main(argv: Sequence[str] | None = None) -> int:
    """Calibrate and write the file."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.skip:
        from heisd_ros.offline.skip_calibration import calibrate_skip  # loads the model

        return calibrate_skip(options, arguments)
    config = load_config(options.config)
    if options.runs or options.judged:
        calibration, reasons = _chosen(config, options)
    else:
        calibration, reasons = _measured(config.trajectory, options)
    facts = provenance("calibrate", arguments)
    header = [
        f"Kinematic calibration of {options.suite}, written by `heisd calibrate`; do not edit.",
        *(f"{name + ':':<8} {facts[name]}" for name in ("command", "commit", "date")),
        *reasons,
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(to_yaml(calibration, header), encoding="utf-8")
    load_config(options.out)
    for reason in reasons:
        logger.info("%s", reason)
    logger.info(
        "%s: %d episodes, %d windows, R to %.4f m, D to %.4f m, threshold %.4f",
        options.out,
        calibration.episodes,
        calibration.windows,
        calibration.config.radius_high,
        calibration.config.displacement_high,
        calibration.config.threshold,
    )
    return 0


def read_tracks(folder: Path, suite: str) -> Iterator[Track]:
    """Yield the measured positions of a suite's successful demonstrations.

    Raises:
        DataError: If the folder holds none of this suite.
    """
    found = False
    for episode in read_episodes(folder, images=False, privileged=False):
        if episode.suite == suite:
            found = True
            yield Track(np.asarray(episode.state[:, :3], dtype=np.float64), episode.control_hz)
    if not found:
        raise DataError(f"{folder} holds no successful demonstration of suite {suite!r}")


def drafts_of_runs(
    folders: Sequence[Path], suite: str, method: str, rule: VerifyConfig
) -> list[DraftTrack]:
    """Return the drafts of a suite that logged runs executed beside what the target would have.

    Raises:
        DataError: If there are none.
    """
    records = [r for folder in folders for r in read_records(folder / EPISODES)]
    fitting = [r for r in records if r.key.suite == suite and r.key.method == method]
    tracks = tracks_of(fitting, rule)
    if not tracks:
        raise DataError(
            f"expected episodes of {method!r} on {suite!r} with the target's own tokens, got none "
            f"in {len(records)} episodes; run `heisd evaluate --methods {method} --shadow-ar`"
        )
    return tracks


def drafts_of_judged(path: Path) -> list[DraftTrack]:
    """Return the drafts of judged demonstrations; each task has its even and odd episodes."""
    seen: Counter[str] = Counter()
    tracks = []
    for track in load_tracks(path):
        score = track.score.astype(np.float64)
        tracks.append(DraftTrack(seen[track.task], track.positions, track.acceptable, score))
        seen[track.task] += 1
    return tracks


def _chosen(config: HeisdConfig, options: argparse.Namespace) -> tuple[Calibration, list[str]]:
    """Let logged or judged drafts choose the setting and the threshold."""
    given = [name for name in SETTING if getattr(options, name) is not None]
    if given:
        raise ConfigError(
            f"--{given[0]} is chosen from the drafts when --runs or --judged is given; leave it out"
        )
    if options.judged:
        tracks, source = drafts_of_judged(options.judged), f"{options.judged}"
    else:
        tracks = drafts_of_runs(options.runs, options.suite, options.method, config.verify)
        source = f"{options.method} in {', '.join(map(str, options.runs))}"
    profile = options.profile or config_file("profiles/a100_paper.json")
    costs = StepCosts.of(DeviceProfile.load(profile), rejected=options.rejected_forwards)
    choice = choose(tracks, config.trajectory, costs)
    lines = [f"data:    {source}, {len(tracks)} episodes", f"costs:   {profile}"]
    return calibrated(choice, tracks), [*lines, *described(choice)]


def _measured(
    config: TrajectoryConfig, options: argparse.Namespace
) -> tuple[Calibration, list[str]]:
    """Measure the ranges of a given setting; the threshold is a percentile."""
    if options.demos is None:
        raise ConfigError("expected --demos, --runs or --judged, got none of them")
    made = calibrate_trajectory(
        read_tracks(options.demos, options.suite),
        _with_options(config, options),
        threshold_percentile=options.threshold_percentile,
    )
    return made, [f"data:    {options.demos}"]


def _with_options(config: TrajectoryConfig, options: argparse.Namespace) -> TrajectoryConfig:
    given = {n: getattr(options, n) for n in SETTING if getattr(options, n) is not None}
    return dataclasses.replace(config, **given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heisd calibrate", description=__doc__)
    parser.add_argument("--demos", type=Path, help="folder of demonstrations")
    parser.add_argument(
        "--suite", required=True, help="LIBERO suite or any name the episodes carry"
    )
    parser.add_argument("--out", type=Path, required=True, help="YAML file to write")
    parser.add_argument("--config", type=Path, help="configuration to start from")
    parser.add_argument("--window", type=int, help="positions in the window w")
    parser.add_argument("--alpha", type=float, help="weight of the radius in F")
    parser.add_argument("--radius", choices=("centroid", "taubin", "lsq"))
    parser.add_argument("--displacement", choices=("path", "last_to_all", "chord"))
    parser.add_argument(
        "--threshold-percentile",
        type=float,
        default=THRESHOLD_PERCENTILE,
        help="percent of the steps below the boundary (default %(default)s)",
    )
    choice = parser.add_argument_group("choose window, weight, kinds and threshold from drafts")
    choice.add_argument(
        "--runs",
        type=Path,
        nargs="+",
        default=[],
        help="folders of `heisd evaluate --shadow-ar`; --judged FILE instead takes the steps that "
        "`heisd calibrate --skip --judged FILE` has judged",
    )
    choice.add_argument(
        "--method", default="retrieval_only", help="label of the drafts (default %(default)s)"
    )
    choice.add_argument(
        "--profile", type=Path, help="device profile that says what a step costs (the paper's A100)"
    )
    choice.add_argument(
        "--rejected-forwards",
        type=float,
        default=6.0,
        help="mean forwards behind the prefill after a rejection (default %(default)s: the worst)",
    )
    skip = parser.add_argument_group("verify-skip (Algorithm 1)")
    skip.add_argument(
        "--skip", action="store_true", help="learn its thresholds and write them as JSON to --out"
    )
    skip.add_argument(
        "--per-task", type=int, default=0, help="judge so many episodes of each task; 0: all"
    )
    skip.add_argument(
        "--judged", type=Path, help="file for the judged steps, to be read again without --skip"
    )
    skip.add_argument("--floor", type=float, default=0.90, help="T (default %(default)s)")
    skip.add_argument(
        "--max-error",
        type=float,
        default=0.05,
        help="largest share of unacceptable pairs (default %(default)s)",
    )
    skip.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="a configuration value"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
