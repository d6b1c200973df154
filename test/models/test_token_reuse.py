"""Reuse of K/V rows across frames: the plan by hand, the answer against a fresh prefill."""

import numpy as np
import pytest
import torch

from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ConfigError, ModelError
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tiny import make_tiny_checkpoint
from heisd_ros.models.token_reuse import ReuseOptions, TokenReuse, similarity

ALL = ReuseOptions(similarity=0.9, share=1.0, relevant=0.0, refresh=100)
PROMPT = np.array([1, 5, 29871])
INSTRUCTION = "pick up the black bowl"
TREE = DraftTree.from_paths([[31800, 31801, 31802], [31800, 31900], [31850]])


def corners(count=16):
    """Patches whose features all point elsewhere."""
    return np.eye(count, dtype=np.float32)


def planned(options, patches, relevance=None):
    """Return what is run again for `patches` behind a prefill over `corners()`."""
    reuse = TokenReuse(options)
    assert reuse.plan(PROMPT, corners()) is None
    reuse.commit(PROMPT, corners(), None, relevance)
    return reuse.plan(PROMPT, patches).tolist()


def test_nothing_is_run_again_for_the_same_picture():
    assert planned(ALL, corners()) == []


def test_a_changed_patch_is_run_again_with_its_group_of_eight():
    changed = corners()
    changed[3] = -changed[3]
    again = planned(ALL, changed)
    assert 3 in again
    assert len(again) == 8


def test_at_most_the_share_is_reused():
    # 0.5 of 16 patches: the other 8 are run again although none changed.
    options = ReuseOptions(similarity=0.9, share=0.5, relevant=0.0, refresh=100)
    assert len(planned(options, corners())) == 8


def test_the_patches_that_the_text_looks_at_are_run_again():
    # Half of 16 patches are relevant: the eight with the largest attention.
    options = ReuseOptions(similarity=0.9, share=1.0, relevant=0.5, refresh=100)
    relevance = np.arange(16, dtype=np.float32)
    assert planned(options, corners(), relevance) == list(range(8, 16))


def test_a_slow_drift_is_seen_because_rows_remember_what_they_were_made_of():
    options = ReuseOptions(similarity=0.8, share=1.0, relevant=0.0, refresh=100)
    reuse = TokenReuse(options)
    reuse.commit(PROMPT, corners(), None, None)
    for turn in (0.2, 0.4):  # cosines of neighbours stay above 0.9
        patches = corners()
        patches[0, :2] = np.cos(turn), np.sin(turn)
        again = reuse.plan(PROMPT, patches)
        assert again.tolist() == []
        reuse.commit(PROMPT, patches, again, None)
    patches[0, :2] = np.cos(0.8), np.sin(0.8)
    assert 0 in reuse.plan(PROMPT, patches)


@pytest.mark.parametrize("lost", ["refresh", "prompt", "drop"])
def test_everything_is_run_again_after(lost):
    reuse = TokenReuse(ReuseOptions(similarity=0.9, share=1.0, relevant=0.0, refresh=3))
    reuse.commit(PROMPT, corners(), None, None)
    for _ in range(2):
        again = reuse.plan(PROMPT, corners())
        assert again is not None
        if lost == "refresh":
            reuse.commit(PROMPT, corners(), again, None)
    if lost == "drop":
        reuse.drop()
    prompt = np.array([1, 6, 29871]) if lost == "prompt" else PROMPT
    assert reuse.plan(prompt, corners()) is None


def test_similarity_is_the_cosine_about_the_mean():
    # The mean is (5, 0): about it the others are (-1, 0) and (1, 0), the patches (0, 1) and (2, 0).
    patches = np.array([[5.0, 1.0], [7.0, 0.0]], np.float32)
    others = np.array([[4.0, 0.0], [6.0, 0.0]], np.float32)
    assert similarity(patches, others).tolist() == [0.0, 1.0]


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="refresh 0"):
        TokenReuse(ReuseOptions(refresh=0))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), views=2, state_size=3)


@pytest.fixture(scope="module")
def fresh(checkpoint):
    return OpenVlaTarget.from_pretrained(checkpoint, "cpu")


@pytest.fixture
def reusing(checkpoint):
    return loaded(checkpoint)


def loaded(checkpoint, **changes):
    values = {"similarity": 0.9, "share": 1.0, "relevant": 0.0, "refresh": 100, **changes}
    return OpenVlaTarget.from_pretrained(checkpoint, "cpu", reuse=ReuseOptions(**values))


@pytest.fixture
def patches(fresh, frame):
    return fresh.encode([frame(1), frame(2)]).patches


STATE = np.array([0.1, 0.2, 0.3], np.float32)


def begin(target, patches, tree=None, instruction=INSTRUCTION, state=STATE):
    return target.start(target.prompt(instruction), patches, tree, state=state)


def finish(target, answer):
    """Accept the best chain's first node and go on: the K/V rows of the tree must be right too."""
    target.accept([0, 1])
    return target.verify(TREE)


def same(answer, expected):
    assert answer.target_next.tolist() == expected.target_next.tolist()
    torch.testing.assert_close(answer.hidden, expected.hidden, atol=1e-5, rtol=1e-4)


def test_the_same_frame_again_is_answered_as_by_a_fresh_prefill(fresh, reusing, patches):
    begin(reusing, patches)
    finish(reusing, begin(reusing, patches, TREE))
    # Another state: its row and all behind it are new, the 32 patches in front are not.
    moved = np.array([0.5, -0.5, 0.9], np.float32)
    answer, expected = (begin(t, patches, TREE, state=moved) for t in (reusing, fresh))
    assert reusing.reused == 32
    same(answer, expected)
    for name in ("embeds", "hidden"):
        kept, whole = (getattr(t.prefix_features(), name) for t in (reusing, fresh))
        torch.testing.assert_close(kept, whole, atol=1e-5, rtol=1e-4)
    same(finish(reusing, answer), finish(fresh, expected))


def test_a_change_in_the_last_patch_is_exact_because_no_kept_row_saw_it(fresh, reusing, patches):
    begin(reusing, patches)
    changed = patches.clone()
    changed[1, -8:] = -changed[1, -8:]
    answer = begin(reusing, changed, TREE)
    assert reusing.reused == 24
    same(answer, begin(fresh, changed, TREE))


def test_a_change_in_the_first_patch_is_seen_by_all_that_is_run_again(fresh, reusing, patches):
    before = begin(reusing, patches)
    changed = patches.clone()
    changed[0, 0] = -changed[0, 0]
    answer = begin(reusing, changed)
    assert reusing.reused == 24
    assert not torch.allclose(answer.hidden, before.hidden, atol=1e-3)
    # It is an approximation: patches behind the first that were kept had seen the old one.
    assert not torch.allclose(answer.hidden, begin(fresh, changed).hidden, atol=1e-6)


def test_off_is_the_same_to_the_last_bit(fresh, checkpoint, patches):
    off = OpenVlaTarget.from_pretrained(checkpoint, "cpu", reuse=None)
    for _ in range(2):
        first, second = begin(off, patches, TREE), begin(fresh, patches, TREE)
        assert torch.equal(first.hidden, second.hidden)
        assert off.reused == 0


@pytest.mark.parametrize("lost", ["instruction", "reset", "failure"])
def test_nothing_is_reused_after(lost, fresh, reusing, patches, monkeypatch):
    begin(reusing, patches)
    text = INSTRUCTION
    if lost == "instruction":
        text = "open the top drawer"
    elif lost == "reset":
        reusing.reset()
    else:
        layer = reusing.network.language_model.layers[1]
        with monkeypatch.context() as patch:
            patch.setattr(layer, "forward", out_of_memory)
            with pytest.raises(torch.OutOfMemoryError):
                begin(reusing, -patches, TREE)
    answer = begin(reusing, patches, TREE, text)
    assert reusing.reused == 0
    same(answer, begin(fresh, patches, TREE, text))


def out_of_memory(*_):
    raise torch.OutOfMemoryError("out of memory")


def test_rows_that_are_not_kept_are_refused(fresh, patches):
    begin(fresh, patches)
    decoder = fresh._decoder
    with pytest.raises(ModelError, match="run the whole prefix"):
        decoder.start(torch.zeros(1, 1, 16), None, np.array([7]))


def test_attention_of_the_text_is_that_of_a_plain_computation(checkpoint, fresh, patches):
    target = loaded(checkpoint, relevant=0.25)
    begin(target, patches)
    llama, prefix = fresh.network.language_model, target.prefix_features().embeds[None]
    length, layer = prefix.shape[1], llama.layers[0]  # the middle one of two
    with torch.inference_mode():
        angles = llama._angles(torch.arange(length), prefix.dtype)
        q, k, _ = layer.self_attn.project(layer.input_layernorm(prefix), *angles)
        scores = (q @ k.transpose(-1, -2)) / layer.self_attn.head_dim**0.5
        causal = torch.ones(length, length).tril().bool()
        weights = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    # Rows: BOS, 32 patches, the state, the text; what the text pays, averaged, per patch.
    expected = weights[0, :, 34:, 1:33].mean(dim=(0, 1)).numpy()
    np.testing.assert_allclose(target._reusing._reuse._relevance, expected, atol=1e-6)
    begin(target, patches)
    assert target.reused == 24  # a quarter of 32 is relevant
    np.testing.assert_allclose(target._reusing._reuse._relevance, expected, atol=1e-6)


def test_attention_of_a_compiled_model_is_refused(checkpoint, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    with pytest.raises(ConfigError, match="token_reuse_relevant"):
        OpenVlaTarget.from_pretrained(checkpoint, "cpu", compiled=True, reuse=ReuseOptions())


def test_padded_buckets_reuse_alike(checkpoint, fresh, patches, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    bucketed = OpenVlaTarget.from_pretrained(checkpoint, "cpu", compiled=True, reuse=ALL)
    begin(bucketed, patches)
    answer, expected = (begin(target, patches, TREE) for target in (bucketed, fresh))
    assert bucketed.reused == 32
    same(answer, expected)
    same(finish(bucketed, answer), finish(fresh, expected))
