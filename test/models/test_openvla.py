"""The target model on a tiny checkpoint: every fast path against the plain one."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from heisd_ros.draft.tree import DraftTree, leaf_paths
from heisd_ros.errors import ConfigError, DataError, ModelError, ShapeError
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tiny import make_tiny_checkpoint
from heisd_ros.protocols import TargetModel, VisionEncoder
from heisd_ros.types import Frame

INSTRUCTION = "pick up the black bowl"


@pytest.fixture
def step(target, frame):
    """Prompt and patches of one step."""
    return target.prompt(INSTRUCTION), target.encode([frame(1)]).patches


def random_tree(rng, nodes):
    """A tree of random shape, tokens and depth; siblings may share a token."""
    parent = np.array([rng.integers(-1, node) if node else -1 for node in range(nodes)])
    return DraftTree(rng.integers(31744, 32000, nodes), parent)


@torch.inference_mode()
def plain(target, prompt, patches, tokens):
    """Hidden state after prompt and tokens, by one causal forward without cache or tree."""
    network = target.network
    prefix = network.prefix(torch.as_tensor(prompt)[None], torch.as_tensor(patches)[None])
    fed = network.language_model.embed_tokens(torch.as_tensor(tokens, dtype=torch.int64))
    return network.language_model.forward_sequence(torch.cat((prefix, fed[None]), dim=1))[0, -1]


def token_after(target, hidden):
    with torch.inference_mode():
        return int(target.network.language_model.logits(hidden).argmax())


def greedy(target, answer, count=7):
    tokens = [int(answer.target_next[0])]
    while len(tokens) < count:
        answer = target.verify(DraftTree.chain(tokens[-1:]))
        target.accept([0])
        tokens.append(int(answer.target_next[1]))
    return tokens


def path_tokens(tree, node):
    tokens = []
    while node != -1:
        tokens.append(int(tree.tokens[node]))
        node = int(tree.parent[node])
    return tokens[::-1]


def test_implements_both_protocols(target):
    assert isinstance(target, TargetModel)
    assert isinstance(target, VisionEncoder)


@pytest.mark.parametrize("seed", range(3))
def test_every_node_is_answered_as_if_only_its_path_existed(target, step, seed):
    tree = random_tree(np.random.default_rng(seed), 12)
    answer = target.start(*step, tree)
    for node in range(-1, len(tree)):
        hidden = plain(target, *step, path_tokens(tree, node))
        torch.testing.assert_close(answer.hidden[node + 1], hidden, atol=1e-4, rtol=1e-4)
        assert answer.target_next[node + 1] == token_after(target, hidden)


def test_draft_in_the_prefill_equals_verifying_it_afterwards(target, step):
    tree = random_tree(np.random.default_rng(5), 40)
    together = target.start(*step, tree)
    target.start(*step)
    apart = target.verify(tree)
    assert together.target_next.tolist() == apart.target_next.tolist()
    torch.testing.assert_close(together.hidden, apart.hidden, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(together.margin, apart.margin, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_cache_equals_recomputation_after_every_accept(target, step, seed):
    rng = np.random.default_rng(100 + seed)
    committed = []
    tree = random_tree(rng, 10)
    target.start(*step, tree)
    for _ in range(3):
        paths = leaf_paths(tree)
        path = paths[rng.integers(len(paths))][: rng.integers(0, 3)]
        target.accept(path)
        committed += [int(tree.tokens[node]) for node in path]
        tree = random_tree(rng, 10)
        answer = target.verify(tree)
        for node in (-1, 0, 9):
            tokens = [*committed, *path_tokens(tree, node)]
            hidden = plain(target, *step, tokens)
            torch.testing.assert_close(answer.hidden[node + 1], hidden, atol=1e-4, rtol=1e-4)
            assert answer.target_next[node + 1] == token_after(target, hidden)


def test_row_zero_of_verify_is_the_answer_after_the_accepted_path(target, step):
    tree = DraftTree.from_paths([[31800, 31801, 31802], [31800, 31900]])
    first = target.start(*step, tree)
    target.accept([0, 3])
    again = target.verify(DraftTree.chain([31850]))
    assert again.target_next[0] == first.target_next[4]
    assert again.margin[0] == first.margin[4]


def test_accepting_nothing_leaves_the_prefix(target, step):
    first = target.start(*step, DraftTree.chain([31800, 31801]))
    length = target.committed
    target.accept([])
    assert target.committed == length
    assert target.verify(DraftTree.from_paths([])).target_next[0] == first.target_next[0]


def test_margin_is_the_gap_between_the_two_best_logits(target, step):
    answer = target.start(*step)
    with torch.inference_mode():
        best = target.network.language_model.logits(answer.hidden[0]).topk(2).values
    assert answer.margin[0] == pytest.approx(float(best[0] - best[1]), abs=1e-5)


def test_patches_from_a_message_equal_the_device_tensor(target, step):
    prompt, patches = step
    tensor = target.start(prompt, patches)
    array = target.start(prompt, patches.numpy())
    assert torch.equal(tensor.hidden, array.hidden)


def test_tokens_depend_on_picture_and_instruction(target, frame):
    def tokens(seed, text):
        patches = target.encode([frame(seed)]).patches
        return greedy(target, target.start(target.prompt(text), patches))

    assert tokens(1, INSTRUCTION) == tokens(1, INSTRUCTION.upper())
    assert tokens(1, INSTRUCTION) != tokens(2, INSTRUCTION)
    assert tokens(1, INSTRUCTION) != tokens(1, "open the drawer")


def test_a_word_that_beats_every_action_is_returned_as_it_is(checkpoint, tmp_path, target, step):
    folder = shutil.copytree(checkpoint, tmp_path / "broken")
    tensors = load_file(folder / "model.safetensors")
    hidden = target.start(*step).hidden[0]
    tensors["language_model.lm_head.weight"][278] = (100.0 * hidden).to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors")
    broken = OpenVlaTarget.from_pretrained(folder, "cpu", self_check=False)
    assert broken.start(*step).target_next.tolist() == [278]


def test_a_failed_forward_leaves_the_step_and_the_next_one_intact(target, step, monkeypatch):
    expected = greedy(target, target.start(*step))
    answer = target.start(*step)
    tree = DraftTree.chain([int(answer.target_next[0])])

    def explode(*_):
        raise RuntimeError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(target.network.language_model.layers[1], "forward", explode)
        with pytest.raises(RuntimeError, match="out of memory"):
            target.verify(tree)
        with pytest.raises(ModelError, match="call start"):
            target.accept([0])
    # The same step goes on as if nothing had happened ...
    assert greedy(target, answer) == expected
    with monkeypatch.context() as patch:
        patch.setattr(target.network.language_model.layers[0], "forward", explode)
        with pytest.raises(RuntimeError, match="out of memory"):
            target.start(*step)
        with pytest.raises(ModelError, match="call start"):
            target.verify(tree)
    # ... and so does the next one.
    assert greedy(target, target.start(*step)) == expected


def test_an_answer_that_is_not_finite_is_an_error_and_does_not_linger(target, step):
    expected = greedy(target, target.start(*step))
    prompt, patches = step
    with pytest.raises(ModelError, match="not finite"):
        target.start(prompt, torch.full_like(patches, torch.nan))
    assert greedy(target, target.start(prompt, patches)) == expected


def test_calls_out_of_order_or_with_impossible_paths_are_refused(target, step):
    target.start(*step, DraftTree.from_paths([[31800, 31801], [31900]]))
    with pytest.raises(ShapeError, match="not a path"):
        target.accept([1])
    target.start(*step, DraftTree.from_paths([[31800, 31801], [31900]]))
    with pytest.raises(ShapeError, match="not a path"):
        target.accept([0, 2])
    with pytest.raises(ModelError, match="call start"):
        target.accept([0])
    with pytest.raises(ModelError, match="97 nodes, at most 96"):
        target.verify(random_tree(np.random.default_rng(0), 97))


def test_the_largest_tree_fits_after_the_longest_action(target, step):
    target.start(np.resize(step[0], 96), step[1])
    for _ in range(16):
        target.verify(DraftTree.chain([31800]))
        target.accept([0])
    answer = target.verify(random_tree(np.random.default_rng(0), 96))
    assert answer.target_next.shape == (97,)
    with pytest.raises(ModelError, match="at most 16"):
        target.accept([0])


def test_wrong_inputs_are_refused_with_the_expected_shape(target, step, frame):
    prompt, patches = step
    with pytest.raises(ShapeError, match=r"\(1, 16, 40\), got \(16, 40\)"):
        target.start(prompt, patches[0])
    with pytest.raises(ModelError, match="shorten the instruction"):
        target.prompt("x" * 200)
    with pytest.raises(ModelError, match="blank"):
        target.prompt("  ")
    with pytest.raises(DataError, match="at least as many frames"):
        target.encode([])
    grey = Frame(frame(1).image[..., 0], "third_person", 0)
    with pytest.raises(DataError, match=r"uint8 \(64, 48\)"):
        target.encode([grey])


def test_embedding_covers_all_frames_and_patches_only_the_fed_view(target, frame):
    one = target.encode([frame(1, stamp_ns=30)])
    two = target.encode([frame(1, stamp_ns=30), frame(2, "wrist", stamp_ns=20)])
    assert one.embedding.shape == (target.info.embedding_size,) == (40,)
    assert two.embedding.shape == (80,)
    assert two.stamp_ns == 20
    assert two.patches.shape == (1, 16, 40)
    torch.testing.assert_close(two.patches, one.patches, atol=1e-4, rtol=1e-4)
    for features in (one, two):
        assert np.linalg.norm(features.embedding) == pytest.approx(1.0, abs=1e-6)
    # Both halves are joined with equal weight: 1/sqrt(2) of a unit vector each.
    np.testing.assert_allclose(two.embedding[:40] * np.sqrt(2.0), one.embedding, atol=1e-5)


def test_many_sets_in_one_pass_equal_one_by_one(target, frame):
    sets = [[frame(seed), frame(seed + 10)] for seed in range(3)]
    for together, frames in zip(target.encode_many(sets), sets, strict=True):
        alone = target.encode(frames)
        np.testing.assert_allclose(together.embedding, alone.embedding, atol=1e-5)
        torch.testing.assert_close(together.patches, alone.patches, atol=1e-4, rtol=1e-4)


def test_the_embedding_can_be_normalised_as_a_whole(checkpoint, target, frame):
    whole = OpenVlaTarget.from_pretrained(checkpoint, "cpu", normalise="whole")
    features = whole.encode([frame(1)])
    pooled = features.patches[0].float().mean(dim=0).numpy()  # DINOv2 before SigLIP
    np.testing.assert_allclose(features.embedding, pooled / np.linalg.norm(pooled), atol=1e-5)
    assert np.abs(features.embedding - target.encode([frame(1)]).embedding).max() > 1e-3
    assert whole.info.fingerprint != target.info.fingerprint
    with pytest.raises(ConfigError, match=r"perception\.normalise must be one of blocks, whole"):
        OpenVlaTarget.from_pretrained(checkpoint, "cpu", normalise="rows")


def test_fingerprint_names_weights_and_pooling(tmp_path, checkpoint, target, frame):
    again = OpenVlaTarget.from_pretrained(make_tiny_checkpoint(tmp_path / "same"), "cpu")
    other = OpenVlaTarget.from_pretrained(make_tiny_checkpoint(tmp_path / "other", seed=1), "cpu")
    last = OpenVlaTarget.from_pretrained(checkpoint, "cpu", pool="last_patch")
    assert again.info.fingerprint == target.info.fingerprint
    assert len({target.info.fingerprint, other.info.fingerprint, last.info.fingerprint}) == 3
    patches = last.encode([frame(1)])
    dino = patches.patches[0, -1, :16].numpy()
    np.testing.assert_allclose(
        patches.embedding[:16] * np.sqrt(2.0), dino / np.linalg.norm(dino), atol=1e-5
    )
    with pytest.raises(ConfigError, match="last_patch"):
        OpenVlaTarget.from_pretrained(checkpoint, "cpu", pool="max")


def test_two_views_are_fed_in_order(tmp_path, frame):
    folder = make_tiny_checkpoint(tmp_path, views=2)
    target = OpenVlaTarget.from_pretrained(folder, "cpu")
    features = target.encode([frame(1), frame(2)])
    assert features.patches.shape == (2, 16, 40)
    prompt = target.prompt(INSTRUCTION)
    answer = target.start(prompt, features.patches)
    assert target.committed == len(prompt) + 32
    swapped = target.start(prompt, features.patches.flip(0))
    assert not torch.allclose(answer.hidden, swapped.hidden, atol=1e-3)
    with pytest.raises(DataError, match="2 view"):
        target.encode([frame(1)])


def test_state_is_one_normalised_clipped_token(tmp_path, frame):
    folder = make_tiny_checkpoint(tmp_path, state_size=3)
    target = OpenVlaTarget.from_pretrained(folder, "cpu")
    prompt, patches = target.prompt(INSTRUCTION), target.encode([frame(1)]).patches

    def hidden(state):
        return target.start(prompt, patches, state=np.array(state, np.float32)).hidden

    assert target.info.state_size == 3
    base = hidden([0.0, 0.5, -0.5])
    assert target.committed == len(prompt) + 16 + 1
    assert not torch.allclose(base, hidden([0.9, 0.5, -0.5]), atol=1e-3)
    # The quantiles are -1 and 1: what lies outside is clipped to them.
    assert torch.equal(hidden([7.0, 0.0, 0.0]), hidden([1.0, 0.0, 0.0]))
    for wrong in (None, np.zeros(2, np.float32)):
        with pytest.raises(ShapeError, match=r"\(3,\)"):
            target.start(prompt, patches, state=wrong)


@pytest.mark.parametrize("options", [{"tie": True}, {"kv_heads": 1}])
def test_tied_embeddings_and_grouped_heads_decode_trees_alike(tmp_path, frame, options):
    target = OpenVlaTarget.from_pretrained(make_tiny_checkpoint(tmp_path, **options), "cpu")
    step = target.prompt(INSTRUCTION), target.encode([frame(1)]).patches
    tree = random_tree(np.random.default_rng(3), 8)
    answer = target.start(*step, tree)
    for node in (-1, 3, 7):
        hidden = plain(target, *step, path_tokens(tree, node))
        torch.testing.assert_close(answer.hidden[node + 1], hidden, atol=1e-4, rtol=1e-4)


def test_bfloat16_runs_and_stays_near_float32(checkpoint, target, step):
    half = OpenVlaTarget.from_pretrained(checkpoint, "cpu", "bfloat16")
    answer = half.start(*step)
    full = target.start(*step)
    assert half.dtype is torch.bfloat16
    cosine = torch.nn.functional.cosine_similarity(answer.hidden.float(), full.hidden)
    assert float(cosine) > 0.99


def test_padded_buckets_answer_like_the_shapes_as_they_come(checkpoint, target, step, monkeypatch):
    # Compiling takes a minute; what can go wrong on our side is the padding.
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    bucketed = OpenVlaTarget.from_pretrained(checkpoint, "cpu", compiled=True)
    tree = random_tree(np.random.default_rng(8), 11)
    for model in (target, bucketed):
        model.start(*step, tree)
        model.accept(leaf_paths(tree)[0][:2])
    expected, answer = target.verify(tree), bucketed.verify(tree)
    assert answer.target_next.tolist() == expected.target_next.tolist()
    torch.testing.assert_close(answer.hidden, expected.hidden, atol=1e-4, rtol=1e-4)
    assert greedy(bucketed, bucketed.start(*step)) == greedy(target, target.start(*step))
