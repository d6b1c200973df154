import math

import pytest

from heisd_ros.offline.intervals import auc, mcnemar, wilson


def test_wilson_agrees_with_worked_examples():
    # 24 of 29: 0.8276 -> (0.6545, 0.9239), the interval of docs that quote "65-92 %"
    found = wilson(24, 29)
    assert (found.low, found.high) == pytest.approx((0.6545, 0.9239), abs=5e-4)
    # k = 0: low = 0 and high = z^2 / (n + z^2) = 3.8415 / 13.8415
    none = wilson(0, 10)
    assert none.low == 0.0
    assert none.high == pytest.approx(0.27753, abs=1e-5)
    assert wilson(10, 10).low == pytest.approx(1 - none.high)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="5 of 4"):
        wilson(5, 4)


def test_mcnemar_counts_only_pairs_that_disagree():
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(3, 3) == 1.0
    # All five on one side: 2 * (1/2)^5
    assert mcnemar(5, 0) == mcnemar(0, 5) == pytest.approx(0.0625)
    # 1 against 7: 2 * (1 + 8) / 256
    assert mcnemar(1, 7) == pytest.approx(18 / 256)


def test_auc_counts_ordered_pairs():
    # Pairs (positive, negative): 3>1, 3>2, 2=2 half, 2>1 -> 3.5 of 4
    assert auc([3, 2, 2, 1], [True, True, False, False]) == pytest.approx(3.5 / 4)
    assert auc([1, 2], [True, False]) == 0.0
    assert math.isnan(auc([1, 2], [True, True]))
