"""Managed nodes as another node sees them: states, reasons, and what is on the wire."""

import os
import threading

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.node import Node
from rclpy.parameter import Parameter
from ros.robot import Robot, speed_of
from ros_fakes import FakeEncoder, ScriptedPolicy, constant, result_of, wait_until

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.errors import ModelError
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.nodes.heisd_node import ComposedGraph, HeisdNode
from heisd_ros.nodes.perception_node import PerceptionNode
from heisd_ros.nodes.trajectory_node import TrajectoryNode

MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # 0.05 m/s at 5 Hz
CONFIG = replace(
    HeisdConfig(), command__lifetime_s=0.3, command__max_failures=3, arming__start="armed"
)
STATES = {Transition.TRANSITION_CONFIGURE: "inactive", Transition.TRANSITION_ACTIVATE: "active"}


class Operator(Node):
    """Changes and asks for lifecycle states; reads the diagnostics."""

    def __init__(self, context):
        super().__init__("operator", context=context)
        self.texts = []
        self.create_subscription(DiagnosticArray, "/diagnostics", self._keep, 50)

    def _keep(self, message):
        self.texts += [(s.name, s.level, s.message) for s in message.status]

    def ask(self, kind, name, **fields):
        client = self.create_client(kind, name)
        assert client.wait_for_service(10.0)
        answer = client.call_async(kind.Request(**fields))
        assert wait_until(answer.done, 30.0)
        self.destroy_client(client)
        return answer.result()

    def change(self, node, label):
        request = Transition(label=label)
        return self.ask(ChangeState, f"{node}/change_state", transition=request).success

    def state(self, node):
        return self.ask(GetState, f"{node}/get_state").current_state.label

    def told(self, level, part):
        return any(level == at and part in text for _, at, text in self.texts)


@pytest.fixture
def operator(context, spin):
    return spin(Operator(context))


def test_a_decoder_goes_through_all_states_and_is_quiet_whenever_it_is_not_active(
    context, spin, operator
):
    policy = ScriptedPolicy(constant(MOVE))
    spin(DecoderNode(config=CONFIG, policy=policy, context=context), active=False)
    robot = spin(Robot(context))
    assert operator.change("decoder_node", "configure")
    assert operator.state("decoder_node") == "inactive"
    assert operator.change("decoder_node", "activate")
    robot.find_peers()
    robot.instruct()
    end = robot.stream(20.0)
    assert wait_until(robot.moving)
    assert operator.change("decoder_node", "deactivate")
    seen = -1
    while seen != len(robot.twists):  # until nothing more is on the way
        seen = len(robot.twists)
        wait_until(lambda seen=seen: len(robot.twists) > seen, 0.2)
    assert speed_of(robot.twists[-1][2]) == 0.0
    assert operator.change("decoder_node", "activate")
    assert wait_until(lambda: len(robot.twists) > seen + 10)
    # The instruction of before is forgotten: a person must say again what to do.
    assert not any(speed_of(m) for _, _, m in robot.twists[seen:])
    robot.find_peers()
    robot.instruct()
    asked = robot.twists[-1][0]
    assert wait_until(lambda: robot.moving(asked))
    end()
    for label, state in (("deactivate", "inactive"), ("cleanup", "unconfigured")):
        assert operator.change("decoder_node", label)
        assert operator.state("decoder_node") == state


def test_failures_in_a_row_make_the_decoder_inactive_with_an_error_and_it_can_come_back(
    context, spin, operator
):
    def script(observation, n):
        if n in (1, 2, 3):
            raise RuntimeError("out of memory")
        return result_of(MOVE)

    node = spin(DecoderNode(config=CONFIG, policy=ScriptedPolicy(script), context=context))
    robot = spin(Robot(context))
    robot.find_peers()
    robot.instruct()
    end = robot.stream(20.0)
    assert wait_until(lambda: node.state == "inactive")
    assert wait_until(lambda: operator.told(b"\x02", "too_many_failures"))
    assert speed_of(robot.twists[-1][2]) == 0.0
    assert [r.decided for _, _, r in robot.reports[:4]] == [True, False, False, False]
    assert operator.change("decoder_node", "activate")
    robot.find_peers()
    robot.instruct()
    again = robot.twists[-1][0]
    assert wait_until(lambda: robot.moving(again))
    end()


def test_a_model_that_cannot_be_loaded_is_told_and_the_node_stays_and_can_try_again(
    context, spin, operator, monkeypatch
):
    def load(config):
        if loads:
            raise loads.pop()
        return ScriptedPolicy(constant(MOVE))

    loads = [RuntimeError("out of memory"), ModelError("no checkpoint folder at /nowhere")]
    monkeypatch.setattr("heisd_ros.nodes.decoder_node.build_policy", load)
    node = spin(DecoderNode(config=CONFIG, context=context), active=False)
    for text in ("no checkpoint folder at /nowhere", "RuntimeError: out of memory"):
        assert not operator.change("decoder_node", "configure")
        assert operator.state("decoder_node") == "unconfigured"
        assert wait_until(lambda text=text: operator.told(b"\x02", text))
    assert operator.change("decoder_node", "configure")
    assert operator.change("decoder_node", "activate")
    assert node.failure == ""


def test_a_model_that_ignores_the_picture_is_not_activated(context, spin, operator):
    class Blind(ScriptedPolicy):
        @property
        def decoder(self):
            return self

        @property
        def target(self):
            return self

        def self_check(self):
            raise ModelError("image_ignored: a black and a white picture give the same answer")

    node = DecoderNode(config=CONFIG, policy=Blind(constant(MOVE)), context=context)
    spin(node, active=False)
    robot = spin(Robot(context))
    assert operator.change("decoder_node", "configure")
    assert not operator.change("decoder_node", "activate")
    assert operator.state("decoder_node") == "inactive"
    assert wait_until(lambda: operator.told(b"\x02", "image_ignored"))
    assert not robot.twists


def test_a_transition_that_the_state_does_not_have_is_refused_with_an_answer(
    context, spin, operator
):
    spin(TrajectoryNode(context=context), active=False)
    assert not operator.change("trajectory_node", "activate")
    assert operator.change("trajectory_node", "configure")
    assert not operator.change("trajectory_node", "explode")
    assert operator.state("trajectory_node") == "inactive"


def test_a_misspelt_parameter_fails_the_configuration_with_the_nearest_name(
    context, spin, operator
):
    wrong = [Parameter("trajectory.windw", value=12)]
    spin(TrajectoryNode(context=context, parameter_overrides=wrong), active=False)
    assert not operator.change("trajectory_node", "configure")
    assert wait_until(lambda: operator.told(b"\x02", "did you mean 'trajectory.window'"))


def test_the_supervisor_drives_the_composed_nodes_and_notices_when_one_goes_inactive(
    context, spin, operator, monkeypatch
):
    parts = {"policy": ScriptedPolicy(constant(MOVE)), "encoder": FakeEncoder()}

    def graph(*args, **kwargs):
        return ComposedGraph(*args, **parts, **kwargs)

    monkeypatch.setattr("heisd_ros.nodes.heisd_node.ComposedGraph", graph)
    supervisor = spin(HeisdNode(context=context), active=False)
    for label, state in STATES.items():
        assert operator.ask(
            ChangeState, "heisd_node/change_state", transition=Transition(id=label)
        ).success
        for name in ("perception_node", "trajectory_node", "decoder_node"):
            assert operator.state(name) == state
    assert operator.change("decoder_node", "deactivate")
    assert wait_until(lambda: operator.told(b"\x02", "inactive: decoder_node"))
    assert operator.change("heisd_node", "deactivate")
    assert operator.state("perception_node") == "inactive"
    assert operator.change("heisd_node", "cleanup")
    assert supervisor.graph is None
    assert wait_until(lambda: not operator.count_publishers("twist_cmd"))


def test_going_through_the_states_again_and_again_leaves_nothing_behind(context):
    nodes = [
        DecoderNode(policy=ScriptedPolicy(constant(MOVE)), context=context),
        PerceptionNode(encoder=FakeEncoder(), context=context),
        TrajectoryNode(context=context),
    ]

    def held():
        entities = sum(
            len(list(kind))
            for node in nodes
            for kind in (node.publishers, node.subscriptions, node.services, node.timers)
        )
        waitables = sum(len(list(node.waitables)) for node in nodes)
        return entities, waitables, threading.active_count(), len(os.listdir("/proc/self/fd"))

    counts = []
    for _ in range(5):
        for node in nodes:
            assert node.bring_up(), node.failure
            node.trigger_deactivate()
            node.trigger_cleanup()
            assert node.state == "unconfigured"
        counts.append(held())
    assert counts[0] == counts[-1]
    for node in nodes:
        node.destroy_node()
