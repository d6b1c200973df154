"""Does an episode contradict its profile? Signs, timing and kinds that the measured pose disproves.

Only clear contradictions count. Where the pose is unknown nothing can be said.
"""

from __future__ import annotations

import numpy as np

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.demonstrations.ingest_profile import IngestProfile
from heisd_ros.types import Float32Array, FloatArray

GRIPPER_DELAY = 10
"""Steps after a switch until the fingers have visibly moved."""
GRIPPER_TRAVEL_M = 0.005
POSE_DISTANCE_M = 0.03
"""Actions this near the measured position all the time are positions."""
SMALLEST_REACH_M = 0.15
"""Nearer to the origin a position and a small change of it look alike."""
TIMING_MARGIN = 0.1
FEWEST_STEPS = 20
OUTSIDE_LIMIT = 0.2
"""Quantiles leave 2 % outside; ten times as much is another data set."""
SPAN_LIMIT = 0.05


def contradiction(actions: FloatArray, state: Float32Array, profile: IngestProfile) -> str:
    """Return what is wrong with the profile, and the option that would be right; empty if nothing.

    Args:
        actions: (T, 7), converted.
        state: (T, 8), nan where unknown.
        profile: What the user said.
    """
    state64 = state.astype(np.float64)
    if profile.action == "delta" and actions_are_poses(actions[:, :3], state64[:, :3]):
        return (
            "the actions are the measured positions themselves; give --action absolute with "
            "--rotation"
        )
    if gripper_votes(actions[:, -1], state64[:, 7]) < 0:
        return (
            f"the fingers move against the gripper actions; --gripper {profile.gripper} has the "
            "wrong sign"
        )
    if profile.observation == "before" and moves_too_early(actions[:, :3], state64[:, :3]):
        return (
            "the pose of a row has already followed the action of the row; give --observation after"
        )
    return ""


def actions_are_poses(moves: FloatArray, positions: FloatArray) -> bool:
    """Return whether "changes" of position lie on the positions themselves."""
    known = np.isfinite(positions).all(axis=1)
    if not known.any():
        return False
    distance = np.linalg.norm(moves[known] - positions[known], axis=1)
    reach = np.linalg.norm(positions[known], axis=1)
    return bool(np.median(distance) < POSE_DISTANCE_M and np.median(reach) > SMALLEST_REACH_M)


def gripper_votes(opened: FloatArray, gap: FloatArray) -> int:
    """Return how many switches the fingers followed, minus those they moved against.

    Args:
        opened: (T,), wanted opening.
        gap: (T,), measured finger distance, metres; nan where unknown.
    """
    switches = np.flatnonzero(np.abs(np.diff(opened)) > 0.5) + 1
    votes = 0
    for at in switches:
        later = min(at + GRIPPER_DELAY, len(gap) - 1)
        travel = gap[later] - gap[at]
        if abs(travel) > GRIPPER_TRAVEL_M:  # false for nan
            votes += 1 if (travel > 0) == (opened[at] > opened[at - 1]) else -1
    return votes


def moves_too_early(moves: FloatArray, positions: FloatArray) -> bool:
    """Return whether the arm moves clearly more before an action than after it."""
    if len(moves) < FEWEST_STEPS or not np.isfinite(positions).all():
        return False
    steps = np.diff(positions, axis=0)
    earlier = _correlation(moves[1:], steps)
    later = _correlation(moves[:-1], steps)
    return bool(earlier > later + TIMING_MARGIN)


def statistics_problem(actions: FloatArray, statistics: ActionStatistics) -> str:
    """Return why action statistics cannot belong to these actions; empty if they can.

    Args:
        actions: (N, 7), model convention.
        statistics: Of the checkpoint that will be served.
    """
    axes = np.flatnonzero(statistics.mask[:6])
    span = statistics.q99[axes] - statistics.q01[axes]
    values = actions[:, axes]
    slack = 1e-6 + 1e-3 * span
    outside = (values < statistics.q01[axes] - slack) | (values > statistics.q99[axes] + slack)
    shares = outside.mean(axis=0)
    used = np.ptp(np.quantile(values, [0.01, 0.99], axis=0), axis=0) / span
    for place, axis in enumerate(axes):
        if shares[place] > OUTSIDE_LIMIT:
            return (
                f"{shares[place]:.0%} of action axis {axis} lies outside the quantiles "
                f"[{statistics.q01[axis]:g}, {statistics.q99[axis]:g}] of {statistics.key!r}"
            )
    if len(used) and used.max() < SPAN_LIMIT:
        return f"the actions use at most {used.max():.1%} of the range of {statistics.key!r}"
    return ""


def _correlation(one: FloatArray, other: FloatArray) -> float:
    norm = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float((one * other).sum()) / norm if norm else 0.0
