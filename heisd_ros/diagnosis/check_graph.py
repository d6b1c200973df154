"""Checks of the ROS graph: robot state, clocks, and who else commands the arm."""

from __future__ import annotations

from heisd_ros.config import HeisdConfig
from heisd_ros.diagnosis.check_camera import check_camera, check_pairs
from heisd_ros.diagnosis.check_topic import base_name, names_of, stamped, wrong_kind
from heisd_ros.diagnosis.facts import GraphFacts, TopicFacts
from heisd_ros.diagnosis.finding import Finding, fail, ok, skipped, warn

OUR_NODES = ("decoder_node", "heisd_node", "servo_adapter_node")
TWIST_KIND = "geometry_msgs/msg/TwistStamped"


def check_graph(facts: GraphFacts, config: HeisdConfig, *, profile: bool) -> list[Finding]:
    """Return findings on the running graph.

    Args:
        facts: What was seen.
        config: Of the nodes that shall run.
        profile: Whether a Fast DDS profile for large pictures is in use.
    """
    cameras = [f"image {camera}" for camera in config.perception.cameras]
    found = [ok("middleware", facts.rmw or "unknown")]
    for camera in cameras:
        found += check_camera(camera, facts, config, profile=profile)
    found += [
        *check_pairs([facts.topics[c] for c in cameras if c in facts.topics], config),
        *check_pose(facts.topics.get("ee_pose"), config),
        *check_joints(facts.topics.get("joint_states"), config),
        _instruction(facts.topics.get("instruction")),
        *(check_output(role, facts.topics.get(role)) for role in ("twist_cmd", "gripper_cmd")),
        *_servo(facts.topics.get("servo twist")),
        check_clock(facts),
        *_statuses(facts),
    ]
    return found


def check_pose(topic: TopicFacts | None, config: HeisdConfig) -> list[Finding]:
    """Return findings on the end-effector pose: one publisher, right frame, fresh stamps."""
    missing = _missing(
        "ee_pose",
        topic,
        "geometry_msgs/msg/PoseStamped",
        "without a pose no workspace limit, no F and no retrieval",
    )
    if missing is not None or topic is None:
        return [missing] if missing else []
    found = [stamped("ee_pose", topic, config.command.image_timeout_s)]
    if topic.values.get("error"):
        found.append(fail("ee_pose", topic.values["error"], "correct the publisher of the pose"))
    if len(topic.publishers) > 1:
        found.append(fail("ee_pose", f"{names_of(topic.publishers)} publish it", "leave one"))
    frame, wanted = topic.frame_id, config.command.frame_id
    if frame != wanted:
        found.append(
            fail(
                "ee_pose frame",
                f"the pose is in {frame or 'no frame'}, commands are in {wanted}",
                "publish the pose in command.frame_id, or set command.frame_id to its frame",
            )
        )
    if topic.hz < config.command.control_hz:
        found.append(
            warn(
                "ee_pose rate",
                f"{topic.hz:.1f} Hz, below command.control_hz {config.command.control_hz:g}",
                "publish the pose at least as often as decisions are made",
            )
        )
    return found


def check_joints(topic: TopicFacts | None, config: HeisdConfig) -> list[Finding]:
    """Return findings on the finger joints."""
    wanted = config.ros.finger_joints
    missing = _missing(
        "joint_states",
        topic,
        "sensor_msgs/msg/JointState",
        "the opening of the gripper is not known",
    )
    if missing is not None or topic is None:
        return [missing] if missing else []
    names = topic.values.get("joints", "").split()
    lost = [name for name in wanted if name not in names]
    if lost:
        return [
            fail(
                "joint_states",
                f"no joint {', '.join(lost)} among {', '.join(names) or 'none'}",
                "set ros.finger_joints to the names of this gripper",
            )
        ]
    return [stamped("joint_states", topic, config.command.image_timeout_s)]


def check_output(role: str, topic: TopicFacts | None) -> Finding:
    """Return whether somebody else commands the arm, and whether anybody listens."""
    if topic is None:
        return skipped(role, "not looked at")
    others = [peer for peer in topic.publishers if base_name(peer.node) not in OUR_NODES]
    ours = [peer for peer in topic.publishers if base_name(peer.node) in OUR_NODES]
    if others or len(ours) > 1:
        return fail(
            role,
            f"{topic.name} has other publishers: {names_of(others or ours)}",
            "stop them: the arm obeys whoever wrote last",
        )
    wrong = [p for p in topic.subscriptions if role != "gripper_cmd" and p.kind != TWIST_KIND]
    if wrong:
        return fail(
            role,
            f"{wrong[0].node} listens for {wrong[0].kind} on {topic.name}",
            f"the arm must take {TWIST_KIND}",
        )
    if not topic.subscriptions:
        return warn(role, f"nobody listens on {topic.name}", "remap it to the arm's command topic")
    return ok(role, f"{topic.name}, heard by {names_of(topic.subscriptions)}")


def check_clock(facts: GraphFacts) -> Finding:
    """Return whether the nodes' clock and the publishers' clock are the same kind."""
    clock = facts.topics.get("/clock")
    sent = clock is not None and bool(clock.publishers)
    if facts.use_sim_time and not sent:
        return fail(
            "clock",
            "use_sim_time without /clock: time stands still",
            "start the simulator or the bag with --clock, or unset use_sim_time",
        )
    if facts.use_sim_time and clock is not None and not clock.received:
        return fail("clock", "/clock has a publisher and does not tick", "start the simulation")
    if sent and not facts.use_sim_time:
        return warn(
            "clock",
            "/clock is published, use_sim_time is off",
            "set use_sim_time on all nodes, or stop the simulator",
        )
    return ok("clock", "simulated, /clock ticks" if facts.use_sim_time else "wall time")


def _servo(topic: TopicFacts | None) -> list[Finding]:
    """Return the same for the input of MoveIt Servo, where there is one."""
    if topic is None or not (topic.publishers or topic.subscriptions):
        return []
    return [check_output("servo twist", topic)]


def _instruction(topic: TopicFacts | None) -> Finding:
    if topic is None or not topic.publishers:
        return skipped("instruction", "nobody publishes one yet; the arm rests until it comes")
    return ok("instruction", f"{topic.name}, from {names_of(topic.publishers)}")


def _statuses(facts: GraphFacts) -> list[Finding]:
    """Return what our running nodes say about themselves."""
    found = []
    for name, (level, text) in sorted(facts.statuses.items()):
        if level == 0:
            found.append(ok(name, text))
        elif level == 1:
            found.append(warn(name, text, "docs/real_arm.md says what each word means"))
        else:
            found.append(fail(name, text, "docs/real_arm.md says what each word means"))
    return found


def _missing(role: str, topic: TopicFacts | None, kind: str, cost: str) -> Finding | None:
    if topic is None or not topic.publishers:
        name = topic.name if topic else role
        return fail(role, f"nobody publishes {name}: {cost}", f"remap a {kind} topic to {role}")
    wrong = wrong_kind(role, topic, kind)
    if wrong is not None:
        return wrong
    if not topic.received:
        return fail(
            role,
            f"{topic.name} has a publisher, nothing arrived in {topic.seconds:.0f} s",
            f"look at {names_of(topic.publishers)}",
        )
    return None
