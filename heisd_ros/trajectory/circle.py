"""Two circle fits in the plane: Taubin's algebraic one and the geometric one of Eq. 5."""

from __future__ import annotations

import math

import numpy as np

from heisd_ros.types import FloatArray

MAX_ITERATIONS = 50
FIRST_DAMPING = 1e-3
GREATEST_DAMPING = 1e9
SMALLEST_GAIN = 1e-10
"""Relative; a step that lowers the cost by less no longer changes the radius."""

FLATTEST = 1e-12
"""Leading coefficient of the normalised circle equation below which it is a line."""


def taubin_centre(points: FloatArray) -> FloatArray:
    """Return the centre of Taubin's circle fit, in closed form by one small SVD.

    Algebraic fits minimise how badly the circle equation a(x^2+y^2) + bx + cy + d = 0 is met;
    Taubin's normalisation keeps short arcs from shrinking the circle.

    Args:
        points: (w, 2), w >= 3.

    Returns:
        float64 (2,); infinite if the points lie on one line.
    """
    mean = points.mean(axis=0)
    scale = float(np.abs(points - mean).max()) or 1.0
    x, y = ((points - mean) / scale).T
    square = x * x + y * y
    half_width = 2.0 * math.sqrt(float(square.mean())) or 1.0
    table = np.stack([(square - square.mean()) / half_width, x, y], axis=1)
    a, b, c = np.linalg.svd(table, full_matrices=False)[2][-1]
    a /= half_width
    if abs(a) < FLATTEST:
        return np.full(2, math.inf)
    return np.asarray(mean + scale * np.array([-b / (2.0 * a), -c / (2.0 * a)]))


def least_squares_centre(points: FloatArray, start: FloatArray) -> FloatArray:
    """Return the centre whose distances to the points vary least (Eq. 5), by damped Gauss-Newton.

    From a start at the mean of the points the objective is nearly flat and an optimiser stops at
    once; the algebraic fit is a start near the minimum.

    Args:
        points: (w, 2), w >= 3.
        start: (2,), first guess.

    Returns:
        float64 (2,); the start itself if that is infinite.
    """
    if not np.isfinite(start).all():
        return start
    centre, damping = start, FIRST_DAMPING
    residual, slope = _spread(points, centre)
    cost = float(residual @ residual)
    for _ in range(MAX_ITERATIONS):
        trial = centre + _damped_step(residual, slope, damping)
        trial_residual, trial_slope = _spread(points, trial)
        trial_cost = float(trial_residual @ trial_residual)
        if trial_cost < cost:
            gain = 1.0 - trial_cost / cost
            centre, residual, slope, cost = trial, trial_residual, trial_slope, trial_cost
            damping /= 10.0
            if gain < SMALLEST_GAIN:
                break
        else:
            damping *= 10.0
            if damping > GREATEST_DAMPING:
                break
    return centre


def _damped_step(residual: FloatArray, slope: FloatArray, damping: float) -> FloatArray:
    """Return the Levenberg-Marquardt step (2,), the damping scaled to each axis' own curvature."""
    normal = slope.T @ slope
    damped = normal + damping * np.diag(np.diag(normal) + np.finfo(np.float64).tiny)
    return np.asarray(np.linalg.lstsq(damped, -slope.T @ residual, rcond=None)[0])


def _spread(points: FloatArray, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return distance minus mean distance (w,), and its derivative by the centre (w, 2)."""
    offset = centre - points
    distance = np.linalg.norm(offset, axis=1)
    direction = offset / np.maximum(distance, np.finfo(np.float64).tiny)[:, None]
    return distance - distance.mean(), direction - direction.mean(axis=0)
