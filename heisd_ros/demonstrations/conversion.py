"""Raw episodes to episodes: pairing, pose deltas, gripper, no-ops, pictures, each with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heisd_ros.demonstrations.episode import Episode
from heisd_ros.demonstrations.ingest_profile import IngestProfile
from heisd_ros.demonstrations.plausibility import contradiction
from heisd_ros.demonstrations.source import RawEpisode, check_size
from heisd_ros.errors import DataError
from heisd_ros.perception.transforms import resize
from heisd_ros.types import ACTION_DIM, BoolArray, FloatArray, ImageArray

NO_OP_LIMIT = 1e-4
"""Action units; OpenVLA's filter for LIBERO."""
RANGE_SLACK = 1e-3
POSE_COLUMNS = {"axis_angle": 7, "euler_xyz": 7, "quaternion_xyzw": 8}

UNPAIRED = "steps without an action after their picture"
NO_OPS = "steps that do nothing"


def convert(
    raw: RawEpisode,
    profile: IngestProfile,
    counts: Counter[str],
    *,
    source: str = "",
) -> Episode:
    """Return the episode in the model's convention.

    Args:
        raw: What a reader gave.
        profile: What it means.
        counts: Dropped steps are added, `reason` -> steps.
        source: Name of the format.

    Raises:
        DataError: If the episode cannot be used: it contradicts the profile, is not finite, has
            pictures of several sizes, or nothing of it is left. The message names the option
            that would help.
    """
    _check_lengths(raw)
    if not raw.instruction.strip():
        raise DataError(f"{raw.name}: the instruction is empty; give --instruction")
    if not np.isfinite(raw.actions).all():
        raise DataError(f"{raw.name}: actions are not finite; repair the recording")
    before = len(raw.actions)
    raw = _paired(raw, profile)
    counts[UNPAIRED] += before - len(raw.actions)
    actions = _model_actions(raw, profile)
    problem = contradiction(actions, raw.state, profile)
    if problem:
        raise DataError(f"{raw.name}: {problem}")
    kept = np.ones(len(actions), dtype=np.bool_)
    if profile.no_ops == "drop":
        kept = ~no_operations(actions)
        counts[NO_OPS] += int((~kept).sum())
    if not kept.any():
        raise DataError(f"{raw.name}: no step is left; it moves nowhere or is too short")
    return Episode(
        images=_pictures(raw, profile, kept),
        actions=actions[kept].astype(np.float32),
        state=raw.state[kept],
        instruction=raw.instruction,
        cameras=tuple(raw.images),
        control_hz=profile.control_hz,
        suite=raw.suite,
        task=raw.task,
        success=True if profile.success == "assume" or raw.success is None else raw.success,
        source={
            **raw.facts,
            "format": source,
            "episode": raw.name,
            "steps_recorded": str(before),
            "profile": profile.to_text(),
        },
    )


def openings(values: FloatArray, profile: IngestProfile, name: str = "") -> FloatArray:
    """Return gripper values as openings in [0, 1], 1 = open.

    Args:
        values: (T,), as recorded.
        profile: Says what they mean.
        name: Episode, for the message.

    Raises:
        DataError: If they cannot have the meaning that the profile says.
    """
    signed = profile.gripper in ("minus_one_open", "plus_one_open")
    high = profile.gripper_max_m if profile.gripper == "position_m" else 1.0
    low = -1.0 if signed else 0.0
    slack = RANGE_SLACK * high
    if values.min() < low - slack or values.max() > high + slack:
        raise DataError(
            f"{name}: gripper values of [{values.min():g}, {values.max():g}] do not fit --gripper "
            f"{profile.gripper} with [{low:g}, {high:g}]; give another --gripper"
        )
    if signed and set(np.unique(values)) == {0.0, 1.0}:
        raise DataError(
            f"{name}: gripper values are 0 and 1, and --gripper {profile.gripper} has -1 and 1; "
            "give --gripper open_is_one or closed_is_one"
        )
    opened = {
        "open_is_one": values,
        "closed_is_one": 1.0 - values,
        "minus_one_open": (1.0 - values) / 2.0,
        "plus_one_open": (1.0 + values) / 2.0,
        "position_m": values / profile.gripper_max_m,
    }[profile.gripper]
    return np.asarray(np.clip(opened, 0.0, 1.0), dtype=np.float64)


def no_operations(actions: FloatArray) -> BoolArray:
    """Return which steps neither move nor switch the gripper; the first one only has to rest.

    Args:
        actions: (T, 7), model convention.
    """
    rests = np.abs(actions[:, :-1]).max(axis=1) < NO_OP_LIMIT
    same = np.concatenate([[True], actions[1:, -1] == actions[:-1, -1]])
    return np.asarray(rests & same, dtype=np.bool_)


def rotation_matrices(values: FloatArray, spelling: str) -> FloatArray:
    """Return rotation matrices (T, 3, 3).

    Args:
        values: (T, 3) radians or (T, 4) quaternions x y z w of any length.
        spelling: axis_angle, euler_xyz (fixed axes, x first) or quaternion_xyzw.
    """
    if spelling == "euler_xyz":
        x, y, z = (_about(values[:, axis], axis) for axis in range(3))
        return np.asarray(z @ y @ x, dtype=np.float64)
    if spelling == "axis_angle":
        angle = np.linalg.norm(values, axis=1)[:, None, None]
        k = _cross_matrices(values)
        half = np.sinc(angle / (2.0 * np.pi))
        return np.asarray(
            np.eye(3) + np.sinc(angle / np.pi) * k + 0.5 * half * half * (k @ k), dtype=np.float64
        )
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    k = _cross_matrices(unit[:, :3])
    return np.asarray(np.eye(3) + 2.0 * unit[:, 3, None, None] * k + 2.0 * k @ k, dtype=np.float64)


def rotation_vectors(matrices: FloatArray) -> FloatArray:
    """Return the rotation vectors (T, 3), radians, of rotations by less than half a turn."""
    skew = np.stack(
        [
            matrices[:, 2, 1] - matrices[:, 1, 2],
            matrices[:, 0, 2] - matrices[:, 2, 0],
            matrices[:, 1, 0] - matrices[:, 0, 1],
        ],
        axis=1,
    )
    sine = np.linalg.norm(skew, axis=1) / 2.0
    angle = np.arctan2(sine, (np.trace(matrices, axis1=1, axis2=2) - 1.0) / 2.0)
    return np.asarray(skew / (2.0 * np.sinc(angle / np.pi)[:, None]), dtype=np.float64)


def _paired(raw: RawEpisode, profile: IngestProfile) -> RawEpisode:
    """Put every action beside the picture it was decided from."""
    if profile.observation == "before":
        return raw
    return replace(
        raw,
        images={camera: images[:-1] for camera, images in raw.images.items()},
        actions=raw.actions[1:],
        state=raw.state[:-1],
    )


def _model_actions(raw: RawEpisode, profile: IngestProfile) -> FloatArray:
    if len(raw.actions) == 0:
        raise DataError(f"{raw.name}: no step is left; it moves nowhere or is too short")
    wanted = POSE_COLUMNS[profile.rotation] if profile.action == "absolute" else ACTION_DIM
    if raw.in_model_units:
        wanted = ACTION_DIM
    if raw.actions.ndim != 2 or raw.actions.shape[1] != wanted:
        raise DataError(
            f"{raw.name}: expected {wanted} action values per step, got shape {raw.actions.shape}; "
            "give the --action and --rotation that the data set has (joint actions cannot be used)"
        )
    if raw.in_model_units:
        return raw.actions
    opened = openings(raw.actions[:, -1], profile, raw.name)
    moves = raw.actions[:, :-1]
    if profile.action == "absolute":
        moves = _deltas(raw, profile)
    elif profile.action == "twist":
        moves = moves / profile.control_hz
    if profile.action != "delta":
        scales = [profile.translation_scale] * 3 + [profile.rotation_scale] * 3
        moves = moves / np.array(scales)
    return np.column_stack([moves, opened])


def _deltas(raw: RawEpisode, profile: IngestProfile) -> FloatArray:
    """Return the change from the measured pose to the wanted one, metres and radians (T, 6)."""
    state = raw.state.astype(np.float64)
    if not np.isfinite(state[:, :7]).all():
        raise DataError(
            f"{raw.name}: the measured pose is not finite, and absolute actions need it"
        )
    now = rotation_matrices(state[:, 3:7], "quaternion_xyzw")
    wanted = rotation_matrices(raw.actions[:, 3:-1], profile.rotation)
    turn = rotation_vectors(wanted @ now.transpose(0, 2, 1))
    return np.column_stack([raw.actions[:, :3] - state[:, :3], turn])


def _pictures(raw: RawEpisode, profile: IngestProfile, kept: BoolArray) -> ImageArray:
    """Return uint8 (T, V, H, W, 3)."""
    views = [_turned(images[kept], profile.flip) for images in raw.images.values()]
    side = profile.image_size
    if side:
        check_size(raw.name, int(kept.sum()) * len(views), side, side)
        views = [np.stack([resize(image, side, side) for image in view]) for view in views]
    sizes = {view.shape[1:3] for view in views}
    if len(sizes) != 1:
        text = ", ".join(f"{c} {i.shape[2]}x{i.shape[1]}" for c, i in raw.images.items())
        raise DataError(
            f"{raw.name}: expected pictures of one size, got {text}; give --image-size, the side "
            "that the served model's preprocessing starts from"
        )
    return np.ascontiguousarray(np.stack(views, axis=1))


def _turned(images: ImageArray, flip: str) -> ImageArray:
    if flip == "none":
        return images
    return images[:, ::-1] if flip == "v" else images[:, ::-1, ::-1]


def _check_lengths(raw: RawEpisode) -> None:
    lengths = {name: len(array) for name, array in raw.images.items()}
    lengths.update(action=len(raw.actions), state=len(raw.state))
    if len(set(lengths.values())) != 1:
        raise DataError(f"{raw.name}: expected arrays of one length, got {lengths}; it was cut off")
    wrong = [
        name
        for name, images in raw.images.items()
        if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8
    ]
    if wrong or not raw.images:
        raise DataError(
            f"{raw.name}: expected uint8 pictures (T, H, W, 3) of {wrong or 'a camera'}"
        )


def _cross_matrices(vectors: FloatArray) -> FloatArray:
    x, y, z = vectors.T
    zero = np.zeros_like(x)
    rows: Sequence[FloatArray] = (zero, -z, y, z, zero, -x, -y, x, zero)
    return np.stack(rows, axis=1).reshape(-1, 3, 3)


def _about(angle: FloatArray, axis: int) -> FloatArray:
    vectors = np.zeros((len(angle), 3))
    vectors[:, axis] = angle
    return rotation_matrices(vectors, "axis_angle")
