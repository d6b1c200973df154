"""Masks, positions and slots, worked out by hand; and moving accepted rows to the front."""

import torch

from heisd_ros.draft.tree import DraftTree
from heisd_ros.models.kv_cache import KVCache
from heisd_ros.models.tree_attention import padded, tree_rows

# 7 -> 8 -> 10, and 7 -> 9: nodes in the order 7, 8, 10, 9
TREE = DraftTree.from_paths([[7, 8, 10], [7, 9]])


def cells(rows):
    return ["".join("x" if cell else "." for cell in row) for row in rows.mask[0, 0].tolist()]


def test_prefill_with_a_draft():
    rows = tree_rows(0, 2, TREE, 8)
    assert rows.positions.tolist() == [0, 1, 2, 3, 4, 3]
    assert rows.slots.tolist() == [0, 1, 2, 3, 4, 5]
    assert cells(rows) == [
        "x.......",
        "xx......",
        "xxx.....",
        "xxxx....",
        "xxxxx...",
        "xxx..x..",
    ]


def test_verification_behind_a_committed_prefix():
    rows = tree_rows(3, 0, TREE, 8)
    assert rows.positions.tolist() == [3, 4, 5, 4]
    assert rows.slots.tolist() == [3, 4, 5, 6]
    assert cells(rows) == ["xxxx....", "xxxxx...", "xxxxxx..", "xxxx..x."]


def test_prompt_alone_is_causal():
    rows = tree_rows(0, 3, None, 4)
    assert rows.positions.tolist() == [0, 1, 2]
    assert cells(rows) == ["x...", "xx..", "xxx."]


def test_padding_rows_see_and_touch_only_the_last_slot():
    rows = padded(tree_rows(0, 2, None, 5), 4)
    assert rows.slots.tolist() == [0, 1, 4, 4]
    assert cells(rows) == ["x....", "xx...", "....x", "....x"]
    assert padded(rows, 3) is rows


def test_kept_rows_move_to_the_front_even_when_they_overlap():
    cache = KVCache.empty(2, (1, 6, 1), torch.float32, torch.device("cpu"))
    for buffer in (*cache.keys, *cache.values):
        buffer[0, 0, :, 0] = torch.arange(6.0)
    cache.length = 2
    cache.keep(torch.tensor([3, 4]))
    assert cache.length == 4
    for buffer in (*cache.keys, *cache.values):
        assert buffer[0, 0, :4, 0].tolist() == [0.0, 1.0, 3.0, 4.0]
    cache.reset()
    assert cache.length == 0
