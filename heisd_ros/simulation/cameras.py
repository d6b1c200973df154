"""Pictures and pinhole projection of a MuJoCo scene: upright, antialiased, cheap on a CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from heisd_ros.errors import DataError, MissingDependencyError
from heisd_ros.types import BoolArray, FloatArray, ImageArray

SUPERSAMPLING = 2
"""Rendered pixels per output pixel along one side. Rendering here is bound by vertices, not
pixels, so this costs little, where multisampling and shadows would double the time."""
_VISIBLE_GROUP = 1
"""MuJoCo geom group of the visible shapes in robosuite's models; group 0 are collision shapes."""
_HIDDEN_GROUP = 5
_NO_OPENGL = (
    "no off-screen OpenGL: set MUJOCO_GL=egl before mujoco is imported, and install the Mesa "
    "libraries (apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri)"
)


def area_downsample(image: ImageArray, factor: int) -> ImageArray:
    """Return the picture with each factor x factor block replaced by its rounded mean.

    Args:
        image: uint8 (H, W, 3); H and W multiples of `factor`.
        factor: Block side in pixels.

    Raises:
        DataError: If the sides are not multiples of the factor.
    """
    height, width, channels = image.shape
    if height % factor or width % factor:
        raise DataError(f"picture sides must be multiples of {factor}, got {height} x {width}")
    blocks = image.reshape(height // factor, factor, width // factor, factor, channels)
    total = blocks.astype(np.uint16).sum(axis=(1, 3))  # at most 16 * 255 for factor 4: fits
    mean = (total + factor * factor // 2) // (factor * factor)
    return np.asarray(mean, dtype=np.uint8)


def projection_matrix(
    position: FloatArray, rotation: FloatArray, fovy_degrees: float, size: int
) -> FloatArray:
    """Return the 3x4 matrix that takes world points to pixels of a square, upright picture.

    Pixel coordinates have x to the right and y down with the origin at the top left corner of
    the picture, so the centre of pixel (row, column) is at (column + 0.5, row + 0.5).

    Args:
        position: Camera position (3,), metres, world frame.
        rotation: Camera axes as columns (3, 3), world frame, MuJoCo convention: x right, y up,
            looking along -z.
        fovy_degrees: Vertical field of view in degrees.
        size: Side of the picture in pixels.
    """
    focal = 0.5 * size / math.tan(0.5 * math.radians(fovy_degrees))
    intrinsics = np.array([[focal, 0.0, size / 2], [0.0, focal, size / 2], [0.0, 0.0, 1.0]])
    world_to_camera = np.diag([1.0, -1.0, -1.0]) @ rotation.T  # y down, z forward
    return np.asarray(
        intrinsics @ np.column_stack([world_to_camera, -world_to_camera @ position]),
        dtype=np.float64,
    )


def project(matrix: FloatArray, points: FloatArray) -> FloatArray:
    """Return the pixel coordinates (N, 2) of world points (N, 3); nan behind the camera.

    Args:
        matrix: World to pixel (3, 4), from `projection_matrix`.
        points: World points (N, 3), metres.
    """
    homogeneous = points @ matrix[:, :3].T + matrix[:, 3]
    depth = np.where(homogeneous[:, 2:] > 1e-6, homogeneous[:, 2:], np.nan)
    return np.asarray(homogeneous[:, :2] / depth, dtype=np.float64)


def sees_sphere(
    centres: FloatArray,
    radii: FloatArray,
    *,
    position: FloatArray,
    rotation: FloatArray,
    fovy_degrees: float,
) -> BoolArray:
    """Return which spheres (N,) reach into the view of a square pinhole camera.

    Args:
        centres: Centres (N, 3), metres, world frame.
        radii: Radii (N,), metres.
        position: As in `projection_matrix`.
        rotation: As in `projection_matrix`.
        fovy_degrees: Field of view in degrees, the same in both directions.
    """
    x, y, z = ((centres - position) @ rotation).T  # camera axes; looking along -z
    half = 0.5 * math.radians(fovy_degrees)
    outside = np.maximum(np.abs(x), np.abs(y)) * math.cos(half) + z * math.sin(half)
    return np.asarray((outside < radii) & (z < radii), dtype=np.bool_)


class SceneRenderer:
    """Renders named cameras of one MuJoCo model, without multisampling, shadows or reflections."""

    def __init__(self, model: Any, size: int) -> None:  # noqa: ANN401  (mujoco.MjModel)
        """Create the off-screen buffer.

        Args:
            model: The compiled MuJoCo model.
            size: Side of the square pictures in pixels.

        Raises:
            MissingDependencyError: If no off-screen OpenGL is to be had.
        """
        import mujoco

        self._mujoco = mujoco
        self._model = model
        self._size = size
        side = size * SUPERSAMPLING
        model.vis.global_.offwidth = max(side, model.vis.global_.offwidth)
        model.vis.global_.offheight = max(side, model.vis.global_.offheight)
        model.vis.quality.offsamples = 0  # read once, when the context is made
        try:
            self._renderer = mujoco.Renderer(model, side, side)
        except mujoco.FatalError as error:
            raise MissingDependencyError(_NO_OPENGL) from error
        self._options = mujoco.MjvOption()
        self._options.geomgroup[:] = 0
        self._options.geomgroup[_VISIBLE_GROUP] = 1
        self._visible = np.array(model.geom_group) == _VISIBLE_GROUP
        self._unbounded = np.array(model.geom_rbound) <= 0.0

    def render(self, data: Any, camera: str) -> ImageArray:  # noqa: ANN401  (mujoco.MjData)
        """Return the camera's picture, uint8 (size, size, 3), RGB, upright."""
        flags = self._mujoco.mjtRndFlag
        # Shapes outside the view cost as much as those inside; leaving them out changes no pixel.
        drawn = self._visible & (self._unbounded | self._in_view(data, camera))
        groups = np.array(self._model.geom_group)
        self._model.geom_group[self._visible & ~drawn] = _HIDDEN_GROUP
        try:
            self._renderer.update_scene(data, camera=camera, scene_option=self._options)
        finally:
            self._model.geom_group[:] = groups
        self._renderer.scene.flags[flags.mjRND_SHADOW] = 0
        self._renderer.scene.flags[flags.mjRND_REFLECTION] = 0
        return area_downsample(self._renderer.render(), SUPERSAMPLING)

    def projection(self, data: Any, camera: str) -> FloatArray:  # noqa: ANN401  (mujoco.MjData)
        """Return the camera's world-to-pixel matrix (3, 4) of this moment."""
        pose = self._pose(data, camera)
        return projection_matrix(pose.position, pose.rotation, pose.fovy_degrees, self._size)

    def close(self) -> None:
        """Free the buffer; may be called twice."""
        self._renderer.close()

    def _in_view(self, data: Any, camera: str) -> BoolArray:  # noqa: ANN401  (mujoco.MjData)
        pose = self._pose(data, camera)
        return sees_sphere(
            np.array(data.geom_xpos),
            np.array(self._model.geom_rbound),
            position=pose.position,
            rotation=pose.rotation,
            fovy_degrees=pose.fovy_degrees,
        )

    def _pose(self, data: Any, camera: str) -> _CameraPose:  # noqa: ANN401  (mujoco.MjData)
        index = self._model.camera(camera).id
        return _CameraPose(
            np.array(data.cam_xpos[index]),
            np.array(data.cam_xmat[index]).reshape(3, 3),
            float(self._model.cam_fovy[index]),
        )


@dataclass(frozen=True, slots=True)
class _CameraPose:
    position: FloatArray
    rotation: FloatArray
    fovy_degrees: float
