"""Perception, trajectory and decoder for a robot: in one process, or one process each."""

from launch.actions import DeclareLaunchArgument, GroupAction
from launch.conditions import IfCondition, UnlessCondition
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription

CONFIG = PathJoinSubstitution([FindPackageShare("heisd_ros"), "config"])
ARGUMENTS = {
    "namespace": ("", "Namespace of all nodes and relative topics."),
    "use_sim_time": ("false", "Take the time from /clock."),
    "params_file": (PathJoinSubstitution([CONFIG, "heisd.yaml"]), "Parameters of all nodes."),
    "embodiment": (
        PathJoinSubstitution([CONFIG, "embodiments", "franka_servo.yaml"]),
        "Parameters of this robot, on top of params_file.",
    ),
    "use_composition": ("true", "One process: the picture features never leave it."),
    "use_respawn": ("false", "Start a node again that has died (separate processes only)."),
    "enclave": ("/", "SROS 2 enclave of all nodes, see docs/security_ros.md."),
    "autostart": ("true", "Configure and activate the nodes by themselves."),
    "log_level": ("info", "debug, info, warn, error or fatal."),
    "third_person_image": ("third_person/image", "Topic of the first camera."),
    "wrist_image": ("wrist/image", "Topic of the second camera."),
    "ee_pose": ("ee_pose", "Topic of the end-effector pose."),
    "joint_states": ("joint_states", "Topic of the joint states."),
    "instruction": ("instruction", "Topic of the task in words."),
    "twist_cmd": ("twist_cmd", "Topic of the twist; for MoveIt Servo use moveit_servo.launch.py."),
    "gripper_cmd": ("gripper_cmd", "Topic of the gripper command."),
}
REMAPPINGS = {
    "third_person/image": "third_person_image",
    "wrist/image": "wrist_image",
    "ee_pose": "ee_pose",
    "joint_states": "joint_states",
    "instruction": "instruction",
    "twist_cmd": "twist_cmd",
    "gripper_cmd": "gripper_cmd",
}


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the nodes."""
    composed = LaunchConfiguration("use_composition")
    separate = [_node(name) for name in ("perception_node", "trajectory_node", "decoder_node")]
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=value, description=text)
                for name, (value, text) in ARGUMENTS.items()
            ),
            GroupAction([_node("heisd_node")], condition=IfCondition(composed)),
            GroupAction(separate, condition=UnlessCondition(composed)),
        ]
    )


def _node(executable: str) -> Node:
    # heisd_node holds several nodes: a name given here would rename them all.
    separate = {
        "name": executable,
        "respawn": LaunchConfiguration("use_respawn"),
        "respawn_delay": 2.0,
    }
    return Node(
        package="heisd_ros",
        executable=executable,
        namespace=LaunchConfiguration("namespace"),
        parameters=[
            LaunchConfiguration("params_file"),
            LaunchConfiguration("embodiment"),
            {
                "use_sim_time": LaunchConfiguration("use_sim_time"),
                "ros.autostart": LaunchConfiguration("autostart"),
            },
        ],
        remappings=[(name, LaunchConfiguration(value)) for name, value in REMAPPINGS.items()],
        arguments=[
            "--ros-args",
            *("--log-level", LaunchConfiguration("log_level")),
            *("--enclave", LaunchConfiguration("enclave")),
        ],
        output="screen",
        **({} if executable == "heisd_node" else separate),
    )
