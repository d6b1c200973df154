"""`heisd calibrate`: what is learned from demonstrations and logged runs, as files.

Ranges and threshold of F as a configuration file; with `--skip` the thresholds of verify-skip.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from heisd_ros.config import TrajectoryConfig, load_config
from heisd_ros.demonstrations.episode import read_episodes
from heisd_ros.errors import DataError
from heisd_ros.offline.kinematic_calibration import Track, calibrate_trajectory, to_yaml
from heisd_ros.offline.provenance import provenance
from heisd_ros.trajectory.normaliser import THRESHOLD_PERCENTILE

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Calibrate and write the file."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.skip:
        from heisd_ros.offline.skip_calibration import calibrate_skip  # loads the model

        return calibrate_skip(options, arguments)
    config = _with_options(load_config(options.config).trajectory, options)
    tracks = list(read_tracks(options.demos, options.suite))
    calibration = calibrate_trajectory(
        tracks, config, threshold_percentile=options.threshold_percentile
    )
    facts = provenance("calibrate", arguments)
    header = [
        f"Kinematic calibration of {options.suite}, written by `heisd calibrate`; do not edit.",
        f"data:    {options.demos}",
        *(f"{name + ':':<8} {facts[name]}" for name in ("command", "commit", "date")),
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(to_yaml(calibration, header), encoding="utf-8")
    load_config(options.out)
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


def _with_options(config: TrajectoryConfig, options: argparse.Namespace) -> TrajectoryConfig:
    names = ("window", "alpha", "radius", "displacement")
    given = {n: getattr(options, n) for n in names if getattr(options, n) is not None}
    return dataclasses.replace(config, **given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heisd calibrate", description=__doc__)
    parser.add_argument("--demos", type=Path, required=True, help="folder of demonstrations")
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
    skip = parser.add_argument_group("verify-skip (Algorithm 1)")
    skip.add_argument(
        "--skip", action="store_true", help="learn its thresholds and write them as JSON to --out"
    )
    skip.add_argument(
        "--per-task", type=int, default=0, help="judge so many episodes of each task; 0: all"
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
