import numpy as np

from heisd_ros.protocols import EnvironmentStep
from heisd_ros.simulation.rollout import rollout
from heisd_ros.types import Action, DecodeReport, DecodeResult, DraftKind, Observation


class FakeEnvironment:
    instruction = "push the block"
    control_hz = 10.0

    def __init__(self, solved_at=None, crash_at=None):
        self.solved_at, self.crash_at = solved_at, crash_at
        self.commands, self.seed = [], None

    def reset(self, seed):
        self.seed = seed
        return Observation((), None, self.instruction, stamp_ns=7)

    def step(self, command):
        self.commands.append(command)
        if len(self.commands) == self.crash_at:
            raise RuntimeError("the joint is stuck")
        solved = len(self.commands) == self.solved_at
        return EnvironmentStep(Observation((), None, self.instruction), solved)

    def close(self):
        pass


class FakePolicy:
    def __init__(self, crash_at=None):
        self.crash_at, self.acted, self.instruction, self.ended = crash_at, 0, None, []

    def reset(self, instruction):
        self.instruction = instruction

    def act(self, observation):
        self.acted += 1
        if self.acted == self.crash_at:
            raise ValueError("no features")
        values = np.array([1.0, 0, 0, 0, 0, 0.5, 1])
        report = DecodeReport(DraftKind.AR, False, 0, 7, {})
        return DecodeResult(Action(np.arange(7), values), report)

    def end_episode(self, success):
        self.ended.append(success)


def test_solved_episode_ends_at_once():
    env, policy = FakeEnvironment(solved_at=3), FakePolicy()
    outcome = rollout(env, policy, 5, 10)
    assert (outcome.success, outcome.crash, outcome.steps, outcome.init) == (True, "", 3, 5)
    assert len(outcome.reports) == 3
    assert outcome.task == policy.instruction == "push the block"
    assert policy.ended == [True]


def test_running_out_of_steps_is_a_failure_and_no_crash():
    policy = FakePolicy()
    outcome = rollout(FakeEnvironment(), policy, 0, 4)
    assert (outcome.success, outcome.crash, outcome.steps) == (False, "", 4)
    assert policy.ended == [False]


def test_exception_of_the_policy_is_a_crash_and_no_failure():
    policy = FakePolicy(crash_at=3)
    outcome = rollout(FakeEnvironment(), policy, 0, 10)
    assert not outcome.success
    assert outcome.crash == "ValueError: no features"
    assert outcome.steps == 2
    assert policy.ended == []


def test_exception_of_the_simulator_is_a_crash():
    outcome = rollout(FakeEnvironment(crash_at=1), FakePolicy(), 0, 10)
    assert outcome.crash == "RuntimeError: the joint is stuck"
    assert outcome.steps == 0


def test_command_carries_scales_frame_and_stamp():
    env = FakeEnvironment(solved_at=1)
    rollout(env, FakePolicy(), 0, 10)
    (command,) = env.commands
    # 1 unit = 0.05 m in 0.1 s = 0.5 m/s; 0.5 units = 0.25 rad in 0.1 s = 2.5 rad/s.
    assert np.allclose(command.linear, [0.5, 0, 0])
    assert np.allclose(command.angular, [0, 0, 2.5])
    assert (command.gripper, command.frame_id, command.observed_ns) == (1.0, "world", 7)
