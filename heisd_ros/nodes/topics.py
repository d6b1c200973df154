"""Names, types and purposes of all topics and services; relative names, so that remapping works.

The nodes use these names and `docs/ros_interface.md` is written from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDING = "embedding"
TRAJECTORY_METRIC = "trajectory_metric"
DECODE_REPORT = "decode_report"
TWIST = "twist_cmd"
GRIPPER = "gripper_cmd"
POSE = "ee_pose"
JOINT_STATES = "joint_states"
WRENCH = "wrench"
INSTRUCTION = "instruction"
EPISODE_STATUS = "episode_status"
DIAGNOSTICS = "/diagnostics"
CLOCK = "/clock"
MARKERS = "~/markers"
ANNOTATED_IMAGE = "~/image"
STOP = "~/stop"
START = "~/start"
REPORT_SUCCESS = "~/report_success"
EXECUTE_TASK = "execute_task"
ESTOP = "estop"
DEADMAN = "deadman"
ARM = "~/arm"
DISARM = "~/disarm"
WANTED = "wanted_twist"
SERVO_TWIST = "servo_node/delta_twist_cmds"
SERVO_STATUS = "servo_node/status"
"""With the default of `servo.node`."""


def image_topic(camera: str, transport: str = "raw") -> str:
    """Return the topic of a camera: `<camera>/image`, or `<camera>/image/compressed`."""
    return f"{camera}/image" if transport == "raw" else f"{camera}/image/{transport}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the interface table.

    Attributes:
        node: Name of the node.
        direction: `in`, `out` or `service`.
        name: Relative name; `<camera>` stands for each configured camera.
        kind: Message or service type.
        help: Content, unit and frame in one sentence.
    """

    node: str
    direction: str
    name: str
    kind: str
    help: str


_IMAGE = "sensor_msgs/msg/Image"
_POSE = "geometry_msgs/msg/PoseStamped"
_JOINTS = "sensor_msgs/msg/JointState"
_WRENCH = "geometry_msgs/msg/WrenchStamped"
_TWIST = "geometry_msgs/msg/TwistStamped"
_BOOL = "std_msgs/msg/Bool"
_TEXT = "std_msgs/msg/String"
_EMBEDDING = "heisd_ros/msg/VisualEmbedding"
_METRIC = "heisd_ros/msg/TrajectoryMetric"
_REPORT = "heisd_ros/msg/DecodeReport"
_GRIPPER = "heisd_ros/msg/GripperCommand"
_STATUS = "heisd_ros/msg/EpisodeStatus"
_DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"
_CLOCK = "rosgraph_msgs/msg/Clock"
_SERVO_STATUS = "moveit_msgs/msg/ServoStatus"
_MARKERS = "visualization_msgs/msg/MarkerArray"
_TRIGGER = "std_srvs/srv/Trigger"
_SET_BOOL = "std_srvs/srv/SetBool"
_TASK = "heisd_ros/action/ExecuteTask"

ENDPOINTS = (
    Endpoint(
        "perception_node",
        "in",
        "<camera>/image",
        _IMAGE,
        "Picture; `<camera>/image/compressed` if `ros.image_transport` is `compressed`.",
    ),
    Endpoint("perception_node", "out", EMBEDDING, _EMBEDDING, "Features of one set of pictures."),
    Endpoint("perception_node", "out", DIAGNOSTICS, _DIAGNOSTICS, "State, frames and drops, 1 Hz."),
    Endpoint("trajectory_node", "in", POSE, _POSE, "End-effector pose, m, in its header's frame."),
    Endpoint("trajectory_node", "in", EPISODE_STATUS, _STATUS, "A finished episode empties it."),
    Endpoint("trajectory_node", "out", TRAJECTORY_METRIC, _METRIC, "R, D and F, one per pose."),
    Endpoint("trajectory_node", "out", DIAGNOSTICS, _DIAGNOSTICS, "State and dropped poses, 1 Hz."),
    Endpoint("decoder_node", "in", INSTRUCTION, _TEXT, "The task in words; empty text stops."),
    Endpoint(
        "decoder_node", "in", EMBEDDING, _EMBEDDING, "One decision per message, newest first."
    ),
    Endpoint("decoder_node", "in", TRAJECTORY_METRIC, _METRIC, "The hybrid boundary."),
    Endpoint("decoder_node", "in", POSE, _POSE, "End-effector pose, m, in its header's frame."),
    Endpoint(
        "decoder_node", "in", JOINT_STATES, _JOINTS, "Finger joints, m (`ros.finger_joints`)."
    ),
    Endpoint(
        "decoder_node", "in", WRENCH, _WRENCH, "Force, N; heard if `verify.tighten_max_force` > 0."
    ),
    Endpoint("decoder_node", "in", EPISODE_STATUS, _STATUS, "Success closes the feedback loop."),
    Endpoint("decoder_node", "out", TWIST, _TWIST, "m/s and rad/s in `command.frame_id`."),
    Endpoint("decoder_node", "out", GRIPPER, _GRIPPER, "Opening [0, 1] and configured value."),
    Endpoint("decoder_node", "out", DECODE_REPORT, _REPORT, "One per decision, same stamp."),
    Endpoint("decoder_node", "out", DIAGNOSTICS, _DIAGNOSTICS, "State and counted reasons, 1 Hz."),
    Endpoint("decoder_node", "out", WANTED, _TWIST, "Each decision as it would move the arm."),
    Endpoint(
        "decoder_node", "in", ESTOP, _BOOL, "True disarms, whoever says it; false does not arm."
    ),
    Endpoint("decoder_node", "in", DEADMAN, _BOOL, "Held; asked for with `arming.deadman`."),
    Endpoint("decoder_node", "service", STOP, _TRIGGER, "Zero commands until started again."),
    Endpoint("decoder_node", "service", START, _TRIGGER, "Decide again after a stop."),
    Endpoint("decoder_node", "service", ARM, _TRIGGER, "End the dry run: decisions move the arm."),
    Endpoint("decoder_node", "service", DISARM, _TRIGGER, "Begin a dry run: nothing moves."),
    Endpoint("decoder_node", "service", REPORT_SUCCESS, _SET_BOOL, "A person judges the episode."),
    Endpoint("decoder_node", "action", EXECUTE_TASK, _TASK, "Instruction to success or reason."),
    Endpoint("servo_adapter_node", "in", TWIST, _TWIST, "What the decoder sends."),
    Endpoint(
        "servo_adapter_node", "in", SERVO_STATUS, _SERVO_STATUS, "Status, 1 Hz in diagnostics."
    ),
    Endpoint("servo_adapter_node", "out", SERVO_TWIST, _TWIST, "In the units of `servo.units`."),
    Endpoint("servo_adapter_node", "out", DIAGNOSTICS, _DIAGNOSTICS, "Servo's state, 1 Hz."),
    Endpoint("heisd_node", "out", DIAGNOSTICS, _DIAGNOSTICS, "States of the composed nodes, 1 Hz."),
    Endpoint("simulation_node", "in", TWIST, _TWIST, "What moves the simulated arm."),
    Endpoint("simulation_node", "in", GRIPPER, _GRIPPER, "What moves the simulated fingers."),
    Endpoint("simulation_node", "in", DECODE_REPORT, _REPORT, "Lockstep: the decision is made."),
    Endpoint("simulation_node", "out", "<camera>/image", _IMAGE, "Rendered picture, rgb8."),
    Endpoint("simulation_node", "out", POSE, _POSE, "End-effector pose, m, world frame."),
    Endpoint("simulation_node", "out", JOINT_STATES, _JOINTS, "Finger joints, m."),
    Endpoint("simulation_node", "out", INSTRUCTION, _TEXT, "The task in words."),
    Endpoint("simulation_node", "out", EPISODE_STATUS, _STATUS, "Where the episode stands."),
    Endpoint("simulation_node", "out", CLOCK, _CLOCK, "Simulated time."),
    Endpoint(
        "visualiser_node",
        "in",
        "<camera>/image",
        _IMAGE,
        "First camera; converted only while somebody looks.",
    ),
    Endpoint("visualiser_node", "in", POSE, _POSE, "Where the arm is."),
    Endpoint("visualiser_node", "in", DECODE_REPORT, _REPORT, "Mode of the last decision."),
    Endpoint("visualiser_node", "in", EMBEDDING, _EMBEDDING, "Finds the candidates in the store."),
    Endpoint("visualiser_node", "in", EPISODE_STATUS, _STATUS, "A finished episode empties it."),
    Endpoint(
        "visualiser_node",
        "out",
        MARKERS,
        _MARKERS,
        "Way of the arm by mode, retrieved candidates; in the frame of the pose.",
    ),
    Endpoint("visualiser_node", "out", ANNOTATED_IMAGE, _IMAGE, "Picture with mode, F and times."),
)
