"""The curvature radius of a window of positions (Eq. 4-6)."""

from __future__ import annotations

import math

import numpy as np

from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.trajectory.circle import least_squares_centre, taubin_centre
from heisd_ros.trajectory.window import SMALLEST_WINDOW
from heisd_ros.types import FloatArray

METHODS = ("centroid", "taubin", "lsq")

STATIONARY_M = 1e-9
"""First singular value of the centred window below which the arm stands still, metres."""

STRAIGHT_RATIO = 1e-6
"""Second over first singular value below which the window is a straight line."""


def project_to_plane(positions: FloatArray) -> FloatArray:
    """Return the positions in their best-fit plane, relative to their mean (Eq. 4).

    The axes are the two main directions of the window, so the result is defined up to the sign
    of each axis; no radius depends on it.

    Args:
        positions: (w, 3), metres, w >= 2.

    Returns:
        float64 (w, 2), metres.

    Raises:
        ShapeError: If the positions are not (w, 3).
    """
    centred, _, axes = _principal_axes(_checked(positions))
    return np.asarray(centred @ axes[:2].T)


def fit_centre(points: FloatArray, method: str = "lsq") -> FloatArray:
    """Return the centre (u, v) of the circle through points of a plane (Eq. 5).

    Args:
        points: (w, 2), metres, not on one straight line unless the method is `centroid`.
        method: `centroid`, the mean, which is where the published optimiser stops; `taubin`, an
            algebraic circle fit; `lsq`, Eq. 5 itself, the centre whose distances to the points
            vary least.

    Returns:
        float64 (2,), metres; infinite for points on one line.

    Raises:
        ShapeError: If the points are not (w, 2).
        ConfigError: If the method is unknown.
    """
    if points.ndim != 2 or points.shape[1] != 2:
        raise ShapeError(f"points must have shape (w, 2), got {points.shape}")
    if method == "centroid":
        return np.asarray(points.mean(axis=0))
    if method == "taubin":
        return taubin_centre(points)
    if method == "lsq":
        return least_squares_centre(points, taubin_centre(points))
    raise ConfigError(f"radius method must be one of {', '.join(METHODS)}; got {method!r}")


def curvature_radius(positions: FloatArray, method: str = "centroid") -> float:
    """Return R, the mean distance of the window to its fitted centre (Eq. 6).

    With `centroid` this is the spatial extent of the window, about a quarter of the length of a
    straight run. With a fitted circle a straight run gives inf; `taubin` returns the radius of
    the circle it fitted, the root mean square of the distances.

    Args:
        positions: (w, 3), metres, oldest first.
        method: As in `fit_centre`.

    Returns:
        Radius in metres, >= 0; 0 for fewer than three points or an arm that stands still.

    Raises:
        ShapeError: If the positions are not (w, 3).
        ConfigError: If the method is unknown.

    Example:
        >>> angle = np.linspace(0.0, 1.0, 15)
        >>> arc = 0.2 * np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
        >>> round(curvature_radius(arc, "taubin"), 6)
        0.2
    """
    if method not in METHODS:
        raise ConfigError(f"radius method must be one of {', '.join(METHODS)}; got {method!r}")
    if len(_checked(positions)) < SMALLEST_WINDOW:
        return 0.0
    centred, spread, axes = _principal_axes(positions)
    if spread[0] < STATIONARY_M:
        return 0.0
    if method != "centroid" and spread[1] < STRAIGHT_RATIO * spread[0]:
        return math.inf
    points = centred @ axes[:2].T
    centre = fit_centre(points, method)
    distance = np.linalg.norm(points - centre, axis=1)
    if method == "taubin":
        return math.sqrt(float(np.mean(distance**2)))  # the radius of Taubin's own circle
    return float(distance.mean())


def _principal_axes(positions: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return centred positions (w, 3), singular values (descending) and axes (rows)."""
    centred = positions - positions.mean(axis=0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    return centred, spread, axes


def _checked(positions: FloatArray) -> FloatArray:
    if positions.ndim != 2 or positions.shape[1] != 3:
        raise ShapeError(
            f"positions must have shape (w, 3), got {positions.shape}; drop the quaternion columns"
        )
    return positions
