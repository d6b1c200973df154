"""What every draft source promises."""

import numpy as np
import pytest
from fakes import some_request

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.draft.kinematic import HoldDraftSource, KalmanDraftSource
from heisd_ros.draft.lookahead import LookaheadDraftSource
from heisd_ros.draft.merged import MergedDraftSource
from heisd_ros.draft.retrieval import RetrievalDraftSource
from heisd_ros.protocols import DraftSource
from heisd_ros.types import Acceptance

TOKENIZER = ActionTokenizer()
STATISTICS = ActionStatistics.from_dict(
    {"q01": [-2.0] * 6 + [0.0], "q99": [2.0] * 6 + [1.0], "mask": [True] * 6 + [False]}
)
TASK = "synthetic task 0"
PAST = np.array([[31800, 31810, 31820, 31872, 31872, 31880, 31744]] * 3)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    spec = SyntheticSpec(tasks=2, episodes=3, steps=20, embedding_size=16)
    return synthetic_store(tmp_path_factory.mktemp("store") / "store", spec)


def make(name, store):
    retrieval = RetrievalDraftSource(store, TOKENIZER, STATISTICS, top_k=3)
    kalman = KalmanDraftSource(TOKENIZER, STATISTICS)
    return {
        "retrieval": retrieval,
        "kalman": kalman,
        "hold": HoldDraftSource(TOKENIZER, STATISTICS),
        "lookahead": LookaheadDraftSource(retrieval, TOKENIZER, STATISTICS),
        "merged": MergedDraftSource([retrieval, kalman]),
    }[name]


def request(store):
    embedding = np.array(store.vectors(np.array([4]))[0], dtype=np.float32)
    return some_request(TASK, PAST, embedding / np.linalg.norm(embedding))


@pytest.mark.parametrize("name", ["retrieval", "kalman", "hold", "lookahead", "merged"])
class TestDraftSource:
    def test_implements_the_protocol(self, name, store):
        assert isinstance(make(name, store), DraftSource)

    def test_a_draft_is_a_tree_or_a_reason(self, name, store):
        draft = make(name, store).draft(request(store))
        assert (draft.tree is None) == bool(draft.reason)

    def test_every_drafted_token_is_an_action_token(self, name, store):
        draft = make(name, store).draft(request(store))
        assert np.all(TOKENIZER.is_action(draft.chains))
        if draft.tree is not None:
            assert np.all(TOKENIZER.is_action(draft.tree.tokens))

    def test_the_gripper_is_never_a_node(self, name, store):
        draft = make(name, store).draft(request(store))
        assert draft.tree is None or draft.tree.depth.max() <= 5

    def test_chains_and_actions_say_the_same(self, name, store):
        draft = make(name, store).draft(request(store))
        assert draft.chains.shape == draft.actions.shape == (len(draft.chains), 7)
        # Back from action units to tokens: within the one bin that two roundings can cost.
        tokens = TOKENIZER.encode(STATISTICS.normalize(draft.actions))
        assert np.abs(tokens - draft.chains).max(initial=0) <= 1

    def test_scores_fall(self, name, store):
        scores = make(name, store).draft(request(store)).scores
        assert np.all(np.diff(scores) <= 0)

    def test_after_a_reset_the_same_request_gives_the_same_draft(self, name, store):
        source = make(name, store)
        first = source.draft(request(store))
        source.observe(Acceptance(PAST[0, :1], 1, np.zeros(0, int), 0, np.zeros(0, int)))
        source.reset()
        again = source.draft(request(store))
        assert np.array_equal(first.chains, again.chains)
        assert first.reason == again.reason
