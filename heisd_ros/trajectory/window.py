"""The sliding window of the last w measured end-effector positions, P^[w] of Eq. 4."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.types import FloatArray, IntArray

SMALLEST_WINDOW = 3
"""Fewer points do not define a circle."""


class TrajectoryWindow:
    """Holds the newest positions, oldest first."""

    def __init__(self, size: int) -> None:
        """Set up, empty.

        Raises:
            ConfigError: If the window is too short for a circle.
        """
        if size < SMALLEST_WINDOW:
            raise ConfigError(f"window must hold at least {SMALLEST_WINDOW} positions, got {size}")
        self._positions: deque[FloatArray] = deque(maxlen=size)
        self._stamps: deque[int] = deque(maxlen=size)
        self.size = size

    def push(self, position: ArrayLike, stamp_ns: int) -> None:
        """Add a measured position; the oldest one leaves a full window.

        Args:
            position: (3,), metres.
            stamp_ns: Measurement time, nanoseconds.

        Raises:
            ShapeError: If the position is not (3,).
        """
        point = np.array(position, dtype=np.float64)
        if point.shape != (3,):
            raise ShapeError(
                f"position must have shape (3,), got {point.shape}; drop the orientation first"
            )
        self._positions.append(point)
        self._stamps.append(stamp_ns)

    def clear(self) -> None:
        """Forget all positions."""
        self._positions.clear()
        self._stamps.clear()

    @property
    def positions(self) -> FloatArray:
        """float64 (n, 3), n <= size, metres, oldest first."""
        return np.array(self._positions, dtype=np.float64).reshape(-1, 3)

    @property
    def stamps_ns(self) -> IntArray:
        """int64 (n,), nanoseconds, oldest first."""
        return np.array(self._stamps, dtype=np.int64)

    @property
    def is_full(self) -> bool:
        """True once w positions are held."""
        return len(self._positions) == self.size

    def __len__(self) -> int:
        """Return the number of positions held."""
        return len(self._positions)
