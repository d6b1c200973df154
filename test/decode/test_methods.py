"""The named methods on a real (tiny) model: the lossless ones decode the tokens of `ar`."""

import numpy as np
import pytest

from heisd_ros.build import build_components, build_policy
from heisd_ros.config import make_config, replace
from heisd_ros.decode.methods import METHODS, method_config
from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import ConfigError
from heisd_ros.types import Frame, Observation, Proprioception

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TASK = "pick it"


def observation(step):
    rng = np.random.default_rng(step)
    frames = tuple(
        Frame(rng.integers(0, 256, (56, 56, 3), dtype=np.uint8), name, step * 50_000_000)
        for name in ("third_person", "wrist")
    )
    position = np.array([0.4 + 0.012 * step, 0.0, 0.3])
    state = Proprioception(position, np.array([0, 0, 0, 1.0]), 1.0, 1 + step * 50_000_000)
    return Observation(frames, state, TASK)


def save_random_drafter(target, folder):
    import torch

    from heisd_ros.models.draft_block import DraftBlock

    torch.manual_seed(0)
    block = DraftBlock(target.network.config.llm)
    block.save(folder, fingerprint=target.info.fingerprint, dtype=torch.float32)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tiny model, and a store that holds its own actions for every other picture."""
    from heisd_ros.models.tiny import make_tiny_checkpoint

    folder = tmp_path_factory.mktemp("world")
    values = {
        "model.checkpoint": str(make_tiny_checkpoint(folder / "tiny", views=2)),
        "model.device": "cpu",
        "retrieval.store": str(folder / "store"),
        "trajectory.threshold": 0.05,
    }
    config = make_config({**values, "decode.method": "ar"})
    parts = build_components(config)
    values["draft.drafter"] = str(folder / "drafter")
    save_random_drafter(parts.target, folder / "drafter")
    driver = build_policy(config, parts)
    steps = range(0, 16, 2)
    embeddings = [parts.encoder.encode(observation(s).frames).embedding for s in steps]
    actions = np.stack([driver.act(observation(s)).action.values for s in steps])
    actions[:, 6] = np.clip(actions[:, 6], 0.0, 1.0)  # a random model's gripper; never drafted
    fingerprint = parts.target.info.fingerprint
    profile = StoreProfile(
        fingerprint,
        len(embeddings[0]),
        cameras=("third_person", "wrist"),
        preprocessing={"crop_area": 1.0, "pool": "mean"},
        created_by="test",
    )
    with StoreWriter(folder / "store", profile) as writer:
        writer.add_episode(
            EpisodeRows(
                TASK,
                "ep",
                np.stack(embeddings),
                actions,
                np.arange(len(actions)),
                np.zeros((len(actions), 3)),
                np.ones(len(actions)),
            )
        )
        writer.finish()
    return values


def run(world, method, steps=12):
    driver = build_policy(make_config({**world, "decode.method": method}))
    return [driver.act(observation(step)) for step in range(steps)]


def tokens(results):
    return [result.action.tokens.tolist() for result in results]


EXACT_METHODS = ["ar", "d_sd", "heisd_lossless", "jacobi", "r_sd"]


def test_the_exact_methods_say_so_and_no_other():
    assert sorted(m.name for m in METHODS.values() if m.exact) == EXACT_METHODS


@pytest.mark.parametrize("method", EXACT_METHODS)
def test_exact_methods_decode_the_tokens_of_autoregression(world, method):
    reference, results = run(world, "ar"), run(world, method)
    assert tokens(results) == tokens(reference)
    assert all(result.report.forwards <= 7 for result in results)


def test_a_stored_picture_is_decoded_in_one_forward(world):
    forwards = [result.report.forwards for result in run(world, "r_sd")]
    # Every other picture is in the store with the model's own action as its Top-1.
    assert forwards[::2] == [1] * 6


def test_the_lossless_method_is_never_slower_than_one_chain(world):
    def total(method):
        return sum(result.report.forwards for result in run(world, method))

    assert total("heisd_lossless") <= total("r_sd") < total("ar") == 84


def test_retrieval_alone_runs_no_forward(world):
    results = run(world, "retrieval_only")
    assert all(result.report.skipped and result.report.forwards == 0 for result in results)


def test_hybrid_method_retrieves_once_the_window_is_long_enough(world):
    kinds = [result.report.kind.value for result in run(world, "heisd")]
    # 12 mm per step at 20 Hz is far above the boundary: retrieval from the third sample on.
    assert kinds[:2] == ["ar", "ar"]
    assert set(kinds[2:]) == {"retrieval"}


def test_the_published_profile_skips_two_of_three_retrieved_steps(world):
    skipped = [result.report.skipped for result in run(world, "heisd_paper")]
    # The first two steps have no F yet; the skips start anew behind every verified step.
    assert skipped[2:] == [True, True, False] * 3 + [True]


def test_the_drafter_is_told_apart_from_what_it_finishes(world):
    reports = [result.report for result in run(world, "spec_vla")]
    assert {report.kind.value for report in reports} == {"drafter"}
    # The prefill cannot be drafted for: two forwards at least, with nodes only in the later ones.
    assert all(2 <= report.forwards <= 7 and report.nodes > 0 for report in reports)


def test_kerv_fills_in_what_was_rejected_in_every_fourth_step(world):
    results = run(world, "kerv")
    filled = [result.report.unverified for result in results]
    # A random drafter is rejected at once: one token of the prefill, one correction, five filled.
    assert [n > 0 for n in filled] == [(step + 1) % 4 == 0 for step in range(12)]
    before, step = results[2].action.tokens, results[3]
    assert step.report.unverified <= 5
    assert step.action.tokens[6] == before[6]


def test_the_published_profile_brings_its_own_window(world):
    config = make_config({**world, "decode.method": "heisd_paper", "trajectory.window": 15})
    assert method_config(config).trajectory.window == 5
    assert method_config(replace(config, decode__method="heisd")).trajectory.window == 15


def test_the_published_profile_is_that_of_the_published_code():
    config = method_config(make_config({"decode.method": "heisd_paper"}))
    trajectory, verify = config.trajectory, config.verify
    assert (trajectory.window, trajectory.alpha) == (5, 0.5)
    assert (trajectory.radius, trajectory.displacement) == ("centroid", "last_to_all")
    assert (trajectory.radius_high, trajectory.displacement_high) == (0.015654, 0.128629)
    assert (trajectory.threshold, trajectory.hysteresis, trajectory.dwell) == (0.217119, 1.0, 0)
    assert (config.retrieval.top_k, config.draft.recombine) == (5, False)
    assert (verify.rule, verify.sequence_budget, verify.token_budget, verify.strict) == (
        "sequence_relaxed",
        45,
        25,
        True,
    )
    assert (config.skip.rule, config.skip.max_consecutive) == ("schedule", 2)


def test_a_configuration_cannot_relax_an_exact_method():
    for method in EXACT_METHODS:
        given = {"verify.rule": "token_relaxed", "skip.rule": "always", "verify.tighten": True}
        config = method_config(make_config({**given, "decode.method": method}))
        assert (config.verify.rule, config.verify.drafter_rule) == ("exact", "exact")
        assert config.skip.rule == "never"


def test_without_a_drafter_only_methods_that_live_by_it_are_refused(world):
    bare = {**world, "draft.drafter": "none"}
    for name, method in METHODS.items():
        config = make_config({**bare, "decode.method": name})
        if method.needs_drafter:
            with pytest.raises(ConfigError, match="train-drafter"):
                build_policy(config)
        else:
            build_policy(config)
    needing = {name for name, method in METHODS.items() if method.needs_drafter}
    assert needing == {"d_sd", "spec_vla", "kerv", "heisd_paper"}


def test_every_method_is_explained():
    assert all(name == method.name and method.help for name, method in METHODS.items())
