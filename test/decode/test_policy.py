"""The policy on a real (tiny, random) checkpoint: episodes, instructions, state, missing inputs."""

import dataclasses

import numpy as np
import pytest

from heisd_ros.build import Components, build_policy, embedding_facts
from heisd_ros.config import make_config
from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import ConfigError, DataError, ModelError, StoreError
from heisd_ros.types import DraftKind, Frame, Observation, Proprioception

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from heisd_ros.models.tiny import make_tiny_checkpoint

    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), views=2, state_size=4)


def policy(checkpoint, method="ar", **overrides):
    values = {"model.checkpoint": str(checkpoint), "model.device": "cpu", "decode.method": method}
    return build_policy(make_config({**values, "retrieval.store": "none", **overrides}))


def observation(seed=0, instruction="pick it", step=0, opening=1.0, pose=True):
    rng = np.random.default_rng(seed)
    frames = tuple(
        Frame(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8), name, step * 50_000_000)
        for name in ("third_person", "wrist")
    )
    position = np.array([0.4 + 0.01 * step, 0.0, 0.3])
    state = Proprioception(position, np.array([0, 0, 0, 1.0]), opening, 1 + step * 50_000_000)
    return Observation(frames, state if pose else None, instruction)


def test_the_same_episode_gives_the_same_actions(checkpoint):
    first = [policy(checkpoint).act(observation(s, step=s)).action.tokens for s in range(2)]
    driver = policy(checkpoint)
    again = [driver.act(observation(s, step=s)).action.tokens for s in range(2)]
    assert np.array_equal(first, again)


def test_every_stage_of_the_step_is_timed(checkpoint):
    report = policy(checkpoint).act(observation()).report
    assert set(report.stage_ms) == {"vision", "draft", "prefill", "decode", "total"}
    parts = sum(ms for stage, ms in report.stage_ms.items() if stage != "total")
    assert 0 < parts <= report.stage_ms["total"]


def test_picture_instruction_and_state_all_reach_the_target(checkpoint):
    driver = policy(checkpoint)

    def hidden(**change):
        seen = observation(**change)
        features = driver._encoder.encode(seen.frames)
        state = driver._state(seen.proprioception)
        prompt = driver.decoder.target.prompt(seen.instruction)
        answer = driver.decoder.target.start(prompt, features.patches, state=state)
        return np.asarray(answer.hidden[0], dtype=np.float64)

    base = hidden()
    for change in ({"seed": 1}, {"instruction": "place it"}, {"opening": 0.0}, {"step": 9}):
        assert np.abs(hidden(**change) - base).max() > 1e-6, change


def test_the_measured_force_reaches_whoever_chooses_the_rule(checkpoint, monkeypatch):
    driver = policy(checkpoint)
    step, asked = type(driver.decoder).step, []
    monkeypatch.setattr(
        type(driver.decoder),
        "step",
        lambda self, seen: asked.append(seen.draft) or step(self, seen),
    )
    driver.act(dataclasses.replace(observation(), force=7.5))
    driver.act(observation(step=1))
    assert [request.force for request in asked] == [7.5, None]


def test_a_new_instruction_starts_a_new_episode(checkpoint):
    driver = policy(checkpoint)
    for step in range(4):
        driver.act(observation(step=step))
    assert driver.act(observation(step=4)).metric.samples == 5
    assert driver.act(observation(step=5, instruction="place it")).metric.samples == 1
    assert len(driver._past()) == 1


def test_the_window_grows_until_the_boundary_can_choose(checkpoint):
    driver = policy(checkpoint, "heisd")
    reports = [driver.act(observation(step=step)).report for step in range(3)]
    # Only from the third sample on is there a mode; without a store it still has the motion.
    assert all(r.kind is DraftKind.AR and r.forwards == 7 for r in reports[:2])
    assert reports[2].kind is not DraftKind.AR
    assert reports[2].nodes > 0


def test_a_model_with_state_refuses_a_missing_or_nan_pose(checkpoint):
    driver = policy(checkpoint)
    with pytest.raises(DataError, match="end-effector pose"):
        driver.act(observation(pose=False))
    bad = observation()
    bad.proprioception.position[0] = np.nan
    with pytest.raises(DataError, match="end-effector pose"):
        driver.act(bad)
    assert driver.act(observation()).report.forwards == 7


def test_an_empty_instruction_is_refused(checkpoint):
    with pytest.raises(DataError, match="instruction is empty"):
        policy(checkpoint).act(observation(instruction=" "))


def test_missing_weights_and_store_are_named(checkpoint, tmp_path):
    with pytest.raises(ModelError, match="no checkpoint folder"):
        policy(tmp_path / "nothing")
    with pytest.raises(StoreError, match="no demonstration store"):
        policy(checkpoint, "heisd", **{"retrieval.store": str(tmp_path / "nothing")})


def test_an_unknown_method_names_the_nearest(checkpoint):
    with pytest.raises(ConfigError, match="did you mean 'heisd'"):
        policy(checkpoint, "heisdd")


def test_a_store_built_with_another_encoder_is_refused(checkpoint, tmp_path):
    spec = SyntheticSpec()
    facts = embedding_facts(make_config({}))  # only the encoder differs
    profile = StoreProfile("another", spec.embedding_size, preprocessing=facts)
    with StoreWriter(tmp_path / "store", profile) as writer:
        for rows in synthetic_episodes(spec):
            writer.add_episode(rows)
        writer.finish()
    with pytest.raises(StoreError, match="another vision encoder"):
        policy(checkpoint, "heisd", **{"retrieval.store": str(tmp_path / "store")})


def test_end_of_an_episode_clears_the_instruction(checkpoint):
    driver = policy(checkpoint)
    driver.act(observation())
    driver.end_episode(success=True)
    assert driver.instruction is None


def test_components_can_be_shared_between_nodes(checkpoint):
    from heisd_ros.build import build_components

    config = make_config({"model.checkpoint": str(checkpoint), "decode.method": "ar"})
    parts = build_components(config)
    assert isinstance(parts, Components)
    drivers = [build_policy(config, parts) for _ in range(2)]
    assert drivers[0].decoder.target is drivers[1].decoder.target


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("forward", [0, 3])
def test_out_of_memory_in_the_middle_of_a_step_leaves_the_next_one_whole(
    checkpoint, monkeypatch, forward, reuse
):
    undisturbed, driver = policy(checkpoint), policy(checkpoint, **{"model.token_reuse": reuse})
    driver.act(observation(0))
    # Two layers per forward; the last layer of this forward runs out.
    layer = driver.decoder.target.network.language_model.layers[1]
    passes, run = iter(range(100)), layer.forward

    def exhausted(*arguments):
        if next(passes) == forward:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(layer, "forward", exhausted)
        with pytest.raises(torch.OutOfMemoryError):
            driver.act(observation(1, step=1))
    expected = undisturbed.act(observation(2, step=2)).action
    assert driver.act(observation(2, step=2)).action.tokens.tolist() == expected.tokens.tolist()
    assert len(driver._history) == 2  # the failed step left no action behind


def test_an_instruction_over_the_slot_budget_is_refused_and_the_next_one_works(checkpoint):
    driver = policy(checkpoint)
    with pytest.raises(ModelError, match="at most 96 fit; shorten the instruction"):
        driver.act(observation(instruction="x" * 200))
    assert driver.act(observation()).action.tokens.shape == (7,)


def test_token_reuse_is_a_setting_and_ends_with_the_episode(checkpoint):
    every = {"model.token_reuse_similarity": -1.0, "model.token_reuse_relevant": 0.0}
    driver = policy(checkpoint, **{"model.token_reuse": True, **every})
    target = driver.decoder.target
    driver.act(observation(0))
    assert target.reused == 0
    driver.act(observation(0, step=1))
    # 0.55 of two views of 16 patches is 17; rows are run again in groups of eight.
    assert target.reused == 16
    driver.end_episode(success=True)
    driver.act(observation(0, step=2))
    assert target.reused == 0
    off = policy(checkpoint)
    for step in range(2):
        off.act(observation(0, step=step))
        assert off.decoder.target.reused == 0
