"""Folding zero rows must not change a single choice."""

import pytest
import torch

from heisd_ros.models.lm_head import GreedyHead

# 8 rows of width 1: with hidden [1] the logits are the weights themselves.
ROWS = [0.0, 0.0, 3.0, 0.0, 0.0, -2.0, 0.0, 0.0]


def choice(rows, hidden):
    found = GreedyHead(torch.tensor(rows)[:, None])(torch.tensor([[hidden]]))
    return int(found.token[0]), float(found.margin[0])


def test_known_choices():
    assert choice(ROWS, 1.0) == (2, 3.0)  # 3 before 0
    assert choice(ROWS, -1.0) == (5, 2.0)  # 2 before 0
    assert choice(ROWS, 0.0) == (0, 0.0)  # all equal: the first


def test_a_zero_row_wins_when_all_others_are_negative():
    rows = [-1.0, 0.0, -2.0, 0.0, 0.0, 0.0]
    assert choice(rows, 1.0) == (1, 0.0)  # the first zero row, tied with the second


@pytest.mark.parametrize("live", [0, 1, 20, 90, 99, 100])
def test_equals_the_full_matrix(live):
    generator = torch.Generator().manual_seed(live)
    weight = torch.zeros(100, 6)
    rows = torch.randperm(100, generator=generator)[:live]
    weight[rows] = torch.randn(live, 6, generator=generator)
    hidden = torch.randn(50, 6, generator=generator)
    best = (hidden @ weight.T).topk(2).values
    found = GreedyHead(weight)(hidden)
    assert found.token.tolist() == (hidden @ weight.T).argmax(dim=-1).tolist()
    torch.testing.assert_close(torch.from_numpy(found.margin), best[:, 0] - best[:, 1])
