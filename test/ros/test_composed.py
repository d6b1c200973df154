import threading

import numpy as np
import pytest
from ros_fakes import FakeEncoder, LineEnvironment, ScriptedPolicy, constant, result_of

from heisd_ros.command.command import to_command
from heisd_ros.config import HeisdConfig, replace
from heisd_ros.nodes.heisd_node import ComposedGraph, run_composed

CONFIG = replace(
    HeisdConfig(),
    command__control_hz=20.0,
    command__max_linear=2.0,
    command__max_linear_step=4.0,
    command__max_angular=5.0,
    command__max_angular_step=10.0,
    simulation__max_steps=40,
)
MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # 0.01 m per control step


def play(script, domain_id, *, config=CONFIG, environment=None, encoder=None, on_report=None):
    environment = environment or LineEnvironment()
    policy = ScriptedPolicy(script)
    outcome = run_composed(
        config,
        environment=environment,
        policy=policy,
        encoder=encoder or FakeEncoder(),
        on_report=on_report,
        domain_id=domain_id,
    )
    return outcome, environment, policy


def wobble(observation, n):
    """A different command each step, from what the policy sees."""
    x = float(observation.proprioception.position[0])
    return result_of([0.01 + x / 30, np.sin(n) / 300, 0.0, 0.1 * np.cos(n), 0.0, 0.0, n % 2])


def test_an_episode_over_topics_equals_one_by_direct_calls(domain_id):
    outcome, environment, _ = play(wobble, domain_id)

    direct, commands = LineEnvironment(), []
    observation = direct.reset(0)
    for n in range(40):
        action = wobble(observation, n).action
        commands.append(to_command(action, 20.0, "base"))
        step = direct.step(commands[-1])
        observation = step.observation
        if step.success:
            break
    assert outcome.success
    assert outcome.steps == len(commands)
    sent = np.array([[*c.linear, *c.angular, c.gripper] for c in environment.commands])
    wanted = np.array([[*c.linear, *c.angular, c.gripper] for c in commands])
    assert np.array_equal(sent, wanted)
    assert environment.closed


def test_every_step_is_decided_from_its_own_picture_pose_and_metric(domain_id):
    outcome, _, policy = play(constant(MOVE), domain_id)
    assert (outcome.success, outcome.steps) == (True, 10)  # 10 steps of 0.01 m
    for n, seen in enumerate(policy.observations):
        assert seen.features.patches[0, 0, 0] == n  # the picture's brightness is its number
        assert seen.proprioception.position[0] == pytest.approx(0.01 * n)
        assert seen.proprioception.gripper_opening == pytest.approx(0.5)
        assert seen.metric.samples == min(n + 1, 15)
        assert seen.metric.stamp_ns == seen.stamp_ns
        assert seen.instruction == "go right"


def test_reports_arrive_once_per_step_in_order_and_success_reaches_the_policy(domain_id):
    decisions = []
    outcome, _, policy = play(constant(MOVE), domain_id, on_report=decisions.append)
    assert len(decisions) == len(outcome.reports) == 10
    stamps = [decision.observation.stamp_ns for decision in decisions]
    assert stamps == sorted(stamps)
    assert policy.ended == [True]


def test_an_unsolved_task_ends_after_the_configured_steps(domain_id):
    outcome, environment, policy = play(
        constant([0.0] * 6 + [1.0]), domain_id, config=replace(CONFIG, simulation__max_steps=5)
    )
    assert (outcome.success, outcome.steps, outcome.crash) == (False, 5, "")
    assert len(environment.commands) == 5
    assert policy.ended == [False]


def test_a_failing_decision_rests_the_arm_for_its_step_only(domain_id):
    def script(observation, n):
        if n == 3:
            raise RuntimeError("out of memory")
        return result_of(MOVE)

    outcome, environment, _ = play(script, domain_id)
    speeds = [float(command.linear[0]) for command in environment.commands]
    assert speeds == pytest.approx([0.2] * 3 + [0.0] + [0.2] * 7)
    assert outcome.success
    assert outcome.reports[3].reason == "decoder_failed"


def test_a_crash_of_the_environment_is_not_a_failed_task(domain_id):
    class Broken(LineEnvironment):
        def step(self, command):
            if len(self.commands) == 2:
                raise ValueError("contact solver diverged")
            return super().step(command)

    outcome, _, _ = play(constant(MOVE), domain_id, environment=Broken())
    assert outcome.crash == "ValueError: contact solver diverged"
    assert not outcome.success


def test_a_decision_that_does_not_come_in_time_is_a_counted_rest(context):
    late = threading.Event()

    def script(observation, n):
        if n == 2:
            late.wait(20.0)
        return result_of(MOVE)

    config = replace(CONFIG, simulation__timeout_s=0.5, simulation__max_steps=4)
    environment = LineEnvironment()
    with ComposedGraph(
        config,
        context,
        with_simulation=True,
        environment=environment,
        policy=ScriptedPolicy(script),
        encoder=FakeEncoder(),
    ) as graph:
        graph.simulation.play_episode(0, threading.Event())
        assert graph.simulation.counts["decision_timeout"] == 2
        late.set()
    speeds = [float(command.linear[0]) for command in environment.commands]
    assert speeds == pytest.approx([0.2, 0.2, 0.0, 0.0])


def test_the_second_episode_knows_nothing_of_the_first(context):
    environment, policy = LineEnvironment(), ScriptedPolicy(constant(MOVE))
    with ComposedGraph(
        CONFIG,
        context,
        with_simulation=True,
        environment=environment,
        policy=policy,
        encoder=FakeEncoder(),
    ) as graph:
        outcomes = [graph.simulation.play_episode(n, threading.Event()) for n in range(2)]
    assert [outcome.steps for outcome in outcomes] == [10, 10]
    assert environment.seeds == [0, 1]
    assert policy.ended == [True, True]
    assert [seen.metric.samples for seen in policy.observations[10:13]] == [1, 2, 3]


def test_in_realtime_the_arm_moves_with_the_newest_command(domain_id):
    config = replace(CONFIG, simulation__clock="realtime", simulation__factor=1.0)
    outcome, environment, _ = play(constant(MOVE), domain_id, config=config)
    assert outcome.success
    assert float(environment.commands[0].linear[0]) in (0.0, pytest.approx(0.2))
    assert outcome.steps <= 30  # 10 with motion, and the first few without
