"""The nodes of heisd.launch.py in front of MoveIt Servo; a real arm begins with a dry run.

Start Servo with the robot's own MoveIt configuration; nothing moves before
`ros2 service call /decoder_node/arm std_srvs/srv/Trigger`.
"""

from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription

SHARE = FindPackageShare("heisd_ros")
CONFIG = PathJoinSubstitution([SHARE, "config"])
ARGUMENTS = {
    "namespace": ("", "Namespace of all nodes and relative topics."),
    "use_sim_time": ("false", "Take the time from /clock, as Servo must do too then."),
    "params_file": (PathJoinSubstitution([CONFIG, "heisd.yaml"]), "Parameters of all nodes."),
    "embodiment": (
        PathJoinSubstitution([CONFIG, "embodiments", "franka_servo.yaml"]),
        "Parameters of this robot, on top of params_file.",
    ),
    "autostart": ("true", "Configure and activate the nodes by themselves."),
    "enclave": ("/", "SROS 2 enclave of all nodes, see docs/security_ros.md."),
    "log_level": ("info", "debug, info, warn, error or fatal."),
    "servo_node": ("/servo_node", "Name of Servo's node."),
    "units": ("speed_units", "command_in_type of Servo: speed_units or unitless."),
    "twist_cmd": ("twist_cmd", "Topic between the decoder and the adapter."),
}
PASSED_ON = (
    "namespace",
    "use_sim_time",
    "params_file",
    "embodiment",
    "autostart",
    "enclave",
    "log_level",
    "twist_cmd",
)
"""Arguments of heisd.launch.py that are given here; its others can be given all the same."""


def generate_launch_description() -> LaunchDescription:
    """Return the arguments, the nodes of heisd.launch.py and the adapter."""
    nodes = PathJoinSubstitution([SHARE, "launch", "heisd.launch.py"])
    adapter = Node(
        package="heisd_ros",
        executable="servo_adapter_node",
        name="servo_adapter_node",
        namespace=LaunchConfiguration("namespace"),
        parameters=[
            LaunchConfiguration("params_file"),
            LaunchConfiguration("embodiment"),
            {
                "use_sim_time": LaunchConfiguration("use_sim_time"),
                "servo.node": LaunchConfiguration("servo_node"),
                "servo.units": LaunchConfiguration("units"),
            },
        ],
        remappings=[("twist_cmd", LaunchConfiguration("twist_cmd"))],
        arguments=[
            "--ros-args",
            *("--log-level", LaunchConfiguration("log_level")),
            *("--enclave", LaunchConfiguration("enclave")),
        ],
        output="screen",
    )
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=value, description=text)
                for name, (value, text) in ARGUMENTS.items()
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(nodes),
                launch_arguments=[(name, LaunchConfiguration(name)) for name in PASSED_ON],
            ),
            adapter,
        ]
    )
