"""Ranges and threshold of the fused metric, measured on demonstrations (HeiSD section 4.2).

The demonstrations are sent through the very meter that runs on the robot, so that windows which
are not full yet, jumps and pauses count as they will count online.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.config import TrajectoryConfig
from heisd_ros.errors import DataError
from heisd_ros.trajectory.metric import TrajectoryMeter, fused_metric
from heisd_ros.trajectory.normaliser import (
    THRESHOLD_PERCENTILE,
    UPPER_PERCENTILE,
    PercentileNormaliser,
    fit_threshold,
)
from heisd_ros.trajectory.window import SMALLEST_WINDOW
from heisd_ros.types import FloatArray, TrajectoryMetric

QUANTILES = (5, 25, 50, 75, 95)
"""Percentiles of R, D and F that the file tells its reader."""


@dataclass(frozen=True, slots=True)
class Track:
    """The measured positions of one demonstration.

    Attributes:
        positions: float64 (T, 3), metres.
        control_hz: Steps per second.
    """

    positions: FloatArray
    control_hz: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured.

    Attributes:
        config: The section `trajectory` with ranges and threshold filled in.
        episodes: Demonstrations used.
        windows: Steps with enough samples for F.
        percentile: Share of steps below the threshold that was asked for, percent; nan if the
            threshold was chosen otherwise.
        quantiles: Percentiles (see `QUANTILES`) of R and D (metres), F, and speed (m/s).
        speed_correlation: Spearman's rank correlation of F and mean speed: how much of a plain
            speed gate F is.
    """

    config: TrajectoryConfig
    episodes: int
    windows: int
    percentile: float
    quantiles: Mapping[str, tuple[float, ...]]
    speed_correlation: float


def calibrate_trajectory(
    tracks: Iterable[Track],
    config: TrajectoryConfig,
    *,
    upper_percentile: float = UPPER_PERCENTILE,
    threshold_percentile: float = THRESHOLD_PERCENTILE,
) -> Calibration:
    """Measure R and D of every step, fit the ranges, and put the threshold at a percentile of F.

    Args:
        tracks: Demonstrations of one suite.
        config: Window, alpha, kinds of R and D; its ranges and threshold are replaced.
        upper_percentile: Percentile of R and D that becomes 1.
        threshold_percentile: Percentile of F that becomes the boundary.

    Raises:
        DataError: If there are too few windows, or the arm never moves.
    """
    measured = [metrics_of(track, config) for track in tracks]
    metrics = [metric for one in measured for metric in one]
    if not metrics:
        raise DataError(
            f"expected demonstrations with at least {SMALLEST_WINDOW} positions, got "
            f"{len(measured)} episodes without one window; record longer ones"
        )
    radius = np.array([metric.curvature_radius for metric in metrics])
    displacement = np.array([metric.displacement for metric in metrics])
    speed = np.array([metric.speed for metric in metrics])
    normaliser = PercentileNormaliser.fit(radius, displacement, percentile=upper_percentile)
    pairs = zip(radius, displacement, strict=True)
    fused = np.array([fused_metric(r, d, config.alpha, normaliser) for r, d in pairs])
    threshold = fit_threshold(fused, percentile=threshold_percentile)
    columns = {"radius": radius, "displacement": displacement, "fused": fused, "speed": speed}
    return Calibration(
        config=dataclasses.replace(
            config,
            radius_low=normaliser.radius_low,
            radius_high=normaliser.radius_high,
            displacement_low=normaliser.displacement_low,
            displacement_high=normaliser.displacement_high,
            threshold=threshold,
        ),
        episodes=len(measured),
        windows=len(metrics),
        percentile=threshold_percentile,
        quantiles={
            name: tuple(float(np.percentile(column, percent)) for percent in QUANTILES)
            for name, column in columns.items()
        },
        speed_correlation=rank_correlation(fused, speed),
    )


def metrics_of(track: Track, config: TrajectoryConfig) -> list[TrajectoryMetric]:
    """Return the metric of every step of a track that has enough samples for one."""
    meter = TrajectoryMeter(config)
    found = []
    for step, position in enumerate(track.positions):
        metric = meter.update(position, round(step * 1e9 / track.control_hz))
        if metric.samples >= SMALLEST_WINDOW:
            found.append(metric)
    return found


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Return Spearman's rank correlation [-1, 1], ties ranked by their mean; nan if constant."""
    ranks = np.stack([_ranks(first), _ranks(second)])
    if np.any(ranks.std(axis=1) == 0.0):
        return float("nan")
    matrix = np.asarray(np.corrcoef(ranks))
    return float(matrix[0, 1])


def to_yaml(calibration: Calibration, header: Sequence[str]) -> str:
    """Return a configuration file: comment lines, then the section `trajectory`.

    Args:
        calibration: What was measured.
        header: Lines that name data, command, commit and date.
    """
    config = calibration.config
    lines = [f"# {line}" for line in header]
    lines += [
        f"# {calibration.episodes} episodes, {calibration.windows} windows of up to "
        f"{config.window} positions.",
        f"# Ranges: smallest value and 95th percentile.{_threshold(calibration.percentile)}",
        f"# Rank correlation of F with the mean speed: {calibration.speed_correlation:.3f}.",
        f"# percentiles {', '.join(map(str, QUANTILES))}:",
    ]
    for name, values in calibration.quantiles.items():
        lines.append(f"#   {name:<12} {'  '.join(f'{value:.5g}' for value in values)}")
    lines += [
        "# Valid for this window and these kinds only; another window needs its own calibration.",
        "trajectory:",
        f"  window: {config.window}",
        f"  alpha: {config.alpha:g}",
        f"  radius: {config.radius}",
        f"  displacement: {config.displacement}",
    ]
    for name in (
        "radius_low",
        "radius_high",
        "displacement_low",
        "displacement_high",
        "threshold",
    ):
        lines.append(f"  {name}: {getattr(config, name):.6f}")
    return "\n".join(lines) + "\n"


def _threshold(percentile: float) -> str:
    return "" if math.isnan(percentile) else f" Threshold: percentile {percentile:g} of F."


def _ranks(values: FloatArray) -> FloatArray:
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank: FloatArray = np.asarray(np.cumsum(sizes) - (sizes - 1) / 2.0, dtype=np.float64)
    return mean_rank[group]
