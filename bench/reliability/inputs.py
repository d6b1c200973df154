"""Broken pictures, poses, joint states and features: the nodes refuse them by name and live."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Iterator

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from heisd_ros.msg import VisualEmbedding
from ros_fakes import wait_until
from sensor_msgs.msg import Image, JointState

from bench.reliability.outcome import Figure, Outcome, Row, Settings, none_of
from bench.reliability.world import (
    CAMERAS,
    IMAGE_TIMEOUT_S,
    PATIENCE_S,
    Operator,
    World,
    need,
    pause,
)
from heisd_ros.nodes.conversions import to_stamp

ENCODINGS = ("rgb8", "bgr8", "rgba8", "mono8", "yuv422_yuy2", "bayer_rggb8", "32FC1", "jpeg", "")
GEOMETRIES = (
    # height, width, step, bytes
    (64, 64, 192, 10),
    (64, 64, 1, 12288),
    (64, 64, 0, 0),
    (0, 0, 0, 0),
    (2**31, 2**31, 2**31, 64),
    (1, 2**31, 4, 64),
)
ODD = (math.nan, math.inf, -math.inf)
LEVELS = {"frames", "sets", "encoded"}
MATCHED_S = 2.0
"""After we have found a node, for it to find us: best effort loses what comes before."""
COUNTED_S = 20.0
"""Longest wait for counters, which are published once a second."""


def pictures(settings: Settings) -> Outcome:
    """Pictures of impossible geometry and encoding, each followed by counted refusals."""
    with World(settings.logs, cameras=True) as world:
        robot = world.operator
        world.start_all("perception_node", "decoder_node")
        pause(MATCHED_S)
        sent = 0
        for encoding, (height, width, step, size) in itertools.product(ENCODINGS, GEOMETRIES):
            message = Image(height=height, width=width, encoding=encoding, step=step)
            message.data = array("B", bytes(size))
            message.header.stamp = to_stamp(robot.time_ns())
            robot.inputs[CAMERAS[0]].publish(message)
            sent += 1
            pause(0.03)  # best effort: not faster than they are read
        wait_until(lambda: sum(_refusals(robot).values()) >= sent, COUNTED_S)
        told = _refusals(robot)
        robot.order()
        end = robot.stream(10.0)
        robot.wait_for_motion(0.0)
        end()
        deaths = world.deaths()
    refused = sum(told.values())
    return Outcome(
        f"{sent} pictures",
        (
            Figure("refused with a reason", refused, low=sent, high=sent),
            Figure("kinds of reason", len(told)),
            none_of("processes that ended", deaths),
        ),
        "Then good pictures moved the arm. Reasons: " + ", ".join(sorted(told)) + ".",
    )


def _refusals(robot: Operator) -> dict[str, int]:
    return _counted(robot, "perception_node", exclude=LEVELS)


def messages(settings: Settings) -> Outcome:
    """Poses, joint states, features and stamps that must not move anything."""
    with World(settings.logs) as world:
        robot = world.operator
        world.start_all("decoder_node")
        robot.order()
        sent = 0
        for spoil in _spoils():
            _show_spoilt(robot, spoil)
            sent += 1
        pause(1.5)
        moved = len(robot.moving())
        told = _counted(robot, "decoder_node", exclude=set())
        since = robot.now()
        end = robot.stream(20.0)
        need(wait_until(lambda: robot.moving(since), PATIENCE_S), "motion from good inputs")
        end()
        deaths = world.deaths()
    return Outcome(
        f"{sent} inputs",
        (
            none_of("commands that moved", moved),
            Figure("counted by reason", sum(told.values())),
            none_of("processes that ended", deaths),
        ),
        "Then good inputs moved the arm. Reasons counted: " + ", ".join(sorted(told)) + ".",
    )


Spoil = Callable[[dict[str, object]], None]


def _show_spoilt(robot: Operator, spoil: Spoil) -> None:
    """Publish what belongs to one moment, one message of it spoilt."""
    messages: dict[str, object] = {}
    publishers = robot.inputs
    kept = {name: publishers[name] for name in ("ee_pose", "joint_states", "embedding")}
    for name in kept:
        publishers[name] = _Catcher(messages, name)
    try:
        robot.publish_picture()
    finally:
        publishers.update(kept)
    spoil(messages)
    for name, publisher in kept.items():
        publisher.publish(messages[name])
    # Longer than a good part of this moment can serve the next one, which has another part spoilt.
    pause(IMAGE_TIMEOUT_S + 0.1)


class _Catcher:
    """Keeps a message instead of publishing it."""

    def __init__(self, messages: dict[str, object], name: str) -> None:
        self._messages, self._name = messages, name

    def publish(self, message: object) -> None:
        """Keep it."""
        self._messages[self._name] = message


def _spoils() -> Iterator[Spoil]:
    for axis, value in itertools.product("xyz", ODD):
        yield lambda m, a=axis, v=value: setattr(_pose(m).pose.position, a, v)
    for value in ODD:
        yield lambda m, v=value: setattr(_pose(m).pose.orientation, "w", v)
    yield lambda m: setattr(_pose(m).pose.orientation, "w", 0.0)
    yield lambda m: setattr(_pose(m).header, "frame_id", "camera")
    for number, value in itertools.product(range(2), ODD):
        yield lambda m, n=number, v=value: _joints(m).position.__setitem__(n, v)
    yield lambda m: setattr(_joints(m), "position", [0.0])
    yield lambda m: setattr(_features(m), "patches", 7)
    yield lambda m: setattr(_features(m), "channels", 2**31)
    yield lambda m: setattr(_features(m), "data", [])
    for value in (math.nan, math.inf):
        yield lambda m, v=value: setattr(_features(m), "embedding", [v])
        yield lambda m, v=value: setattr(_features(m), "data", [1.0, v])
    for age_s in (0.6, 1.0, 10.0, 1e6, -1.0, -10.0):
        yield lambda m, s=age_s: _restamp(m, s)


def _restamp(messages: dict[str, object], age_s: float) -> None:
    features = _features(messages)
    stamp = features.header.stamp
    stamp_ns = stamp.sec * 10**9 + stamp.nanosec - round(age_s * 1e9)
    for message in messages.values():
        message.header.stamp = to_stamp(stamp_ns)


def _pose(messages: dict[str, object]) -> PoseStamped:
    return messages["ee_pose"]


def _joints(messages: dict[str, object]) -> JointState:
    return messages["joint_states"]


def _features(messages: dict[str, object]) -> VisualEmbedding:
    return messages["embedding"]


def _counted(robot: Operator, node: str, *, exclude: set[str]) -> dict[str, int]:
    """Return the newest counters of a node's diagnostics, by reason."""
    newest: dict[str, int] = {}
    arrays: list[DiagnosticArray] = [entry for _, _, entry in list(robot.statuses)]
    for status in (status for entry in arrays for status in entry.status):
        if status.name.startswith(node):
            values = {value.key: value.value for value in status.values}
            newest = {k: int(v) for k, v in values.items() if v.isdigit() and int(v)}
    return {name: count for name, count in newest.items() if name not in exclude}


ROWS = (
    Row(
        "bad_pictures",
        "Pictures of impossible size, step and encoding",
        "each refused with a reason, no process ends",
        pictures,
    ),
    Row(
        "bad_messages",
        "Poses, joints, features and stamps that cannot be right",
        "nothing moves, no process ends",
        messages,
    ),
)
