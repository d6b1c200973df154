"""Plays a recorded bag into the three nodes; nothing moves. `heisd replay` needs no DDS."""

from launch.actions import DeclareLaunchArgument, ExecuteProcess
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription

CONFIG = PathJoinSubstitution([FindPackageShare("heisd_ros"), "config"])
ARGUMENTS = {
    "bag": ("bag", "Folder of the bag."),
    "rate": ("1.0", "Speed of the replay."),
    "namespace": ("replay", "Namespace of the nodes: their commands reach no robot."),
    "use_sim_time": ("true", "Take the time from the bag."),
    "params_file": (PathJoinSubstitution([CONFIG, "heisd.yaml"]), "Parameters of all nodes."),
    "embodiment": (
        PathJoinSubstitution([CONFIG, "embodiments", "franka_servo.yaml"]),
        "Parameters of the recorded robot, on top of params_file.",
    ),
    "autostart": ("true", "Configure and activate the nodes by themselves."),
    "enclave": ("/", "SROS 2 enclave of all nodes, see docs/security_ros.md."),
    "log_level": ("info", "debug, info, warn, error or fatal."),
    "third_person_image": ("/third_person/image", "Topic of the first camera in the bag."),
    "wrist_image": ("/wrist/image", "Topic of the second camera in the bag."),
    "ee_pose": ("/ee_pose", "Topic of the end-effector pose in the bag."),
    "joint_states": ("/joint_states", "Topic of the joint states in the bag."),
    "instruction": ("/instruction", "Topic of the task in words in the bag."),
}
REMAPPINGS = {
    "third_person/image": "third_person_image",
    "wrist/image": "wrist_image",
    "ee_pose": "ee_pose",
    "joint_states": "joint_states",
    "instruction": "instruction",
}


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, the nodes and the player."""
    player = ["ros2", "bag", "play", LaunchConfiguration("bag"), "--clock"]
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=value, description=text)
                for name, (value, text) in ARGUMENTS.items()
            ),
            _node("perception_node"),
            _node("trajectory_node"),
            _node("decoder_node"),
            ExecuteProcess(cmd=[*player, "--rate", LaunchConfiguration("rate")], output="screen"),
        ]
    )


def _node(executable: str) -> Node:
    return Node(
        package="heisd_ros",
        executable=executable,
        name=executable,
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
    )
