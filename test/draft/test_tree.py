"""The draft tree against the worked numbers of the specification."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ShapeError

WORKED = np.array([[10, 11, 12, 20, 21, 22], [10, 11, 13, 20, 21, 23]])


def test_worked_trie_has_the_specified_nodes():
    tree = DraftTree.from_chains(WORKED)
    assert tree.tokens.tolist() == [10, 11, 12, 20, 21, 22, 23, 13, 20, 21, 22, 23]
    assert tree.parent.tolist() == [-1, 0, 1, 2, 3, 4, 4, 1, 7, 8, 9, 9]
    assert tree.depth.tolist() == [0, 1, 2, 3, 4, 5, 5, 2, 3, 4, 5, 5]


def test_worked_trie_has_the_specified_mask_and_leaves():
    tree = DraftTree.from_chains(WORKED)
    mask = tree.attention_mask()
    assert np.flatnonzero(mask[6]).tolist() == [0, 1, 2, 3, 4, 6]
    assert np.flatnonzero(mask[11]).tolist() == [0, 1, 7, 8, 9, 11]
    assert [path[-1] for path in tree.paths()] == [5, 6, 10, 11]


def test_siblings_share_a_position():
    tree = DraftTree.from_chains(WORKED)
    assert tree.position_ids(100).tolist() == [
        100,
        101,
        102,
        103,
        104,
        105,
        105,
        102,
        103,
        104,
        105,
        105,
    ]


@pytest.mark.parametrize(("k", "nodes"), [(1, 6), (2, 18), (3, 36), (5, 90), (8, 216), (10, 330)])
def test_distinct_chains_give_3k_plus_3k_squared_nodes(k, nodes):
    chains = np.arange(k * 7).reshape(k, 7)
    assert len(DraftTree.from_chains(chains)) == nodes
    assert len(DraftTree.from_chains(chains, recombine=False)) == 6 * k


def test_gripper_column_never_becomes_a_node():
    chains = np.arange(14).reshape(2, 7)
    tree = DraftTree.from_chains(chains)
    assert not {6, 13} & set(tree.tokens.tolist())
    assert tree.depth.max() == 5


def test_node_limit_drops_the_pairs_with_the_lowest_scores():
    chains = np.arange(14).reshape(2, 7)
    # All four pairs take 18 nodes. Pair (0, 0) scores 1.8, (0, 1) and (1, 0) 1.0, (1, 1) 0.2:
    # 12 nodes hold (0, 0) with 6 and (0, 1) with 3 more; (1, 0) would need 6 more.
    tree = DraftTree.from_chains(chains, scores=np.array([0.9, 0.1]), max_nodes=12)
    assert [tree.tokens[path].tolist() for path in tree.paths()] == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 10, 11, 12],
    ]


def test_parents_must_come_first():
    with pytest.raises(ShapeError, match="before its child"):
        DraftTree(np.array([1, 2]), np.array([1, -1]))


def test_wrong_chain_shape_is_refused():
    with pytest.raises(ShapeError, match="got \\(2, 8\\)"):
        DraftTree.from_chains(np.zeros((2, 8)))


def test_merging_trees_keeps_every_path_and_shares_nodes():
    merged = DraftTree.merge([DraftTree.chain([1, 2, 3]), DraftTree.chain([1, 2, 4])])
    assert merged.tokens.tolist() == [1, 2, 3, 4]
    assert (
        len(DraftTree.merge([DraftTree.chain([1, 2]), DraftTree.chain([3, 4])], max_nodes=3)) == 2
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=5))
def test_every_pair_of_sequences_is_a_path(chains):
    chains = np.array(chains)
    tree = DraftTree.from_chains(chains)
    found = {tuple(tree.tokens[path]) for path in tree.paths()}
    assert found == {(*a[:3], *b[3:]) for a in chains.tolist() for b in chains.tolist()}
    mask = tree.attention_mask()
    for node in range(len(tree)):
        assert mask[node].sum() == tree.depth[node] + 1
