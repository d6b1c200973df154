"""Which kind of draft a step gets: the hybrid boundary on F (HeiSD section 4.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from heisd_ros.types import DraftKind, TrajectoryMetric

MIN_SAMPLES = 3
"""Fewer positions define no circle: such steps are decoded autoregressively."""


class Selector(Protocol):
    """Chooses the draft source of a step."""

    def select(self, metric: TrajectoryMetric) -> DraftKind:
        """Return the wanted kind of draft."""

    def reset(self) -> None:
        """Forget the episode."""


@dataclass(frozen=True, slots=True)
class FixedSelector:
    """Always the same kind: the single-source baselines, and autoregression itself."""

    kind: DraftKind

    def select(self, metric: TrajectoryMetric) -> DraftKind:  # noqa: ARG002
        """Return the fixed kind."""
        return self.kind

    def reset(self) -> None:
        """Nothing to forget."""


class BoundarySelector:
    """Retrieval where the arm moves fast and straight (F high), the drafter elsewhere.

    The paper compares F with one threshold. Hysteresis and dwell are ours: they keep the mode from
    flickering at the boundary; `hysteresis=1, dwell=0` is the paper's rule.
    """

    def __init__(self, threshold: float, *, hysteresis: float = 1.0, dwell: int = 0) -> None:
        """Set the boundary.

        Args:
            threshold: F strictly above it selects retrieval, [0, 1].
            hysteresis: Retrieval is left only at or below `threshold * hysteresis`.
            dwell: Fewest steps in a mode before it may change.
        """
        self._enter = threshold
        self._leave = threshold * hysteresis
        self._dwell = dwell
        self._mode: DraftKind | None = None
        self._steps = 0

    def select(self, metric: TrajectoryMetric) -> DraftKind:
        """Return RETRIEVAL or DRAFTER, or AR while the window is too short for F."""
        if metric.samples < MIN_SAMPLES or math.isnan(metric.fused):
            return DraftKind.AR
        boundary = self._leave if self._mode is DraftKind.RETRIEVAL else self._enter
        wanted = DraftKind.RETRIEVAL if metric.fused > boundary else DraftKind.DRAFTER
        if self._mode is None or (wanted is not self._mode and self._steps >= self._dwell):
            self._mode, self._steps = wanted, 0
        self._steps += 1
        return self._mode

    def reset(self) -> None:
        """Start the next episode without a mode."""
        self._mode, self._steps = None, 0
