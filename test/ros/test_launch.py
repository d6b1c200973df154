import importlib.util

import pytest
from ros.launch_stub import install, walk

from heisd_ros.config import load_config, parameter_names
from heisd_ros.nodes.topics import ENDPOINTS, image_topic
from heisd_ros.share import share_dir

LAUNCH_FILES = sorted((share_dir() / "launch").glob("*.launch.py"))
SERVO = share_dir() / "launch" / "moveit_servo.launch.py"
SCRIPTS = {
    "heisd_node",
    "perception_node",
    "trajectory_node",
    "decoder_node",
    "simulation_node",
    "servo_adapter_node",
}
RELATIVE_TOPICS = {e.name for e in ENDPOINTS} | {image_topic("third_person"), image_topic("wrist")}


@pytest.fixture(params=LAUNCH_FILES, ids=lambda path: path.name)
def description(request, monkeypatch):
    """Everything a launch file constructs."""
    install(monkeypatch)
    return list(walk(load(request.param)))


def load(path):
    """Run a launch file."""
    spec = importlib.util.spec_from_file_location("launch_file", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.generate_launch_description()


def of_kind(description, kind):
    return [item for item in description if item.kind == kind]


def test_the_launch_files_are_shipped():
    names = {path.name for path in LAUNCH_FILES}
    assert {
        "heisd.launch.py",
        "simulation.launch.py",
        "replay.launch.py",
        "moveit_servo.launch.py",
    } <= names


def test_nodes_start_executables_that_exist(description):
    nodes = of_kind(description, "Node")
    assert nodes
    assert {node.kwargs["executable"] for node in nodes} <= SCRIPTS
    assert {node.kwargs["package"] for node in nodes} == {"heisd_ros"}


def test_every_argument_has_a_default_and_a_description(description):
    for argument in of_kind(description, "DeclareLaunchArgument"):
        assert argument.kwargs["default_value"] is not None
        assert argument.kwargs["description"].endswith(".")


def test_every_used_argument_is_declared_and_every_declared_one_used(description):
    declared = {item.args[0] for item in of_kind(description, "DeclareLaunchArgument")}
    used = {item.args[0] for item in of_kind(description, "LaunchConfiguration")}
    assert used == declared


def test_usual_arguments_are_there(description):
    declared = {item.args[0] for item in of_kind(description, "DeclareLaunchArgument")}
    assert {"namespace", "use_sim_time", "params_file", "autostart", "log_level"} <= declared


def test_every_node_of_ours_gets_the_enclave_and_the_log_level(description):
    for node in of_kind(description, "Node"):
        given = [
            item if isinstance(item, str) else item.args[0] for item in node.kwargs["arguments"]
        ]
        assert given == ["--ros-args", "--log-level", "log_level", "--enclave", "enclave"]


def test_what_moveit_servo_passes_on_are_arguments_of_the_included_file(monkeypatch):
    install(monkeypatch)
    known = {
        path.name: {
            item.args[0] for item in of_kind(list(walk(load(path))), "DeclareLaunchArgument")
        }
        for path in LAUNCH_FILES
    }
    included = of_kind(list(walk(load(SERVO))), "IncludeLaunchDescription")
    (passed,) = [item.kwargs["launch_arguments"] for item in included]
    names = {name for name, _ in passed}
    assert names <= known["heisd.launch.py"]
    assert names >= known["moveit_servo.launch.py"] & known["heisd.launch.py"]


def test_default_configuration_files_exist_and_load(description):
    files = [
        "/".join(part for part in item.args[0][1:] if isinstance(part, str))
        for item in of_kind(description, "PathJoinSubstitution")
        if len(item.args[0]) > 1 and str(item.args[0][-1]).endswith(".yaml")
    ]
    assert len(files) == 2
    for name in files:
        load_config(share_dir() / "config" / name)


def test_parameters_set_by_a_launch_file_are_known(description):
    known = {*parameter_names(), "use_sim_time"}
    for node in of_kind(description, "Node"):
        for entry in node.kwargs["parameters"]:
            if isinstance(entry, dict):
                assert set(entry) <= known


def test_remapped_topics_are_relative_topics_of_ours(description):
    for node in of_kind(description, "Node"):
        for name, _ in node.kwargs.get("remappings", []):
            assert name in RELATIVE_TOPICS


def test_composed_node_gets_no_name_of_its_own(description):
    # A name would rename every node inside the process.
    for node in of_kind(description, "Node"):
        if node.kwargs["executable"] == "heisd_node":
            assert "name" not in node.kwargs
