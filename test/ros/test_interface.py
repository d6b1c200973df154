"""The interface table is what the nodes really do; parameters follow the configuration schema."""

import pytest
import ros_interfaces
from rclpy.action import get_action_server_names_and_types_by_node
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
WITH_A_FORCE = {"verify__tighten_max_force": 5.0}
OPTIONS = {"decoder_node": WITH_A_FORCE}
"""What makes a node have everything in the table."""
OWN = {"/rosout", "/parameter_events"}
TRANSITIONS = "lifecycle_msgs/msg/TransitionEvent"


@pytest.fixture
def build(context, spin):
    def make(name, **overrides):
        node = BUILDERS[name](context=context, parameter_overrides=to_parameters(overrides))
        return spin(node)

    return make


def to_parameters(overrides):
    return [Parameter(key.replace("__", "."), value=value) for key, value in overrides.items()]


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
    ours = {name: k[0] for name, k in found if name not in OWN and k[0] != TRANSITIONS}
    return {name: kind for name, kind in ours.items() if "/_action/" not in name}


@pytest.mark.parametrize("name", BUILDERS)
def test_topics_of_the_node_are_those_of_the_table(build, name):
    if name in NEEDS:
        ros_interfaces.need(NEEDS[name])
    node = build(name, **OPTIONS.get(name, {}))
    assert endpoints(node, node.get_publisher_names_and_types_by_node) == rows(name, "out")
    assert endpoints(node, node.get_subscriber_names_and_types_by_node) == rows(name, "in")
    served = endpoints(node, node.get_service_names_and_types_by_node)
    assert {k: v for k, v in served.items() if v.startswith("std_srvs")} == rows(name, "service")
    where = (node.get_name(), node.get_namespace())
    actions = get_action_server_names_and_types_by_node(node, *where)
    assert {action: kinds[0] for action, kinds in actions} == rows(name, "action")


def test_a_wrench_is_heard_only_if_a_force_is_asked_for(build):
    node = build("decoder_node")
    heard = endpoints(node, node.get_subscriber_names_and_types_by_node)
    assert "/wrench" not in heard
    assert "/ee_pose" in heard


def test_compressed_transport_subscribes_to_compressed_pictures(build):
    node = build("perception_node", ros__image_transport="compressed")
    where = (node.get_name(), node.get_namespace())
    heard = dict(node.get_subscriber_names_and_types_by_node(*where))
    assert heard["/wrist/image/compressed"] == ["sensor_msgs/msg/CompressedImage"]


def test_every_field_is_a_described_parameter(build):
    node = build("trajectory_node")
    for name in parameter_names():
        assert node.describe_parameter(name).description.strip()


@pytest.mark.parametrize("name", ["trajectory_node", "simulation_node"])
def test_a_running_node_keeps_its_parameters_and_says_why(build, name):
    node = build(name)
    result = node.set_parameters([Parameter("trajectory.window", value=20)])[0]
    assert not result.successful
    assert "trajectory.window is read-only until" in result.reason
    assert node.get_parameter("trajectory.window").value == 15


def test_parameters_of_an_unconfigured_node_can_be_set_and_are_checked_at_once(context, spin):
    node = spin(TrajectoryNode(context=context), active=False)
    results = node.set_parameters(
        [
            Parameter("trajectory.window", value=20),
            Parameter("trajectory.alpha", value=1),  # an integer for a number
            Parameter("trajectory.hysteresis", value=1.5),
            Parameter("command.gripper_convention", value="odd"),
        ]
    )
    assert [result.successful for result in results] == [True, True, False, False]
    for part in ("trajectory.hysteresis", "0.0", "1.0", "1.5"):
        assert part in results[2].reason
    assert "open_is_one" in results[3].reason
    assert node.bring_up()
    assert (node.config.trajectory.window, node.config.trajectory.alpha) == (20, 1.0)


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
def test_wrong_parameters_fail_the_configuration_with_their_name(context, spin, name, value, text):
    node = TrajectoryNode(context=context, parameter_overrides=[Parameter(name, value=value)])
    spin(node, active=False)
    assert not node.bring_up()
    assert node.state == "unconfigured"
    assert text in node.failure


def test_a_wrong_parameter_set_right_lets_the_node_be_configured(context, spin):
    wrong = to_parameters({"command__control_hz": -1.0, "trajectory__window": 20})
    node = spin(TrajectoryNode(context=context, parameter_overrides=wrong), active=False)
    assert not node.bring_up()
    assert node.set_parameters([Parameter("command.control_hz", value=10)])[0].successful
    assert node.bring_up()
    assert (node.config.command.control_hz, node.config.trajectory.window) == (10.0, 20)


def test_a_node_that_is_not_managed_refuses_wrong_parameters_when_it_is_made(context):
    wrong = to_parameters({"simulation__tsk": 3})
    with pytest.raises(ConfigError, match=r"did you mean 'simulation\.task'"):
        SimulationNode(context=context, parameter_overrides=wrong)


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
