"""Several drafts in one tree, and drafts for steps that a drafter finishes."""

import numpy as np
from fakes import some_request

from heisd_ros.draft.merged import AfterPrefillSource, MergedDraftSource
from heisd_ros.draft.tree import DraftTree
from heisd_ros.types import Acceptance, Draft, DraftKind


class Source:
    def __init__(self, kind, chains=(), scores=(), reason=""):
        tokens = np.array(chains, dtype=np.int64).reshape(-1, 7)
        tree = DraftTree.from_chains(tokens) if len(tokens) else None
        self.proposal = Draft(
            kind, tree, np.array(scores, np.float32), tokens, np.zeros(tokens.shape), reason
        )
        self.observed = []
        self.resets = 0

    def draft(self, request):
        return self.proposal

    def observe(self, acceptance):
        self.observed.append(acceptance)

    def reset(self):
        self.resets += 1


ONE, TWO = [1, 2, 3, 4, 5, 6, 9], [1, 2, 8, 4, 5, 6, 9]


def test_a_leading_source_without_a_draft_leaves_its_reason_beside_the_tree():
    merged = MergedDraftSource(
        [
            Source(DraftKind.RETRIEVAL, reason="store_error:StoreError"),
            Source(DraftKind.KINEMATIC, [ONE]),
        ]
    )
    draft = merged.draft(some_request())
    assert draft.kind is DraftKind.KINEMATIC
    assert len(draft.tree) == 6
    assert draft.reason == "store_error:StoreError"


def test_shared_beginnings_are_one_node():
    merged = MergedDraftSource(
        [Source(DraftKind.RETRIEVAL, [ONE], [0.9]), Source(DraftKind.KINEMATIC, [TWO])]
    )
    draft = merged.draft(some_request())
    # 1 2 are shared, then 3 4 5 6 and 8 4 5 6: the gripper is never drafted.
    assert len(draft.tree) == 10
    assert draft.chains.tolist() == [ONE, TWO]
    assert draft.scores.tolist() == np.array([0.9], np.float32).tolist()


def test_what_goes_into_a_drafters_prefill_is_of_its_kind():
    cheap = Source(DraftKind.RETRIEVAL, [ONE], [0.9])
    draft = AfterPrefillSource(cheap).draft(some_request())
    assert draft.kind is DraftKind.DRAFTER
    assert len(draft.tree) == 6


def test_a_drafters_step_needs_no_cheap_draft():
    for source in (AfterPrefillSource(), AfterPrefillSource(Source(DraftKind.KINEMATIC))):
        draft = source.draft(some_request())
        assert (draft.kind, draft.tree, draft.reason) == (DraftKind.DRAFTER, None, "")
        source.observe(Acceptance(np.zeros(1, int), 1, np.zeros(0, int), None, np.zeros(0, int)))
        source.reset()


def test_the_cheap_source_hears_what_became_of_its_draft():
    cheap = Source(DraftKind.KINEMATIC, [ONE])
    source = AfterPrefillSource(cheap)
    source.observe("accepted")
    source.reset()
    assert (cheap.observed, cheap.resets) == (["accepted"], 1)
