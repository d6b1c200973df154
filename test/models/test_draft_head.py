"""The draft head: its cached tree against plain sequences, the whole loop, its files."""

import itertools
import json

import numpy as np
import pytest
import torch

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.decode.decoder import HybridDecoder, StepRequest
from heisd_ros.decode.selector import FixedSelector
from heisd_ros.draft.drafter import DrafterDraftSource, DraftHead
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ModelError
from heisd_ros.models.draft_block import DraftBlock
from heisd_ros.models.draft_head import EagleDraftHead
from heisd_ros.models.llama import LlamaConfigView
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tiny import make_tiny_checkpoint
from heisd_ros.types import DraftKind, DraftRequest, TrajectoryMetric
from heisd_ros.verify.acceptance import ExactAcceptance
from heisd_ros.verify.schedule import FixedSchedule
from heisd_ros.verify.skip import FixedSkip

INSTRUCTION = "pick up the black bowl"
FIRST_ID = 31744


def random_block(target, seed=0):
    torch.manual_seed(seed)
    block = DraftBlock(target.network.config.llm).eval().requires_grad_(False)
    for weight in block.parameters():
        if weight.dim() > 1:
            weight.data *= 3.0  # far from averaging all rows to the same answer
    return block


@pytest.fixture
def head(target):
    return EagleDraftHead(random_block(target), target, top_k=8)


@pytest.fixture
def started(target, frame):
    """The target behind a prefill, and that prefill's answer."""
    features = target.encode([frame(1)])
    return target, target.start(target.prompt(INSTRUCTION), features.patches)


@torch.inference_mode()
def plain(head, target, tokens, features, drafted):
    """Predicted feature behind decided tokens and drafted ones, row by row without a cache."""
    llama, prefix = target.network.language_model, target.prefix_features()
    embeds = torch.cat((prefix.embeds[1:], llama.embed_tokens(torch.tensor(tokens))))
    hidden = torch.cat((prefix.hidden[:-1], features))
    predicted = head.block(embeds[None], hidden[None], 1)[0]
    for token in drafted:
        embeds = torch.cat((embeds, llama.embed_tokens(torch.tensor([token]))))
        hidden = torch.cat((hidden, predicted))
        predicted = head.block(embeds[None], hidden[None], 1)[0]
    return predicted[0]


@torch.inference_mode()
def log_probs(target, feature):
    scores = target.network.language_model.logits(feature)[FIRST_ID:32000]
    return scores.double().log_softmax(dim=-1).numpy()


def check(target, feature, candidates, row):
    expected = log_probs(target, feature)
    best = np.sort(expected)[::-1][: candidates.tokens.shape[1]]
    np.testing.assert_allclose(candidates.log_probs[row], best, atol=1e-4)
    ids = candidates.tokens[row] - FIRST_ID
    np.testing.assert_allclose(expected[ids], best, atol=1e-4)


def test_implements_the_protocol(head):
    assert isinstance(head, DraftHead)


def test_prefix_features_are_input_and_output_of_the_language_model(started):
    target, answer = started
    prefix = target.prefix_features()
    with torch.inference_mode():
        expected = target.network.language_model.forward_sequence(prefix.embeds[None])[0]
    torch.testing.assert_close(prefix.hidden, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(prefix.hidden[-1:], answer.hidden)


def test_prefix_features_of_a_prefill_with_a_draft_leave_the_draft_out(target, frame):
    prompt, patches = target.prompt(INSTRUCTION), target.encode([frame(1)]).patches
    target.start(prompt, patches)
    alone = target.prefix_features()
    target.start(prompt, patches, DraftTree.chain([31800, 31801]))
    together = target.prefix_features()
    assert together.hidden.shape == alone.hidden.shape == together.embeds.shape
    torch.testing.assert_close(together.hidden, alone.hidden, atol=1e-4, rtol=1e-4)


def test_first_candidates_follow_the_whole_prompt(head, started):
    target, answer = started
    token = int(answer.target_next[0])
    head.begin()
    got = head.commit(np.array([token]), answer.hidden)
    assert got.tokens.shape == got.log_probs.shape == (1, 8)
    check(target, plain(head, target, [token], answer.hidden, []), got, 0)


def test_every_expanded_row_is_answered_as_if_only_its_path_existed(head, started):
    target, answer = started
    token = int(answer.target_next[0])
    head.begin()
    head.commit(np.array([token]), answer.hidden)
    rng = np.random.default_rng(0)
    paths = []
    for _ in range(3):
        parents = rng.integers(-1, len(paths), 6) if paths else np.full(6, -1)
        tokens = rng.integers(FIRST_ID, 32000, 6)
        got = head.expand(tokens, parents)
        new = [
            [*(paths[parent] if parent >= 0 else []), int(drafted)]
            for drafted, parent in zip(tokens, parents, strict=True)
        ]
        for row, path in enumerate(new):
            check(target, plain(head, target, [token], answer.hidden, path), got, row)
        paths += new


def test_verified_tokens_replace_what_was_drafted(head, started):
    """After a commit only decided tokens and the target's own features count."""
    target, answer = started
    first = int(answer.target_next[0])
    head.begin()
    head.commit(np.array([first]), answer.hidden)
    head.expand(np.array([31800, 31900]), np.array([-1, -1]))
    head.expand(np.array([31810, 31910]), np.array([0, 1]))
    tree = DraftTree.chain([first, 31900])
    verified = target.verify(tree)
    target.accept([0, 1])
    decided = [first, 31900, int(verified.target_next[2])]
    got = head.commit(np.array(decided[1:]), verified.hidden[1:])
    features = torch.cat((answer.hidden, verified.hidden[1:]))
    check(target, plain(head, target, decided, features, []), got, 0)
    below = head.expand(np.array([31850]), np.array([-1]))
    check(target, plain(head, target, decided, features, [31850]), below, 0)


def test_actions_do_not_leak_into_each_other(head, started, frame):
    target, answer = started
    token = np.array([int(answer.target_next[0])])
    head.begin()
    once = head.commit(token, answer.hidden)
    head.expand(np.array([31800]), np.array([-1]))
    other = target.encode([frame(2)])
    head_answer = target.start(target.prompt("open the drawer"), other.patches)
    head.begin()
    head.commit(token, head_answer.hidden)
    answer = target.start(target.prompt(INSTRUCTION), target.encode([frame(1)]).patches)
    head.begin()
    again = head.commit(token, answer.hidden)
    assert again.tokens.tolist() == once.tokens.tolist()
    np.testing.assert_allclose(again.log_probs, once.log_probs, atol=1e-5)


def test_candidates_are_action_tokens_best_first(head, started):
    _, answer = started
    head.begin()
    got = head.commit(np.array([31800]), answer.hidden)
    assert ((got.tokens >= FIRST_ID) & (got.tokens < 32000)).all()
    assert (np.diff(got.log_probs[0]) <= 0).all()
    assert len(set(got.tokens[0])) == 8
    assert 0 < np.exp(got.log_probs).sum() < 1


def test_calls_out_of_order_and_too_many_rows_are_refused(target, started):
    fresh = EagleDraftHead(random_block(target), target, top_k=2)
    with pytest.raises(ModelError, match="call begin"):
        fresh.commit(np.array([31800]), started[1].hidden)
    fresh.begin()
    fresh.commit(np.array([31800]), started[1].hidden)
    with pytest.raises(ModelError, match="at most 8"):
        fresh.expand(np.full(9, 31800), np.full(9, -1))


def greedy(target, prompt, patches, state=None):
    answer = target.start(prompt, patches, state=state)
    tokens = [int(answer.target_next[0])]
    while len(tokens) < 7:
        answer = target.verify(DraftTree.chain(tokens[-1:]))
        target.accept([0])
        tokens.append(int(answer.target_next[1]))
    return tokens


@pytest.mark.parametrize("options", [{}, {"kv_heads": 1}, {"views": 2, "state_size": 4}])
def test_drafting_with_a_head_is_lossless(tmp_path, frame, options):
    target = OpenVlaTarget.from_pretrained(make_tiny_checkpoint(tmp_path, 1, **options), "cpu")
    state = np.zeros(4, np.float32) if "state_size" in options else None
    source = DrafterDraftSource(EagleDraftHead(random_block(target), target))
    ticks = itertools.count()
    decoder = HybridDecoder(
        target,
        ActionTokenizer(),
        target.statistics(),
        selector=FixedSelector(DraftKind.DRAFTER),
        sources={DraftKind.DRAFTER: source},
        continuations={DraftKind.DRAFTER: source},
        schedule=FixedSchedule(ExactAcceptance()),
        skip=FixedSkip(False),
        clock=lambda: next(ticks) * 1e-3,
    )
    for seed in range(4):
        features = target.encode([frame(seed), frame(seed + 10)])
        prompt = target.prompt(INSTRUCTION)
        metric = TrajectoryMetric(0.02, 0.1, 0.5, 1.0, 0.1, 15)
        request = DraftRequest(features, metric, INSTRUCTION, np.zeros((0, 7), np.int64))
        result = decoder.step(StepRequest(request, prompt, state))
        assert result.action.tokens.tolist() == greedy(target, prompt, features.patches, state)
        assert result.report.forwards <= 7
        assert result.report.nodes > 0


def test_a_head_of_openvla_7b_has_235_9_million_weights():
    with torch.device("meta"):
        block = DraftBlock(LlamaConfigView(4096, 32, 32, 32, 11008, 32064))
    # fc 2*4096*4096 + 4096, attention 4 * 4096^2, feed-forward 3 * 4096 * 11008, two norms.
    assert sum(weight.numel() for weight in block.parameters()) == 235_941_888


def test_saved_head_is_loaded_as_it_was(tmp_path, target, head, started):
    head.block.save(tmp_path, fingerprint=target.info.fingerprint, dtype=torch.float32)
    again = EagleDraftHead.from_pretrained(tmp_path, target)
    results = []
    for each in (head, again):
        each.begin()
        results.append(each.commit(np.array([31800]), started[1].hidden))
    assert results[0].tokens.tolist() == results[1].tokens.tolist()
    assert results[0].log_probs.tolist() == results[1].log_probs.tolist()


def test_head_of_another_checkpoint_is_said(tmp_path, target, head, caplog):
    head.block.save(tmp_path, fingerprint="other")
    EagleDraftHead.from_pretrained(tmp_path, target)
    assert "another checkpoint" in caplog.text


def test_incomplete_or_foreign_folders_are_refused(tmp_path, target, head):
    with pytest.raises(ModelError, match="train-drafter"):
        EagleDraftHead.from_pretrained(tmp_path, target)
    head.block.save(tmp_path, fingerprint=target.info.fingerprint)
    facts = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**facts, "hidden_size": 32}))
    with pytest.raises(ModelError, match="this target has"):
        EagleDraftHead.from_pretrained(tmp_path, target)
    (tmp_path / "config.json").write_text(json.dumps({**facts, "model_type": "openvla"}))
    with pytest.raises(ModelError, match="does not describe"):
        EagleDraftHead.from_pretrained(tmp_path, target)
    (tmp_path / "config.json").write_text(json.dumps(facts))
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ModelError, match="damaged"):
        EagleDraftHead.from_pretrained(tmp_path, target)
