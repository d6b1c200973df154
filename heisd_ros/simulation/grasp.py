"""Where to grasp: candidates around the object, scored by collision with everything else.

Privileged: reads the collision shapes of the simulator. Only the scripted expert uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heisd_ros.errors import DataError
from heisd_ros.simulation.libero import LiberoEnvironment
from heisd_ros.types import FloatArray

RIM_INSET = 0.006
"""Metres from the outermost rim to the middle of a bowl's wall."""
RIM_WALL = 0.010
"""Metres between the fingers when they hold a bowl by its wall."""
GRIP_DEPTH = 0.030
"""Metres below the top of the object at which the fingers close."""
MAX_BODY_WIDTH = 0.074
"""Widest body, metres, that the fingers straddle with a few millimetres to spare."""
_NO_OBSTACLE = ("robot0", "gripper0", "mount0", "world", "floor", "table")
_NO_OBSTACLE_SUFFIX = "table"
_SAMPLE_PITCH = 0.008
_MAX_MESH_POINTS = 2000


@dataclass(frozen=True, slots=True)
class Grasp:
    """A grasp relative to the object, so that it moves with it.

    Attributes:
        offset: Grip site minus the object's position (3,), metres, world axes.
        yaw: Rotation of the hand about the vertical, radians.
        width: Finger gap when the object is held, metres.
        above_bottom: Height of the grip site above the object's underside, metres.
        height: Height of the object, metres.
        collisions: Points of other objects inside the hand at the grasp; 0 = free.
    """

    offset: FloatArray
    yaw: float
    width: float
    above_bottom: float
    height: float
    collisions: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    xy: FloatArray
    yaw: float
    width: float
    cost: float


def collision_points(env: LiberoEnvironment, keep: Callable[[str], bool]) -> FloatArray:
    """Return points (N, 3) on the collision shapes of the chosen bodies, metres, world frame.

    Args:
        env: The environment.
        keep: Told the name of a top-level body, says whether its shapes are wanted.
    """
    model = env.model
    clouds = [
        _geom_points(env, geom)
        for geom in range(model.ngeom)
        if (model.geom_contype[geom] or model.geom_conaffinity[geom])
        and keep(model.body(int(model.body_rootid[model.geom_bodyid[geom]])).name)
    ]
    return np.concatenate(clouds) if clouds else np.zeros((0, 3))


def plan_grasp(env: LiberoEnvironment, name: str) -> Grasp:
    """Return the cheapest grasp of an object where it stands now.

    Bowls, mugs and other hollow things wider than the hand are taken by their rim, all else is
    straddled.

    Raises:
        DataError: If the object has no collision shape or is too wide everywhere.
    """
    body = collision_points(env, lambda other: other.startswith(name))
    if not len(body):
        raise DataError(f"{name} has no collision shape to grasp")
    top, bottom = float(body[:, 2].max()), float(body[:, 2].min())
    grip_z = top - min(GRIP_DEPTH, (top - bottom) / 2)
    hand = env.end_effector().position
    candidates = list(
        _rim_candidates(body, hand) if "bowl" in name else _top_candidates(body, grip_z)
    )
    if not candidates:
        raise DataError(f"{name} is wider than the hand ({MAX_BODY_WIDTH} m) in every direction")
    obstacles = collision_points(env, lambda other: _is_obstacle(other, name))
    hits = [_points_in_hand(obstacles, candidate, grip_z) for candidate in candidates]
    costs = [
        candidate.cost + 4.0 * min(hit, 30) / 30 + 2.0 * (hit > 0)
        for candidate, hit in zip(candidates, hits, strict=True)
    ]
    best = int(np.argmin(costs))
    return Grasp(
        offset=np.append(candidates[best].xy, grip_z) - env.position_of(name),
        yaw=candidates[best].yaw,
        width=candidates[best].width,
        above_bottom=grip_z - bottom,
        height=top - bottom,
        collisions=hits[best],
    )


def _rim_candidates(body: FloatArray, hand: FloatArray) -> Iterator[_Candidate]:
    """Fingers across the wall anywhere on the rim; little yaw and a near side preferred."""
    rim = body[body[:, 2] > body[:, 2].max() - 0.012, :2]
    centre = (rim.max(axis=0) + rim.min(axis=0)) / 2
    radius = np.percentile(np.linalg.norm(rim - centre, axis=1), 90) - RIM_INSET
    for angle in np.deg2rad(np.arange(-180, 180, 15)):
        xy = centre + radius * np.array([np.cos(angle), np.sin(angle)])
        yaw = float(angle % np.pi - np.pi / 2)
        cost = 0.6 * abs(yaw) + 0.3 * float(np.linalg.norm(xy - hand[:2]))
        yield _Candidate(xy, yaw, RIM_WALL, cost)


def _top_candidates(body: FloatArray, grip_z: float) -> Iterator[_Candidate]:
    """Fingers on both sides of the body, at a few yaws and shifts along it."""
    middle = (body.max(axis=0) + body.min(axis=0))[:2] / 2
    for yaw in np.deg2rad([0, -15, 15, -30, 30, -45, 45, -60, 60, 90]):
        along, across = _hand_axes(float(yaw))
        for shift in (0.0, -0.015, 0.015, -0.025, 0.025):
            xy = middle + shift * along
            relative = body[:, :2] - xy
            slab = (np.abs(relative @ along) < 0.02) & (body[:, 2] > grip_z - 0.015)
            if slab.sum() < 2:
                continue
            extent = (relative @ across)[slab]
            width = float(extent.max() - extent.min())
            if width > MAX_BODY_WIDTH:
                continue
            xy = xy + across * (extent.max() + extent.min()) / 2
            cost = 0.6 * abs(float(yaw)) + 8.0 * abs(shift) + 50.0 * max(0.0, width - 0.068)
            yield _Candidate(xy, float(yaw), width, cost)


def _points_in_hand(points: FloatArray, candidate: _Candidate, grip_z: float) -> int:
    """Count the points inside the boxes of the palm and of the two fingers at a grasp."""
    along, across = _hand_axes(candidate.yaw)
    relative = points[:, :2] - candidate.xy
    u, v, z = np.abs(relative @ across), np.abs(relative @ along), points[:, 2] - grip_z
    palm = (u < 0.115) & (v < 0.042) & (z > 0.035)
    fingers = (u > 0.028) & (u < 0.068) & (v < 0.022) & (z > -0.012)
    return int((palm | fingers).sum())


def _hand_axes(yaw: float) -> tuple[FloatArray, FloatArray]:
    """Return the horizontal axes of the hand: along its flat side, and along the fingers' way."""
    return np.array([np.cos(yaw), np.sin(yaw)]), np.array([-np.sin(yaw), np.cos(yaw)])


def _is_obstacle(body: str, grasped: str) -> bool:
    if not body or body.startswith(grasped) or body.startswith(_NO_OBSTACLE):
        return False
    return not body.endswith(_NO_OBSTACLE_SUFFIX)


def _geom_points(env: LiberoEnvironment, geom: int) -> FloatArray:
    model, data = env.model, env.data
    local = _local_points(model, geom)
    rotation = np.array(data.geom_xmat[geom]).reshape(3, 3)
    return np.asarray(local @ rotation.T + data.geom_xpos[geom], dtype=np.float64)


def _local_points(model: Any, geom: int) -> FloatArray:  # noqa: ANN401  (mujoco.MjModel)
    """Return mesh vertices, or a grid over the bounding box of a primitive."""
    import mujoco

    kind, size = int(model.geom_type[geom]), np.array(model.geom_size[geom])
    shape = mujoco.mjtGeom
    if kind == shape.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        vertices = np.array(model.mesh_vert[start : start + count], dtype=np.float64)
        return vertices[:: max(1, len(vertices) // _MAX_MESH_POINTS)]
    if kind in (shape.mjGEOM_CYLINDER, shape.mjGEOM_CAPSULE):
        size = size[[0, 0, 1]]
    elif kind == shape.mjGEOM_SPHERE:
        size = size[[0, 0, 0]]
    elif kind != shape.mjGEOM_BOX:
        return np.zeros((0, 3))
    axes = [np.linspace(-half, half, int(np.clip(half / _SAMPLE_PITCH + 2, 2, 9))) for half in size]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
