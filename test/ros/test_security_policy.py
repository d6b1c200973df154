"""The security policy is what the running nodes really need: nothing missing, nothing too much."""

from xml.etree import ElementTree

import pytest
import ros_interfaces
from rclpy.action import get_action_server_names_and_types_by_node
from rclpy.parameter import Parameter
from ros_fakes import FakeEncoder, LineEnvironment, ScriptedPolicy, constant

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes import security_policy
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.nodes.perception_node import PerceptionNode
from heisd_ros.nodes.recorder_node import RecorderNode
from heisd_ros.nodes.servo_adapter_node import ServoAdapterNode
from heisd_ros.nodes.simulation_node import SimulationNode
from heisd_ros.nodes.trajectory_node import TrajectoryNode
from heisd_ros.nodes.visualiser_node import VisualiserNode
from heisd_ros.share import share_dir

BUILDERS = {
    "perception_node": lambda **o: PerceptionNode(encoder=FakeEncoder(), **o),
    "trajectory_node": TrajectoryNode,
    "decoder_node": lambda **o: DecoderNode(policy=ScriptedPolicy(constant([0.0] * 7)), **o),
    "servo_adapter_node": ServoAdapterNode,
    "simulation_node": lambda **o: SimulationNode(environment=LineEnvironment(), **o),
    "visualiser_node": VisualiserNode,
    "recorder_node": RecorderNode,
}
NEEDS = {"servo_adapter_node": "moveit_msgs", "visualiser_node": "visualization_msgs"}
DEPENDS_ON_SETTINGS = {
    "/gripper_controller/commands",
    "/gripper_controller/joint_trajectory",
    "/third_person/image",
    "/wrist/image",
    "/third_person/image/compressed",
    "/wrist/image/compressed",
    "/wrench",
}
"""What is there with one value of a setting only: pictures, grippers, a force limit."""
COMPOSED = {"heisd_node"}
"""Supervisor of the others; it exists only beside them."""


def policy():
    """Node -> {(kind, right): absolute names}, read from the shipped file."""
    root = ElementTree.parse(share_dir() / security_policy.POLICY).getroot()
    rights = {}
    for profile in root.iter("profile"):
        assert profile.get("ns") == "/"
        node = profile.get("node")
        for listed in profile:
            ((right, allowed),) = listed.attrib.items()
            assert allowed == "ALLOW"
            rights.setdefault(node, {})[listed.tag, right] = {
                absolute(item.text, node) for item in listed
            }
    return rights


def absolute(name, node):
    name = name.replace("~", f"/{node}")
    return name if name.startswith("/") else f"/{name}"


def present(node):
    """The same of a running node; what belongs to an action is left to the action."""
    where = (node.get_name(), node.get_namespace())
    asked = {
        ("topics", "publish"): node.get_publisher_names_and_types_by_node,
        ("topics", "subscribe"): node.get_subscriber_names_and_types_by_node,
        ("services", "reply"): node.get_service_names_and_types_by_node,
        ("services", "request"): node.get_client_names_and_types_by_node,
    }
    found = {
        key: {name for name, _ in ask(*where) if "/_action/" not in name}
        for key, ask in asked.items()
    }
    servers = get_action_server_names_and_types_by_node(node, *where)
    found["actions", "execute"] = {name for name, _ in servers}
    return found


@pytest.fixture
def start(context, spin, tmp_path):
    def make(name, *, simulated=True):
        if name in NEEDS:
            ros_interfaces.need(NEEDS[name])
        # The simulation makes the time and cannot take it from /clock as well.
        overrides = [Parameter("use_sim_time", value=simulated and name != "simulation_node")]
        config = replace(HeisdConfig(), record__folder=str(tmp_path / "bag"))
        return spin(BUILDERS[name](config=config, context=context, parameter_overrides=overrides))

    return make


def test_every_node_has_a_profile():
    assert set(policy()) == set(BUILDERS) | COMPOSED


@pytest.mark.parametrize("name", BUILDERS)
def test_a_node_may_do_what_it_does_and_no_more(start, name):
    rights, found = policy()[name], present(start(name))
    for key in found:
        allowed = rights.get(key, set())
        assert found[key] <= allowed, key
        spare = allowed - found[key] - DEPENDS_ON_SETTINGS
        # Every node may hear time and changed parameters, whether or not it asks for them.
        assert spare <= {"/clock", "/parameter_events"}, key


def test_arming_and_stops_are_in_it():
    decoder = policy()["decoder_node"]
    services = {"/decoder_node/arm", "/decoder_node/disarm", "/decoder_node/stop"}
    assert services <= decoder["services", "reply"]
    assert {"/estop", "/deadman", "/clock"} <= decoder["topics", "subscribe"]
    assert {"/wanted_twist", "/trajectory_metric"} & decoder["topics", "publish"] == {
        "/wanted_twist"
    }
    assert decoder["actions", "execute"] == {"/execute_task"}
