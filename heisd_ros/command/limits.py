"""Limits on a velocity vector: its norm, its change, and where it leads."""

from __future__ import annotations

import math

import numpy as np

from heisd_ros.types import FloatArray

MARGIN = 1.0 - 1e-9
"""Scaled vectors end this factor below the limit, so that rounding never puts them above it."""


def limit_norm(vector: FloatArray, limit: float) -> tuple[FloatArray, bool]:
    """Return the vector with its norm at most `limit`, direction kept, and whether it was longer.

    Args:
        vector: Finite, of any magnitude: squares must not overflow.
        limit: Largest norm, > 0.
    """
    largest = float(np.abs(vector).max())
    if largest == 0.0:
        return np.asarray(vector, dtype=np.float64), False
    unit = vector / largest
    length = float(np.linalg.norm(unit))
    if largest <= limit / length:
        return np.asarray(vector, dtype=np.float64), False
    return np.asarray(unit * (limit * MARGIN / length)), True


def limit_change(wanted: FloatArray, last: FloatArray, limit: float) -> tuple[FloatArray, bool]:
    """Return a vector at most `limit` away from the last one, and whether it was changed.

    Keeps the wanted direction as long as some length of it is near enough. A reversal that no
    length can reach turns into braking: the last vector moves towards the wanted one by `limit`.

    Args:
        wanted: Wanted vector.
        last: The vector sent before.
        limit: Largest norm of their difference, >= 0; at 0 the last vector stays.
    """
    change = wanted - last
    distance = float(np.linalg.norm(change))
    if distance <= limit:
        return wanted, False
    reach = limit * MARGIN
    factor = _largest_factor(wanted, last, reach)
    if factor is not None:
        return wanted * factor, True
    return last + change * (reach / distance), True


def limit_to_box(
    velocity: FloatArray,
    position: FloatArray,
    box: tuple[FloatArray, FloatArray],
    horizon_s: float,
) -> tuple[FloatArray, bool]:
    """Return the velocity without what would leave the box, and whether anything was taken off.

    Each component is slowed so that the border is not crossed within the horizon; outside the
    box only motion back is left. This limit wins over the one on the change of velocity.

    Args:
        velocity: (3,), m/s.
        position: (3,), metres, same frame.
        box: Lower and upper corner, (3,) each, metres.
        horizon_s: How long the velocity may be held, seconds.
    """
    slowest = np.minimum((box[0] - position) / horizon_s, 0.0)
    fastest = np.maximum((box[1] - position) / horizon_s, 0.0)
    inside = np.clip(velocity, slowest, fastest)
    return inside, bool((inside != velocity).any())


def _largest_factor(wanted: FloatArray, last: FloatArray, reach: float) -> float | None:
    """Return the largest s <= 1 with |s wanted - last| <= reach, or None if there is none > 0."""
    square = float(wanted @ wanted)
    along = float(wanted @ last)
    discriminant = along * along - square * (float(last @ last) - reach * reach)
    if square <= 0.0 or discriminant < 0.0:
        return None
    factor = (along + math.sqrt(discriminant)) / square
    if not 0.0 < factor <= 1.0:
        return None
    return factor if np.linalg.norm(wanted * factor - last) <= reach / MARGIN else None
