import dataclasses
import itertools
import json

import numpy as np
import pytest

from heisd_ros.config import HeisdConfig, replace
from heisd_ros.demonstrations.episode import Episode, save_episode
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.offline.command_line import numbers, read_config
from heisd_ros.offline.evaluation_plan import Plan, claim_folder
from heisd_ros.offline.records import read_records

pytest.importorskip("pyarrow")
from heisd_ros.offline.episode_runner import EpisodeRunner, demonstrated_actions
from heisd_ros.offline.recording import RecordingPolicy, Shadow
from heisd_ros.protocols import EnvironmentStep
from heisd_ros.simulation.replay_baseline import OpenLoopReplay
from heisd_ros.types import (
    Action,
    DecodeReport,
    DecodeResult,
    DraftKind,
    Frame,
    Observation,
    Proprioception,
    VisualFeatures,
)

HERE = np.array([0.0, 0.0, 0.5])
UPRIGHT = np.array([0.0, 0.0, 0.0, 1.0])


class CountingEnvironment:
    """Solved after `seed + 1` steps; remembers what it was told."""

    instruction = "pick it"
    control_hz = 20.0

    def __init__(self, task=0):
        self.task, self.closed, self.commands = task, False, []

    def observe(self):
        frame = Frame(np.zeros((4, 4, 3), np.uint8), "third_person", 0)
        pose = Proprioception(HERE + 0.001 * self.steps, UPRIGHT, 1.0, stamp_ns=self.steps * 10**8)
        return Observation((frame,), pose, self.instruction, stamp_ns=self.steps * 10**8)

    def reset(self, seed):
        self.steps, self.needed = 0, seed + 1
        return self.observe()

    def step(self, command):
        self.steps += 1
        self.commands.append(command)
        return EnvironmentStep(self.observe(), self.steps >= self.needed)

    def close(self):
        self.closed = True


class ConstantPolicy:
    """Always the same tokens; may fail at a step."""

    def __init__(self, token=31800, *, fails_at=None):
        self.token, self.fails_at = token, fails_at
        self.seen, self.ended = [], []

    def reset(self, instruction):
        self.step = 0

    def act(self, observation):
        self.seen.append(observation)
        if self.step == self.fails_at:
            raise DataError("the camera is gone")
        self.step += 1
        stages = {"vision": 2.0, "total": 5.0}
        report = DecodeReport(DraftKind.AR, False, 1, 7, stages)
        tokens = np.full(7, self.token)
        return DecodeResult(Action(tokens, np.zeros(7)), report)

    def end_episode(self, success):
        self.ended.append(success)


def some_plan(tmp_path, **changes):
    plan = Plan("libero_spatial", (0, 1), (0, 2), ("ar", "heisd"), tmp_path, HeisdConfig())
    return dataclasses.replace(plan, **changes)


def runner_of(plan, policy, environments):
    def make_environment(task, pictures):
        environments.append(CountingEnvironment(task))
        return environments[-1]

    clock = itertools.count(0.0, 1.0)
    return EpisodeRunner(
        plan,
        make_environment=make_environment,
        make_policy=lambda key: RecordingPolicy(policy, clock=lambda: next(clock)),
        clock=lambda: next(clock),
    )


def test_every_method_gets_the_same_initial_states(tmp_path):
    plan = some_plan(tmp_path, methods=("replay", "ar"), demos=tmp_path)
    found = [(key.task, key.init, key.method) for key in plan.episodes()]
    # Replay needs no pictures: it comes last, with a scene of its own.
    cases = [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert found == [(*case, "ar") for case in cases] + [(*case, "replay") for case in cases]


def test_success_and_steps_are_written_per_episode(tmp_path):
    plan, environments = some_plan(tmp_path), []
    runner = runner_of(plan, ConstantPolicy(), environments)
    for chunk in plan.pending():
        for key in chunk:
            runner.run(key)
    runner.close()
    records = {r.key: r for r in read_records(plan.folder)}
    assert len(records) == 8
    assert all(record.success for record in records.values())
    # Init 2 is solved at its third step.
    assert {r.key.init: r.steps for r in records.values()} == {0: 1, 2: 3}
    assert all(len(record.rows) == record.steps for record in records.values())
    third = next(r for r in records.values() if r.key.init == 2)
    assert [row.position[0] for row in third.rows] == pytest.approx([0.0, 0.001, 0.002])
    # One scene per task, each closed before the next: two would not fit into the memory.
    assert [env.task for env in environments] == [0, 1]
    assert all(env.closed for env in environments)


def test_finished_episodes_are_not_run_again(tmp_path):
    plan, environments = some_plan(tmp_path), []
    runner = runner_of(plan, ConstantPolicy(), environments)
    first = plan.pending()[0]
    for key in first:
        runner.run(key)
    left = [key for chunk in plan.pending() for key in chunk]
    assert len(left) == 8 - len(first)
    assert not set(first) & set(left)


def test_crash_is_recorded_and_is_no_failure(tmp_path):
    plan = some_plan(tmp_path, tasks=(0,), inits=(5,), methods=("ar",))
    runner = runner_of(plan, ConstantPolicy(fails_at=2), [])
    record = runner.run(plan.episodes()[0])
    assert "the camera is gone" in record.crash
    assert not record.success
    assert len(record.rows) == 2
    assert not plan.pending()


def test_episode_ends_at_the_step_limit(tmp_path):
    plan = some_plan(tmp_path, tasks=(0,), inits=(9,), methods=("ar",), max_steps=4)
    policy = ConstantPolicy()
    record = runner_of(plan, policy, []).run(plan.episodes()[0])
    assert (record.success, record.steps, record.crash) == (False, 4, "")
    assert policy.ended == [False]


def test_limits_are_those_of_the_protocol(tmp_path):
    assert some_plan(tmp_path).cap == 220
    assert some_plan(tmp_path, suite="libero_10").cap == 520
    with pytest.raises(ConfigError, match="max-steps"):
        some_plan(tmp_path, suite="my_suite").check()


@pytest.mark.parametrize(
    ("methods", "word"),
    [(("hiesd",), "heisd"), (("replay",), "--demos"), (("retrieval_only@few",), "few=FOLDER")],
)
def test_impossible_plan_is_refused_before_anything_is_loaded(tmp_path, methods, word):
    with pytest.raises(ConfigError, match=word):
        some_plan(tmp_path, methods=methods).check()


def test_folder_with_other_settings_is_refused(tmp_path):
    plan = some_plan(tmp_path)
    claim_folder(plan, {"command": "first"})
    # More tasks and methods may be added ...
    claim_folder(dataclasses.replace(plan, tasks=(7,), methods=("r_sd",)), {"command": "second"})
    runs = json.loads((tmp_path / "run.json").read_text())["runs"]
    assert [run["command"] for run in runs] == ["first", "second"]
    # ... but not episodes under another boundary.
    other = replace(plan.config, trajectory__threshold=0.5)
    with pytest.raises(ConfigError, match=r"trajectory\.threshold"):
        claim_folder(dataclasses.replace(plan, config=other), {})


def test_folder_of_another_checkpoint_is_refused(tmp_path):
    checkpoint = tmp_path / "weights"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"one")
    config = replace(HeisdConfig(), model__checkpoint=str(checkpoint))
    plan = some_plan(tmp_path / "run", config=config)
    claim_folder(plan, {})
    claim_folder(plan, {})
    (checkpoint / "model.safetensors").write_bytes(b"two")
    with pytest.raises(ConfigError, match="checkpoint"):
        claim_folder(plan, {})


class OneFeature:
    def __init__(self):
        self.calls = 0

    def encode(self, frames):
        self.calls += 1
        return VisualFeatures(np.zeros((1, 1, 1)), np.ones(1, np.float32))


def test_shadow_sees_what_the_policy_sees_and_is_not_charged_for():
    main, ghost, encoder = ConstantPolicy(31800), ConstantPolicy(31790), OneFeature()
    clock = iter([0.0, 0.004, 0.004, *[9.0] * 9])
    watched = RecordingPolicy(main, Shadow(ghost, encoder), clock=lambda: next(clock))
    watched.reset("pick it")
    environment = CountingEnvironment()
    result = watched.act(environment.reset(3))
    row = watched.rows[0]
    assert result.action.tokens.tolist() == [31800] * 7
    assert row.tokens.tolist() == [31800] * 7
    assert row.shadow_tokens.tolist() == [31790] * 7
    assert encoder.calls == 1
    assert main.seen[0].features is ghost.seen[0].features is not None
    # 2 + 4 ms vision, 5 + 4 ms in all: the encoding is charged once, the shadow never.
    assert row.report.stage_ms["vision"] == pytest.approx(6.0)
    assert row.report.stage_ms["total"] == pytest.approx(9.0)


def save_demo(path, *, success, value):
    arrays = {
        "images": np.zeros((2, 1, 2, 2, 3), np.uint8),
        "actions": np.zeros((2, 7), np.float32),
        "state": np.zeros((2, 8), np.float32),
    }
    privileged = {"executed": np.full((2, 7), value, np.float32)}
    facts = {"suite": "libero_spatial", "task": 1, "success": success, "privileged": privileged}
    save_episode(path, Episode(**arrays, instruction="a", cameras=("c",), control_hz=20.0, **facts))


def test_replay_takes_what_the_first_successful_demonstration_executed(tmp_path):
    save_demo(tmp_path / "demos/1.npz", success=False, value=0.1)
    save_demo(tmp_path / "demos/2.npz", success=True, value=0.25)
    save_demo(tmp_path / "demos/3.npz", success=True, value=0.3)
    plan = some_plan(tmp_path, demos=tmp_path / "demos")
    assert demonstrated_actions(plan, 1).tolist() == [[0.25] * 7] * 2
    with pytest.raises(DataError, match="task 0"):
        demonstrated_actions(plan, 0)


def test_replay_stands_still_after_its_last_action():
    policy = OpenLoopReplay(np.array([[0.1] * 6 + [1.0], [0.2] * 6 + [0.0]]))
    policy.reset("whatever")
    observation = CountingEnvironment().reset(0)
    values = [policy.act(observation).action.values.tolist() for _ in range(3)]
    assert values == [[0.1] * 6 + [1.0], [0.2] * 6 + [0.0], [0.0] * 7]
    policy.reset("again")
    assert policy.act(observation).action.values[0] == 0.1


def test_number_lists_and_layered_files(tmp_path):
    assert numbers("0,3,10-12,3") == (0, 3, 10, 11, 12)
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("trajectory: {window: 9, alpha: 0.2}\n")
    second.write_text("trajectory: {window: 11}\n")
    config = read_config([first, second], ["retrieval.top_k=3"])
    assert (config.trajectory.window, config.trajectory.alpha) == (11, 0.2)
    assert config.retrieval.top_k == 3
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        read_config([], ["retrieval.top_k"])
