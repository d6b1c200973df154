"""LIBERO as the robot, with the three nodes around it: in one process, or one process each."""

from launch.actions import DeclareLaunchArgument, GroupAction
from launch.conditions import IfCondition, UnlessCondition
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from launch import LaunchDescription

CONFIG = PathJoinSubstitution([FindPackageShare("heisd_ros"), "config"])
ARGUMENTS = {
    "namespace": ("", "Namespace of all nodes and relative topics."),
    "use_sim_time": ("true", "Take the time from the simulation's /clock (separate processes)."),
    "params_file": (PathJoinSubstitution([CONFIG, "heisd.yaml"]), "Parameters of all nodes."),
    "embodiment": (
        PathJoinSubstitution([CONFIG, "embodiments", "libero_panda.yaml"]),
        "Parameters of the simulated robot, on top of params_file.",
    ),
    "use_composition": ("true", "One process: the picture features never leave it."),
    "autostart": ("true", "Configure and activate the nodes by themselves."),
    "enclave": ("/", "SROS 2 enclave of all nodes, see docs/security_ros.md."),
    "log_level": ("info", "debug, info, warn, error or fatal."),
    "method": ("heisd", "Named decoding method."),
    "suite": ("libero_spatial", "LIBERO suite."),
    "task": ("0", "Task number in the suite."),
    "init": ("0", "First official initial state."),
    "episodes": ("1", "Episodes before the simulation ends."),
    "clock": ("lockstep", "lockstep or realtime."),
    "factor": ("1.0", "Simulated seconds per second in realtime."),
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
            GroupAction([_node("heisd_node", on_clock=False)], condition=IfCondition(composed)),
            GroupAction(
                [*separate, _node("simulation_node", on_clock=False)],
                condition=UnlessCondition(composed),
            ),
        ]
    )


def _node(executable: str, *, on_clock: bool = True) -> Node:
    # heisd_node sets the time of its own nodes, and the simulation makes the time.
    clock = {"use_sim_time": LaunchConfiguration("use_sim_time")} if on_clock else {}
    return Node(
        package="heisd_ros",
        executable=executable,
        namespace=LaunchConfiguration("namespace"),
        parameters=[
            LaunchConfiguration("params_file"),
            LaunchConfiguration("embodiment"),
            {
                **clock,
                "ros.autostart": LaunchConfiguration("autostart"),
                "ros.on_failed_start": "exit",
                "decode.method": LaunchConfiguration("method"),
                "simulation.suite": LaunchConfiguration("suite"),
                "simulation.task": _typed("task", int),
                "simulation.init": _typed("init", int),
                "simulation.episodes": _typed("episodes", int),
                "simulation.clock": LaunchConfiguration("clock"),
                "simulation.factor": _typed("factor", float),
            },
        ],
        arguments=[
            "--ros-args",
            *("--log-level", LaunchConfiguration("log_level")),
            *("--enclave", LaunchConfiguration("enclave")),
        ],
        output="screen",
    )


def _typed(name: str, kind: type) -> ParameterValue:
    return ParameterValue(LaunchConfiguration(name), value_type=kind)
