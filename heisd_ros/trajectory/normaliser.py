"""Radius and displacement to [0, 1] by ranges calibrated on demonstrations (Norm of Eq. 8)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.config import TrajectoryConfig
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.types import FloatArray

UPPER_PERCENTILE = 95.0
"""The value that becomes 1; rarer, larger ones are clipped (HeiSD)."""

THRESHOLD_PERCENTILE = 25.0
"""Share of the slowest demonstrated steps that is left to the drafter (published scripts)."""


@dataclass(frozen=True, slots=True)
class PercentileNormaliser:
    """Smallest value -> 0, 95th percentile -> 1, clipped.

    The ranges hold for one window length and one kind of radius and displacement only: another
    window moves the boundary between the modes several times over.

    Attributes:
        radius_low: Radius that becomes 0, metres.
        radius_high: Radius that becomes 1, metres.
        displacement_low: Displacement that becomes 0, metres.
        displacement_high: Displacement that becomes 1, metres.
    """

    radius_low: float
    radius_high: float
    displacement_low: float
    displacement_high: float

    def __post_init__(self) -> None:
        """Refuse ranges that cannot scale anything."""
        for name in ("radius", "displacement"):
            low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ConfigError(f"{name} range needs finite low < high, got {low} and {high}")

    @classmethod
    def fit(
        cls,
        radii: ArrayLike,
        displacements: ArrayLike,
        *,
        percentile: float = UPPER_PERCENTILE,
    ) -> PercentileNormaliser:
        """Calibrate on the windows of demonstrations; infinite radii (straight runs) are left out.

        Args:
            radii: (n,), metres.
            displacements: (n,), metres.
            percentile: Percentile that becomes 1.

        Raises:
            DataError: If there are no finite values or they are all equal.
        """
        radius = _range("radii", radii, percentile)
        displacement = _range("displacements", displacements, percentile)
        return cls(*radius, *displacement)

    @classmethod
    def from_config(cls, config: TrajectoryConfig) -> PercentileNormaliser:
        """Take the ranges of the configuration."""
        return cls(
            config.radius_low,
            config.radius_high,
            config.displacement_low,
            config.displacement_high,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, float]) -> PercentileNormaliser:
        """Build from what `to_dict` gave.

        Raises:
            ConfigError: If a field is missing or unknown.
        """
        names = {item.name for item in dataclasses.fields(cls)}
        if set(values) != names:
            raise ConfigError(
                f"a normaliser needs exactly {', '.join(sorted(names))}; got "
                f"{', '.join(sorted(values)) or 'nothing'}"
            )
        return cls(**{name: float(value) for name, value in values.items()})

    def to_dict(self) -> dict[str, float]:
        """Return the four numbers by name."""
        return dataclasses.asdict(self)

    def apply(self, radius: float, displacement: float) -> tuple[float, float]:
        """Return both values in [0, 1]; an infinite radius becomes 1, nan stays nan."""
        return (
            _scaled(radius, self.radius_low, self.radius_high),
            _scaled(displacement, self.displacement_low, self.displacement_high),
        )


def fit_threshold(fused: ArrayLike, *, percentile: float = THRESHOLD_PERCENTILE) -> float:
    """Return the boundary between the modes: a percentile of F over the demonstrations.

    Args:
        fused: (n,), F of every window; nan (too few samples) is left out.
        percentile: Share of steps below the boundary, percent.

    Raises:
        DataError: If there is no number.
    """
    return float(np.percentile(_finite("fused metrics", fused), percentile))


def _range(name: str, values: ArrayLike, percentile: float) -> tuple[float, float]:
    finite = _finite(name, values)
    low, high = float(finite.min()), float(np.percentile(finite, percentile))
    if low >= high:
        raise DataError(f"{name} must vary, got only {low}; calibrate on moving demonstrations")
    return low, high


def _finite(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64).ravel()
    finite = array[np.isfinite(array)]
    if finite.size == 0:
        raise DataError(f"{name} must hold at least one finite number, got {array.size} values")
    return finite


def _scaled(value: float, low: float, high: float) -> float:
    return float(np.clip((value - low) / (high - low), 0.0, 1.0))
