"""Messages <-> types: units, frames and array layouts stand here, for records in `records`."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped, TwistStamped, WrenchStamped
from numpy.typing import NDArray
from sensor_msgs.msg import CompressedImage, Image, JointState

from heisd_ros.action_space.gripper import to_convention
from heisd_ros.config import CommandConfig
from heisd_ros.errors import DataError
from heisd_ros.msg import GripperCommand, VisualEmbedding
from heisd_ros.msg import TrajectoryMetric as TrajectoryMetricMsg
from heisd_ros.nodes.bridge import decode_with_cv_bridge
from heisd_ros.perception.images import decode_compressed, decode_image
from heisd_ros.types import (
    EndEffectorCommand,
    FloatArray,
    Frame,
    Proprioception,
    TrajectoryMetric,
    VisualFeatures,
)

SECOND_NS = 1_000_000_000


def to_ns(stamp: Time) -> int:
    """Return a message stamp in nanoseconds."""
    return int(stamp.sec) * SECOND_NS + int(stamp.nanosec)


def to_stamp(stamp_ns: int) -> Time:
    """Return nanoseconds as a message stamp."""
    return Time(sec=stamp_ns // SECOND_NS, nanosec=stamp_ns % SECOND_NS)


def to_array(code: str, values: Any) -> array[Any]:  # noqa: ANN401  (any numpy array)
    """Return values as the array.array that a message field takes without looking at each one.

    Args:
        code: Type code: `B` uint8, `f` float32, `d` float64.
        values: Anything numpy can read.
    """
    result = array(code)
    contiguous: NDArray[Any] = np.ascontiguousarray(values, dtype=np.dtype(code))
    result.frombytes(contiguous.reshape(-1).view(np.uint8).data)
    return result


def image_to_frame(message: Image, camera: str) -> Frame:
    """Return a picture message as an RGB frame.

    Raises:
        ImageError: If the encoding is not a supported colour encoding or the data is too short.
    """
    picture = decode_with_cv_bridge(message)
    if picture is None:
        picture = decode_image(
            message.height,
            message.width,
            message.encoding,
            message.step,
            message.data,
            bool(message.is_bigendian),
        )
    return Frame(picture, camera, to_ns(message.header.stamp))


def compressed_to_frame(message: CompressedImage, camera: str) -> Frame:
    """Return a compressed picture message as an RGB frame.

    Raises:
        ImageError: If the data is not a JPEG, PNG or WebP picture.
    """
    return Frame(decode_compressed(message.data), camera, to_ns(message.header.stamp))


def frame_to_image(frame: Frame, frame_id: str) -> Image:
    """Return a frame as an rgb8 picture message."""
    height, width, channels = frame.image.shape
    message = Image(height=height, width=width, encoding="rgb8", step=width * channels)
    message.header.stamp = to_stamp(frame.stamp_ns)
    message.header.frame_id = frame_id
    message.data = to_array("B", frame.image)
    return message


def pose_to_proprioception(message: PoseStamped) -> Proprioception:
    """Return a pose message; the gripper opening is nan, joint_states has it.

    Raises:
        DataError: If a number is not finite or the quaternion has no length.
    """
    p, q = message.pose.position, message.pose.orientation
    position = np.array([p.x, p.y, p.z])
    orientation = np.array([q.x, q.y, q.z, q.w])
    length = float(np.linalg.norm(orientation))
    if not (np.isfinite(position).all() and math.isfinite(length) and length > 0.0):
        raise DataError(
            f"a pose needs finite numbers and a quaternion with length, got {position.tolist()} "
            f"and {orientation.tolist()}; look at the publisher of the pose"
        )
    return Proprioception(
        position,
        orientation / length,
        math.nan,
        to_ns(message.header.stamp),
        message.header.frame_id,
    )


def position_of(message: PoseStamped) -> FloatArray:
    """Return the position of a pose message (3,), metres; it may hold nan."""
    p = message.pose.position
    return np.array([p.x, p.y, p.z])


def wrench_to_force(message: WrenchStamped) -> float:
    """Return the norm of the force, newtons.

    Raises:
        DataError: If it is not finite.
    """
    f = message.wrench.force
    force = math.hypot(f.x, f.y, f.z)
    if not math.isfinite(force):
        raise DataError(
            f"a wrench needs a finite force, got {[f.x, f.y, f.z]} N; look at the publisher of "
            "the wrench"
        )
    return force


def proprioception_to_pose(state: Proprioception) -> PoseStamped:
    """Return a measured state as a pose message."""
    message = PoseStamped()
    message.header.stamp = to_stamp(state.stamp_ns)
    message.header.frame_id = state.frame_id
    p, q = message.pose.position, message.pose.orientation
    p.x, p.y, p.z = map(float, state.position)
    q.x, q.y, q.z, q.w = map(float, state.orientation)
    return message


def joints_to_opening(
    message: JointState, fingers: Sequence[str], max_opening_m: float
) -> float | None:
    """Return the gripper opening [0, 1] in a joint message; None if it has no finger joint.

    Args:
        message: Joint states; positions in metres for the finger joints.
        fingers: Names of the finger joints, whose positions add up to the finger distance.
        max_opening_m: Finger distance of an open gripper, metres.

    Raises:
        DataError: If some finger joints are missing or a position is missing or not finite.
    """
    positions = dict(zip(message.name, message.position, strict=False))
    present = [name for name in fingers if name in message.name]
    if not present:
        return None
    distance = sum(positions.get(name, math.nan) for name in fingers)
    if not math.isfinite(distance):
        raise DataError(
            f"joint_states must hold finite positions of {', '.join(fingers)}; "
            f"got {dict(positions)}; set ros.finger_joints to the names of this gripper"
        )
    return float(min(max(distance / max_opening_m, 0.0), 1.0))


def proprioception_to_joints(
    state: Proprioception, fingers: Sequence[str], max_opening_m: float
) -> JointState:
    """Return the finger joints of a measured state, each with its share of the distance."""
    message = JointState(name=list(fingers))
    message.header.stamp = to_stamp(state.stamp_ns)
    message.position = [state.gripper_opening * max_opening_m / len(fingers)] * len(fingers)
    return message


def features_to_embedding(
    features: VisualFeatures, *, with_patches: bool, cameras: Sequence[str], encoder: str
) -> VisualEmbedding:
    """Return features as a message.

    Args:
        features: Of one set of pictures.
        with_patches: False if the patches reach the decoder inside the process.
        cameras: Names in view order.
        encoder: Fingerprint of the encoder.
    """
    message = VisualEmbedding(encoder=encoder, cameras=list(cameras))
    message.header.stamp = to_stamp(features.stamp_ns)
    message.embedding = to_array("f", features.embedding)
    if with_patches:
        patches = _on_host(features.patches)
        message.views, message.patches, message.channels = patches.shape
        message.data = to_array("f", patches)
    return message


def embedding_to_features(message: VisualEmbedding) -> VisualFeatures:
    """Return the features of a message that carries patches.

    Raises:
        DataError: If the patches are missing, their number is not views x patches x channels, or a
            number is not finite: a model would answer it with some action.
    """
    shape = (message.views, message.patches, message.channels)
    data = np.frombuffer(message.data, dtype=np.float32)
    if data.size == 0 or data.size != math.prod(shape):
        raise DataError(
            f"embedding must carry {shape} patch numbers, got {data.size}; a composed encoder "
            "keeps them in its own process"
        )
    embedding = np.frombuffer(message.embedding, dtype=np.float32)
    if not (np.isfinite(data).all() and np.isfinite(embedding).all()):
        raise DataError(
            "embedding must hold finite numbers, got NaN or infinity; look at the pictures and "
            "the checkpoint of the perception node"
        )
    return VisualFeatures(
        data.reshape(shape),
        embedding,
        to_ns(message.header.stamp),
    )


def arrival_ns(message: VisualEmbedding, received_ns: int) -> int:
    """Return when the pictures of an embedding arrived: before they were encoded.

    Args:
        message: Just received.
        received_ns: When, on a clock that never jumps, nanoseconds.
    """
    encode_ms = message.encode_ms if math.isfinite(message.encode_ms) else 0.0
    return received_ns - round(max(encode_ms, 0.0) * 1e6)


def metric_to_message(metric: TrajectoryMetric, frame_id: str, reason: str) -> TrajectoryMetricMsg:
    """Return a trajectory metric as a message."""
    message = TrajectoryMetricMsg(
        curvature_radius=metric.curvature_radius,
        displacement=metric.displacement,
        fused=metric.fused,
        straightness=metric.straightness,
        speed=metric.speed,
        samples=metric.samples,
        reason=reason,
    )
    message.header.stamp = to_stamp(metric.stamp_ns)
    message.header.frame_id = frame_id
    return message


def message_to_metric(message: TrajectoryMetricMsg) -> TrajectoryMetric:
    """Return the trajectory metric in a message."""
    return TrajectoryMetric(
        message.curvature_radius,
        message.displacement,
        message.fused,
        message.straightness,
        message.speed,
        message.samples,
        to_ns(message.header.stamp),
    )


def command_to_twist(command: EndEffectorCommand) -> TwistStamped:
    """Return a command's velocities: m/s and rad/s in its frame."""
    message = TwistStamped()
    message.header.stamp = to_stamp(command.stamp_ns)
    message.header.frame_id = command.frame_id
    linear, angular = message.twist.linear, message.twist.angular
    linear.x, linear.y, linear.z = map(float, command.linear)
    angular.x, angular.y, angular.z = map(float, command.angular)
    return message


def command_to_gripper(command: EndEffectorCommand, config: CommandConfig) -> GripperCommand:
    """Return a command's opening, also in the configured convention."""
    value = to_convention(
        command.gripper, config.gripper_convention, max_opening_m=config.gripper_max_m
    )
    message = GripperCommand(
        opening=command.gripper, value=value, convention=config.gripper_convention
    )
    message.header.stamp = to_stamp(command.stamp_ns)
    message.header.frame_id = command.frame_id
    return message


def twist_to_command(message: TwistStamped) -> EndEffectorCommand:
    """Return the velocities of a twist message; it says nothing about the gripper, which is nan."""
    linear, angular = message.twist.linear, message.twist.angular
    return EndEffectorCommand(
        np.array([linear.x, linear.y, linear.z]),
        np.array([angular.x, angular.y, angular.z]),
        math.nan,
        message.header.frame_id,
        to_ns(message.header.stamp),
    )


def to_wire_command(twist: TwistStamped, gripper: GripperCommand) -> EndEffectorCommand:
    """Return what a twist and a gripper message command together."""
    return dataclasses.replace(twist_to_command(twist), gripper=gripper.opening)


def _on_host(patches: Any) -> NDArray[np.float32]:  # noqa: ANN401  (array or device tensor)
    host = patches.detach().float().cpu() if hasattr(patches, "detach") else patches
    return np.asarray(host, dtype=np.float32)
