"""Checks of the cameras: publisher, type, QoS, arrival, encoding, rate, stamps, pairing."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from statistics import median

from heisd_ros.config import HeisdConfig
from heisd_ros.diagnosis.check_topic import age_ms, names_of, stamp_fault, wrong_kind
from heisd_ros.diagnosis.facts import BEST_EFFORT, RELIABLE, GraphFacts, PeerFacts, TopicFacts
from heisd_ros.diagnosis.finding import Finding, fail, ok, warn

FRAGMENT_LIMIT_BYTES = 512 * 1024
"""Best-effort messages above it are lost between processes with the defaults of Fast DDS."""
PROFILE_HELP = (
    "export FASTRTPS_DEFAULT_PROFILES_FILE=<share>/config/fastdds_large_images.xml in every "
    "process (FASTDDS_DEFAULT_PROFILES_FILE since Kilted), or use compressed pictures"
)


def check_camera(
    role: str, facts: GraphFacts, config: HeisdConfig, *, profile: bool
) -> list[Finding]:
    """Return findings on one camera: publisher, type, QoS, arrival, encoding, rate, stamps."""
    topic = facts.topics.get(role)
    if topic is None or not topic.publishers:
        return [_no_camera(role, topic, facts.image_topics)]
    wrong = wrong_kind(role, topic, _image_kind(config))
    if wrong is not None:
        return [wrong]
    if incompatible(topic.publishers, config.ros.camera_reliability):
        return [
            fail(
                role,
                f"{topic.name} is sent best effort, ros.camera_reliability asks for reliable",
                "set ros.camera_reliability to best_effort, which hears every camera",
            )
        ]
    if not topic.received:
        return [_silent_camera(role, topic, profile=profile)]
    return [_picture(role, topic, config), *_large(role, topic, config, profile=profile)]


def incompatible(publishers: Sequence[PeerFacts], asked: str) -> bool:
    """Return whether a subscription of this reliability hears none of the publishers."""
    return asked == RELIABLE and all(peer.reliability == BEST_EFFORT for peer in publishers)


def _no_camera(role: str, topic: TopicFacts | None, known: Sequence[str]) -> Finding:
    name = topic.name if topic else role
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    hint = f"-r {name.lstrip('/')}:={near[0]}" if near else "start the camera driver"
    seen = f"; pictures are on {', '.join(known)}" if known else "; no topic carries pictures"
    return fail(role, f"nobody publishes {name}{seen}", f"remap it: {hint}" if near else hint)


def _image_kind(config: HeisdConfig) -> str:
    raw = config.ros.image_transport == "raw"
    return "sensor_msgs/msg/Image" if raw else "sensor_msgs/msg/CompressedImage"


def _silent_camera(role: str, topic: TopicFacts, *, profile: bool) -> Finding:
    text = f"{topic.name} has a publisher, nothing arrived in {topic.seconds:.0f} s"
    lossy = all(peer.reliability == BEST_EFFORT for peer in topic.publishers)
    if lossy and not profile:
        return fail(role, f"{text}; large best-effort pictures are lost like this", PROFILE_HELP)
    return fail(role, text, f"look whether {names_of(topic.publishers)} really sends pictures")


def _picture(role: str, topic: TopicFacts, config: HeisdConfig) -> Finding:
    values = topic.values
    if values.get("error"):
        return fail(role, f"{topic.name}: {values['error']}", "take the camera's colour topic")
    late = stamp_fault(topic, config.command.image_timeout_s)
    if late is not None:
        return fail(role, f"{topic.name}: {late[0]}", late[1])
    look = f"{values.get('width')}x{values.get('height')} {values.get('encoding')}"
    text = f"{topic.name}: {look}, {topic.hz:.1f} Hz, {age_ms(topic):.0f} ms old"
    if topic.hz < config.command.control_hz:
        return warn(
            role,
            f"{text}; slower than command.control_hz {config.command.control_hz:g}",
            "raise the camera's rate: every decision needs a new picture",
        )
    return ok(role, text)


def _large(role: str, topic: TopicFacts, config: HeisdConfig, *, profile: bool) -> list[Finding]:
    size = int(topic.values.get("bytes", "0"))
    lossy = config.ros.camera_reliability == BEST_EFFORT
    if size <= FRAGMENT_LIMIT_BYTES or profile or not lossy:
        return []
    text = f"pictures of {size // 1024} KiB arrive best effort without a profile for them"
    return [warn(f"{role} size", text, PROFILE_HELP)]


def check_pairs(cameras: Sequence[TopicFacts], config: HeisdConfig) -> list[Finding]:
    """Return whether the pictures of all cameras can be put together."""
    seen = [topic for topic in cameras if topic.stamps_ns]
    if len(seen) < 2 or len(seen) < len(config.perception.cameras):
        return []
    first = seen[0].stamps_ns
    gaps = [
        median(min(abs(stamp - other) for other in topic.stamps_ns) for stamp in first) * 1e-9
        for topic in seen[1:]
    ]
    tolerance = config.perception.pairing_tolerance_s
    text = f"stamps {max(gaps) * 1e3:.0f} ms apart, tolerance {tolerance * 1e3:.0f} ms"
    if max(gaps) > tolerance:
        return [
            fail(
                "camera pairs",
                text,
                "trigger the cameras together, or raise perception.pairing_tolerance_s",
            )
        ]
    return [ok("camera pairs", text)]
