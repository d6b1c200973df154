"""How sure a table is: intervals and tests for few, paired, yes-or-no episodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval.

    Attributes:
        low: Lower bound.
        high: Upper bound.
    """

    low: float
    high: float


def wilson(successes: int, trials: int, *, z: float = Z_95) -> Interval:
    """Return Wilson's score interval of a success rate; [0, 1] without a trial.

    Unlike the normal approximation it does not collapse at 0 or at all successes.

    Raises:
        ValueError: If there are more successes than trials, or either is negative.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"expected 0 <= successes <= trials, got {successes} of {trials}")
    if trials == 0:
        return Interval(0.0, 1.0)
    rate, z2 = successes / trials, z * z
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    half = z / (1 + z2 / trials) * spread
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of McNemar's test on paired episodes, [0, 1].

    Args:
        only_first: Initial states that only the first method solved.
        only_second: Initial states that only the second method solved.
    """
    discordant = only_first + only_second
    if not discordant:
        return 1.0
    tail = sum(math.comb(discordant, k) for k in range(min(only_first, only_second) + 1))
    return float(min(1.0, 2.0 * tail / 2.0**discordant))


def auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the probability that a positive scores above a negative, ties half; nan if one-sided.

    Args:
        scores: (n,), higher should mean positive.
        labels: bool (n,).
    """
    values = np.asarray(scores, dtype=np.float64)
    positive = np.asarray(labels, dtype=bool)
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return math.nan
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    mean_rank = last - (sizes - 1) / 2.0
    rank_sum = float(mean_rank[group][positive].sum())
    return (rank_sum - count * (count + 1) / 2.0) / (count * others)
