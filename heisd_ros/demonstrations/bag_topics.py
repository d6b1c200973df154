"""Which topic of a bag is what: by our names, by type, or as a mapping file says."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from heisd_ros.errors import ConfigError, DataError

RAW_IMAGE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
IMAGES = (RAW_IMAGE, COMPRESSED_IMAGE)
UNSTAMPED_TWIST = "geometry_msgs/msg/Twist"
"""Taken for the commands of a foreign bag, by its time of reception."""
ROLES: dict[str, tuple[str, str]] = {
    "pose": ("ee_pose", "geometry_msgs/msg/PoseStamped"),
    "joint_states": ("joint_states", "sensor_msgs/msg/JointState"),
    "wrench": ("wrench", "geometry_msgs/msg/WrenchStamped"),
    "instruction": ("instruction", "std_msgs/msg/String"),
    "twist": ("twist_cmd", "geometry_msgs/msg/TwistStamped"),
    "gripper": ("gripper_cmd", "heisd_ros/msg/GripperCommand"),
    "report": ("decode_report", "heisd_ros/msg/DecodeReport"),
    "status": ("episode_status", "heisd_ros/msg/EpisodeStatus"),
}
"""Role -> last part of our topic's name, and its type."""
BY_TYPE = frozenset({"pose", "joint_states", "gripper", "report", "status"})
"""Roles that the only topic of their type fills, whatever its name; a String may be anything."""


@dataclass(frozen=True, slots=True)
class BagTopics:
    """The topics of one bag by what they carry.

    Attributes:
        cameras: Camera name -> image topic, in view order.
        roles: Key of `ROLES` -> topic; what the bag does not hold is left out.
    """

    cameras: Mapping[str, str]
    roles: Mapping[str, str] = field(default_factory=dict)


def load_mapping(path: str | Path) -> dict[str, Any]:
    """Read a mapping file: `cameras: {<name>: <topic>}` and `<role>: <topic>`.

    Raises:
        ConfigError: If the file is no such mapping; an unknown role names the nearest known one.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"topic mapping {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"topic mapping {path} must hold `role: topic` lines, got {content!r}")
    for role, topic in content.items():
        if role not in ROLES and role != "cameras":
            near = difflib.get_close_matches(str(role), [*ROLES, "cameras"], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"topic mapping {path}: unknown role {role!r}{hint}")
        named = topic.values() if role == "cameras" and isinstance(topic, dict) else [topic]
        if not all(isinstance(name, str) and name for name in named):
            raise ConfigError(f"topic mapping {path}: {role} must name topics, got {topic!r}")
    return content


def find_topics(
    topics: Mapping[str, str],
    cameras: Sequence[str],
    mapping: Mapping[str, Any] | None = None,
    *,
    source: str = "bag",
) -> BagTopics:
    """Return what the topics of a bag carry.

    Args:
        topics: Name -> type, of the bag.
        cameras: Names of the wanted cameras in view order.
        mapping: From `load_mapping`; wins over names and types.
        source: The bag's name in error messages.

    Raises:
        DataError: If a camera has no image topic, or a mapped topic is not in the bag or is of
            another type.
    """
    mapping = mapping or {}
    given = mapping.get("cameras", {})
    _check_mapping(topics, given, mapping, source)
    found = {camera: given.get(camera) or _image_topic(topics, camera) for camera in cameras}
    missing = [camera for camera, topic in found.items() if not topic]
    if missing:
        images = [name for name, kind in sorted(topics.items()) if kind in IMAGES]
        raise DataError(
            f"{source}: no image topic for camera {', '.join(missing)}; its image topics are "
            f"{', '.join(images) or 'none'}; map them with --topics (cameras: {{name: topic}})"
        )
    roles = {role: mapping.get(role) or _role_topic(topics, role) for role in ROLES}
    return BagTopics(
        {camera: topic for camera, topic in found.items() if topic},
        {role: topic for role, topic in roles.items() if topic},
    )


def _check_mapping(
    topics: Mapping[str, str], cameras: Mapping[str, str], mapping: Mapping[str, Any], source: str
) -> None:
    named: list[tuple[str, tuple[str, ...]]] = [(topic, IMAGES) for topic in cameras.values()]
    named += [(mapping[role], _kinds_of(role)) for role in ROLES if role in mapping]
    for topic, kinds in named:
        if topic not in topics:
            raise DataError(
                f"{source}: the mapping names topic {topic}, which is not in it; it holds "
                f"{', '.join(sorted(topics))}"
            )
        if topics[topic] not in kinds:
            raise DataError(
                f"{source}: the mapping names topic {topic} of type {topics[topic]}, expected "
                f"{' or '.join(kinds)}; name a topic of that type"
            )


def _kinds_of(role: str) -> tuple[str, ...]:
    _, kind = ROLES[role]
    return (kind, UNSTAMPED_TWIST) if role == "twist" else (kind,)


def _image_topic(topics: Mapping[str, str], camera: str) -> str | None:
    """Return the image topic that has the camera's name as a part; raw before compressed."""
    for kind in IMAGES:
        named = [t for t in sorted(topics) if topics[t] == kind and camera in t.split("/")]
        if named:
            return min(named, key=len)
    return None


def _role_topic(topics: Mapping[str, str], role: str) -> str | None:
    name, kind = ROLES[role]
    of_kind = [topic for topic in sorted(topics) if topics[topic] == kind]
    named = [topic for topic in of_kind if topic.split("/")[-1] == name]
    if named:
        return min(named, key=len)
    return of_kind[0] if role in BY_TYPE and len(of_kind) == 1 else None
