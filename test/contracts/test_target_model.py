"""What every target model promises; the fake of the unit tests is held to it too."""

import numpy as np
import pytest
from fakes import HashTarget

from heisd_ros.draft.tree import DraftTree
from heisd_ros.protocols import TargetModel
from heisd_ros.types import Frame


def _fake():
    target = HashTarget(8)
    return target, target.prompt("pick it"), np.zeros((1, 2, 3), np.float32)


def _tiny(folder):
    pytest.importorskip("torch")
    from heisd_ros.models.openvla import OpenVlaTarget
    from heisd_ros.models.tiny import make_tiny_checkpoint

    target = OpenVlaTarget.from_pretrained(make_tiny_checkpoint(folder), "cpu")
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    patches = target.encode([Frame(picture, "third_person", 0)]).patches
    return target, target.prompt("pick it"), patches


@pytest.fixture(params=["fake", "openvla"])
def started(request, tmp_path):
    return _fake() if request.param == "fake" else _tiny(tmp_path)


def greedy(target, prompt, patches):
    tokens = [int(target.start(prompt, patches).target_next[0])]
    while len(tokens) < 7:
        tokens.append(int(target.verify(DraftTree.chain(tokens[-1:])).target_next[-1]))
        target.accept([0])
    return tokens


class TestTargetModel:
    def test_implements_the_protocol(self, started):
        assert isinstance(started[0], TargetModel)

    def test_every_step_starts_afresh(self, started):
        target, prompt, patches = started
        assert greedy(target, prompt, patches) == greedy(target, prompt, patches)

    def test_a_right_draft_in_the_prefill_is_answered_with_the_greedy_action(self, started):
        target, prompt, patches = started
        tokens = greedy(target, prompt, patches)
        answer = target.start(prompt, patches, DraftTree.chain(tokens[:6]))
        assert answer.target_next.tolist() == tokens

    def test_candidates_of_one_tree_do_not_see_each_other(self, started):
        target, prompt, patches = started
        chains = np.random.default_rng(2).integers(31744, 32000, (3, 7))
        together = target.start(prompt, patches, DraftTree.from_chains(chains, recombine=False))
        for k, chain in enumerate(chains):
            alone = target.start(prompt, patches, DraftTree.chain(chain[:6])).target_next
            rows = [0, *range(1 + 6 * k, 7 + 6 * k)]
            assert together.target_next[rows].tolist() == alone.tolist()

    def test_accepted_nodes_are_the_new_prefix_and_rejected_ones_leave_no_trace(self, started):
        target, prompt, patches = started
        tokens = greedy(target, prompt, patches)
        wrong = [t - 1 if t > 31744 else t + 1 for t in tokens]
        tree = DraftTree.from_paths([[*tokens[:2], *wrong[2:6]], wrong[:6]])
        target.start(prompt, patches, tree)
        target.accept([0, 1])
        answer = target.verify(DraftTree.chain(tokens[2:6]))
        assert answer.target_next.tolist() == tokens[2:]

    def test_row_zero_of_a_later_verification_repeats_the_known_answer(self, started):
        target, prompt, patches = started
        first = target.start(prompt, patches).target_next[0]
        assert target.verify(DraftTree.chain([31800])).target_next[0] == first
