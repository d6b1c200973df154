"""Displacement and fused metric of a window (Eq. 7-8), and the meter that follows the arm."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.config import TrajectoryConfig
from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.trajectory.curvature import STATIONARY_M, curvature_radius
from heisd_ros.trajectory.normaliser import PercentileNormaliser
from heisd_ros.trajectory.screen import PoseScreen
from heisd_ros.trajectory.window import SMALLEST_WINDOW, TrajectoryWindow
from heisd_ros.types import FloatArray, TrajectoryMetric

KINDS = ("path", "last_to_all", "chord")


def cumulative_displacement(positions: FloatArray, kind: str = "path") -> float:
    """Return D, how far the arm went within the window (Eq. 7).

    Args:
        positions: (w, 3), metres, oldest first.
        kind: `path`, the length of the path; `last_to_all`, the summed distances of the newest
            position to all others, as in the published code; `chord`, first to last position.

    Returns:
        Metres, >= 0; 0 for fewer than two positions.

    Raises:
        ShapeError: If the positions are not (w, 3).
        ConfigError: If the kind is unknown.
    """
    if positions.ndim != 2 or positions.shape[1] != 3:
        raise ShapeError(f"positions must have shape (w, 3), got {positions.shape}")
    if kind not in KINDS:
        raise ConfigError(f"displacement must be one of {', '.join(KINDS)}; got {kind!r}")
    if len(positions) < 2:
        return 0.0
    if kind == "path":
        return float(np.linalg.norm(np.diff(positions, axis=0), axis=1).sum())
    if kind == "last_to_all":
        return float(np.linalg.norm(positions[:-1] - positions[-1], axis=1).sum())
    return float(np.linalg.norm(positions[-1] - positions[0]))


def fused_metric(
    radius: float, displacement: float, alpha: float, normaliser: PercentileNormaliser
) -> float:
    """Return F = alpha Norm(R) + (1 - alpha) Norm(D) (Eq. 8).

    Args:
        radius: R, metres; inf counts as 1.
        displacement: D, metres.
        alpha: Weight of the radius, [0, 1].
        normaliser: Ranges calibrated for this window and these kinds of R and D.

    Returns:
        [0, 1]; nan if either input is nan.
    """
    scaled_radius, scaled_displacement = normaliser.apply(radius, displacement)
    return alpha * scaled_radius + (1.0 - alpha) * scaled_displacement


class TrajectoryMeter:
    """Follows the measured end-effector position and keeps the metric of the last w samples.

    Bad samples are dropped and counted, jumps of time, frame or place empty the window. Nothing
    infinite leaves: the radius is capped, and only `fused` is nan, while there are fewer than
    three samples.
    """

    def __init__(
        self, config: TrajectoryConfig, normaliser: PercentileNormaliser | None = None
    ) -> None:
        """Set up, empty.

        Args:
            config: Window, kinds of R and D, alpha, ranges and bounds.
            normaliser: Calibrated ranges; None takes those of the configuration.
        """
        self._config = config
        self._normaliser = normaliser or PercentileNormaliser.from_config(config)
        self._window = TrajectoryWindow(config.window)
        self._screen = PoseScreen(config.max_speed, config.max_gap_s)
        self.metric = self._measure()

    @property
    def drops(self) -> Counter[str]:
        """How many samples were dropped, and how often the window was cleared, by reason."""
        return self._screen.counts

    def reset(self) -> None:
        """Forget the trajectory, e.g. at the start of an episode; the counts are kept."""
        self._window.clear()
        self._screen.reset()
        self.metric = self._measure()

    def update(self, position: ArrayLike, stamp_ns: int, frame_id: str = "") -> TrajectoryMetric:
        """Take one measured position and return the metric of the window including it.

        Args:
            position: (3,), metres; never an integrated action.
            stamp_ns: Measurement time, nanoseconds.
            frame_id: Frame of the position; another one than before empties the window.

        Raises:
            ShapeError: If the position is not (3,).
        """
        point = np.asarray(position, dtype=np.float64)
        if point.shape != (3,):
            raise ShapeError(f"position must have shape (3,), got {point.shape}")
        verdict = self._screen.judge(point, stamp_ns, frame_id)
        if verdict.clear:
            self._window.clear()
        for sample in verdict.samples:
            self._window.push(sample.position, sample.stamp_ns)
        if verdict.clear or verdict.samples:
            self.metric = self._measure()
        return self.metric

    def _measure(self) -> TrajectoryMetric:
        config, positions = self._config, self._window.positions
        stamps = self._window.stamps_ns
        samples = len(positions)
        stamp_ns = int(stamps[-1]) if samples else 0
        radius = min(curvature_radius(positions, config.radius), config.max_radius)
        displacement = cumulative_displacement(positions, config.displacement)
        enough = samples >= SMALLEST_WINDOW
        fused = fused_metric(radius, displacement, config.alpha, self._normaliser)
        path = cumulative_displacement(positions, "path")
        chord = cumulative_displacement(positions, "chord")
        duration_s = float(stamps[-1] - stamps[0]) * 1e-9 if samples > 1 else math.inf
        return TrajectoryMetric(
            curvature_radius=radius,
            displacement=displacement,
            fused=fused if enough else math.nan,
            straightness=min(chord / path, 1.0) if path > STATIONARY_M else 0.0,
            speed=path / duration_s,
            samples=samples,
            stamp_ns=stamp_ns,
        )
