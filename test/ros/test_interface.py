"""The interface table is what the nodes really do; parameters follow the configuration schema."""

import pytest
import ros_interfaces
from rclpy.parameter import Parameter
from ros_fakes import FakeEncoder, LineEnvironment, ScriptedPolicy, constant

from heisd_ros.config import HeisdConfig, parameter_names
from heisd_ros.errors import ConfigError
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.nodes.perception_node import PerceptionNode
from heisd_ros.nodes.servo_adapter_node import ServoAdapterNode
from heisd_ros.nodes.simulation_node import SimulationNode
from heisd_ros.nodes.topics import ENDPOINTS
from heisd_ros.nodes.trajectory_node import TrajectoryNode

BUILDERS = {
    "perception_node": lambda **o: PerceptionNode(encoder=FakeEncoder(), **o),
    "trajectory_node": TrajectoryNode,
    "decoder_node": lambda **o: DecoderNode(policy=ScriptedPolicy(constant([0.0] * 7)), **o),
    "servo_adapter_node": ServoAdapterNode,
    "simulation_node": lambda **o: SimulationNode(environment=LineEnvironment(), **o),
}
NEEDS = {"servo_adapter_node": "moveit_msgs"}
OWN = {"/rosout", "/parameter_events"}


@pytest.fixture
def build(context, spin):
    def make(name, **overrides):
        parameters = [Parameter(key.replace("__", "."), value=v) for key, v in overrides.items()]
        node = BUILDERS[name](context=context, parameter_overrides=parameters)
        return spin(node)

    return make


def rows(node, direction):
    """Absolute name -> type of the table's rows, `<camera>` filled in."""
    found = {}
    for row in ENDPOINTS:
        if (row.node, row.direction) == (node, direction):
            for camera in ("third_person", "wrist"):
                name = row.name.replace("<camera>", camera).replace("~", f"/{node}")
                found[name if name.startswith("/") else f"/{name}"] = row.kind
    return found


def endpoints(node, ask):
    """Name -> type of what the node really has."""
    found = ask(node.get_name(), node.get_namespace())
    return {name: kinds[0] for name, kinds in found if name not in OWN}


@pytest.mark.parametrize("name", BUILDERS)
def test_topics_of_the_node_are_those_of_the_table(build, name):
    if name in NEEDS:
        ros_interfaces.need(NEEDS[name])
    node = build(name)
    assert endpoints(node, node.get_publisher_names_and_types_by_node) == rows(name, "out")
    assert endpoints(node, node.get_subscriber_names_and_types_by_node) == rows(name, "in")
    served = endpoints(node, node.get_service_names_and_types_by_node)
    assert {k: v for k, v in served.items() if v.startswith("std_srvs")} == rows(name, "service")


def test_compressed_transport_subscribes_to_compressed_pictures(build):
    node = build("perception_node", ros__image_transport="compressed")
    where = (node.get_name(), node.get_namespace())
    heard = dict(node.get_subscriber_names_and_types_by_node(*where))
    assert heard["/wrist/image/compressed"] == ["sensor_msgs/msg/CompressedImage"]


def test_every_field_is_a_described_read_only_parameter(build):
    node = build("trajectory_node")
    for name in parameter_names():
        descriptor = node.describe_parameter(name)
        assert descriptor.read_only
        assert descriptor.description.strip()
    result = node.set_parameters([Parameter("trajectory.window", value=20)])[0]
    assert not result.successful
    assert "read-only" in result.reason


def test_integers_are_accepted_for_numbers_also_in_lists(build):
    node = build("trajectory_node", command__control_hz=10, command__workspace_low=[0, -1, 0])
    assert node.config.command.control_hz == 10.0
    assert node.config.command.workspace_low == (0.0, -1.0, 0.0)
    assert node.get_parameter("command.control_hz").value == 10.0
    assert isinstance(node.get_parameter("command.control_hz").value, float)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("command.contol_hz", 5.0, "command.control_hz"),
        ("command.control_hz", -1.0, "command.control_hz must be in"),
        ("command.control_hz", 0.0, "command.control_hz must be in"),
        ("command.control_hz", float("nan"), "command.control_hz must be in"),
        ("command.control_hz", float("inf"), "command.control_hz must be in"),
        ("command.control_hz", "fast", "must be a number"),
        ("command.lifetime_s", 0.03, "two command periods"),
        ("trajectory.alpha", 1.5, "trajectory.alpha must be in"),
        ("trajectory.window", 2, "trajectory.window must be in"),
        ("command.gripper_convention", "odd", "must be one of open_is_one"),
    ],
)
def test_wrong_parameters_are_refused_with_their_name(context, name, value, text):
    with pytest.raises(ConfigError, match=text):
        TrajectoryNode(context=context, parameter_overrides=[Parameter(name, value=value)])


def test_defaults_of_the_parameters_are_those_of_the_configuration(build):
    assert build("trajectory_node").config == HeisdConfig()


def test_ranges_are_told_to_tools(build):
    node = build("trajectory_node")
    window = node.describe_parameter("trajectory.window").integer_range[0]
    assert (window.from_value, window.to_value) == (3, 200)
    alpha = node.describe_parameter("trajectory.alpha").floating_point_range[0]
    assert (alpha.from_value, alpha.to_value) == (0.0, 1.0)
    choices = node.describe_parameter("command.gripper_convention").additional_constraints
    assert "position_m" in choices
