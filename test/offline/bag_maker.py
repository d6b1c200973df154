"""Bags made with rosbags alone, as our recorder and as foreign ones would make them."""

from __future__ import annotations

import math

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer

from heisd_ros.demonstrations.bag_types import known_types

PERIOD_NS = 50_000_000
START_NS = 61_000_000_000
TYPES = known_types()
TASK = "pick up the bowl"
KINDS = {
    "/third_person/image": "sensor_msgs/msg/Image",
    "/wrist/image": "sensor_msgs/msg/Image",
    "/ee_pose": "geometry_msgs/msg/PoseStamped",
    "/joint_states": "sensor_msgs/msg/JointState",
    "/wrench": "geometry_msgs/msg/WrenchStamped",
    "/instruction": "std_msgs/msg/String",
    "/twist_cmd": "geometry_msgs/msg/TwistStamped",
    "/gripper_cmd": "heisd_ros/msg/GripperCommand",
    "/decode_report": "heisd_ros/msg/DecodeReport",
    "/episode_status": "heisd_ros/msg/EpisodeStatus",
}


def kind(name):
    return TYPES.types[name]


def stamp(ns):
    return kind("builtin_interfaces/msg/Time")(sec=ns // 10**9, nanosec=ns % 10**9)


def header(ns, frame_id="world"):
    return kind("std_msgs/msg/Header")(stamp=stamp(ns), frame_id=frame_id)


def vector(x=0.0, y=0.0, z=0.0):
    return kind("geometry_msgs/msg/Vector3")(x=x, y=y, z=z)


def picture(step, camera, size=24):
    seed = 1000 * step + (camera == "wrist")
    return np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)


def image(ns, step, camera, size=24):
    pixels = picture(step, camera, size)
    return kind("sensor_msgs/msg/Image")(
        header=header(ns, f"{camera}_optical_frame"),
        height=pixels.shape[0],
        width=pixels.shape[1],
        encoding="rgb8",
        is_bigendian=0,
        step=pixels.shape[1] * 3,
        data=pixels.reshape(-1),
    )


def compressed(ns, step, camera, size=24):
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture(step, camera, size)).save(buffer, format="PNG")
    return kind("sensor_msgs/msg/CompressedImage")(
        header=header(ns), format="png", data=np.frombuffer(buffer.getvalue(), dtype=np.uint8)
    )


def position(step):
    return (0.01 * step, 0.0, 0.3 - 0.005 * step)


def pose(ns, step):
    point = kind("geometry_msgs/msg/Point")(*position(step))
    turn = kind("geometry_msgs/msg/Quaternion")(0.0, 0.0, 0.0, 1.0)
    content = kind("geometry_msgs/msg/Pose")(position=point, orientation=turn)
    return kind("geometry_msgs/msg/PoseStamped")(header=header(ns), pose=content)


def wrench(ns, x, y=0.0, z=0.0):
    content = kind("geometry_msgs/msg/Wrench")(force=vector(x, y, z), torque=vector(9.0))
    return kind("geometry_msgs/msg/WrenchStamped")(header=header(ns), wrench=content)


def joints(ns, opening):
    share = np.array([0.04 * opening, 0.04 * opening])
    return kind("sensor_msgs/msg/JointState")(
        header=header(ns),
        name=["panda_finger_joint1", "panda_finger_joint2"],
        position=share,
        velocity=np.zeros(0),
        effort=np.zeros(0),
    )


def twist(ns, speed=0.1):
    content = kind("geometry_msgs/msg/Twist")(linear=vector(speed), angular=vector())
    return kind("geometry_msgs/msg/TwistStamped")(header=header(ns), twist=content)


def gripper(ns, opening):
    return kind("heisd_ros/msg/GripperCommand")(
        header=header(ns), opening=opening, value=opening, convention="open_is_one"
    )


def report(ns, image_ns, step, **changes):
    values = {
        "header": header(ns),
        "image_stamp": stamp(image_ns),
        "instruction": TASK,
        "sequence": step,
        "decided": True,
        "kind": "retrieval" if step % 2 else "ar",
        "skipped": False,
        "accept_length": 5.0 if step % 2 else 1.0,
        "forwards": 2 if step % 2 else 7,
        "nodes": 20 if step % 2 else 0,
        "fused": 0.1 * (step % 10),
        "top_score": 0.9 if step % 2 else math.nan,
        "scores": np.array([0.9, 0.8] if step % 2 else []),
        "spread": 4.5 if step % 2 else math.nan,
        "gripper_consensus": 0.5 if step % 2 else math.nan,
        "tokens": np.arange(31800, 31807, dtype=np.int32) + step,
        "action": np.array([0.1, 0, 0, 0, 0, 0, 1.0]),
        "stage": ["prefill", "total"],
        "stage_ms": np.array([4.0, 9.0]),
        "reason": "",
        "guard": "",
    }
    return kind("heisd_ros/msg/DecodeReport")(**{**values, **changes})


def status(ns, step, *, done=False, success=False):
    return kind("heisd_ros/msg/EpisodeStatus")(
        header=header(ns),
        suite="libero_spatial",
        task=2,
        init=3,
        instruction=TASK,
        step=step,
        success=success,
        done=done,
        reason="success" if success and done else "",
    )


def string(text):
    return kind("std_msgs/msg/String")(data=text)


def episode(steps=8, start_ns=START_NS, *, closes=3, opens=6, compress=False, size=24):
    """Yield (topic, message) of one lockstep episode, in the order of a live run."""
    make, suffix = (compressed, "/compressed") if compress else (image, "")
    for step in range(steps):
        ns = start_ns + step * PERIOD_NS
        opening = 0.0 if closes <= step < opens else 1.0
        yield "/instruction", string(TASK)
        yield "/joint_states", joints(ns, opening)
        yield "/ee_pose", pose(ns, step)
        for camera in ("third_person", "wrist"):
            yield f"/{camera}/image{suffix}", make(ns, step, camera, size)
        sent = ns + 7  # simulated time stands still: stamps differ by nanoseconds
        yield "/twist_cmd", twist(sent)
        yield "/gripper_cmd", gripper(sent, opening)
        yield "/decode_report", report(sent, ns, step)
        yield "/episode_status", status(ns + PERIOD_NS, step + 1)
    end = start_ns + steps * PERIOD_NS
    yield "/episode_status", status(end, steps, done=True, success=True)
    yield (
        "/decode_report",
        report(end + 1, end, steps, reason="episode_end", decided=False, kind=""),
    )


def inputs_only(messages):
    return [
        (topic, message)
        for topic, message in messages
        if topic.split("/")[1]
        in {"instruction", "joint_states", "ee_pose", "third_person", "wrist"}
    ]


def write_bag(folder, messages, *, storage="mcap", compression=None, custom=None, first=0):
    """Write (topic, message) pairs a millisecond of reception apart."""
    plugin = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}[storage]
    writer = Writer(folder, version=9, storage_plugin=plugin)
    for name, text in (custom or {}).items():
        writer.set_custom_data(name, text)
    if compression is not None:
        writer.set_compression(*compression)
    with writer:
        connections = {}
        for number, (topic, message) in enumerate(messages, start=first):
            name = KINDS.get(topic) or message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=TYPES)
            data = TYPES.serialize_cdr(message, name)
            writer.write(connections[topic], 10**18 + number * 10**6, bytes(data))
    return folder
