"""Choose the smallest search prefix that finds the true neighbours on held-out episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.demonstrations.prefix import Matrix, Prefix, best_rows, fit_prefix
from heisd_ros.types import Float32Array, IntArray

PREFIX_SIZES = (32, 64, 128, 256)
RERANK_ROWS = 64
"""Rows that are scored exactly after the prefix scan: 64 lost nothing where 32 lost 0.5 %."""
EXACT_BELOW_ROWS = 1024
"""A task of fewer rows is searched exactly: that is already fast."""
MIN_RECALL = 0.99
SCORE_TOLERANCE = 1e-6
"""Rounding of a float32 product; true neighbours differ by about 1e-4."""
RECALL_K = 5
MAX_QUERIES = 256
HOLD_OUT_EVERY = 5


@dataclass(frozen=True, slots=True)
class Calibration:
    """The outcome of a calibration.

    Attributes:
        prefix: The prefix to store; None for exact search.
        recall: Recall@5 on held-out episodes for each size tried.
    """

    prefix: Prefix | None
    recall: dict[str, float]


def calibrate_prefix(
    vectors: Matrix,
    episode_rows: Sequence[tuple[int, int]],
    *,
    exact_below: int = EXACT_BELOW_ROWS,
    sizes: Sequence[int] = PREFIX_SIZES,
) -> Calibration:
    """Fit on four of five episodes, query with the fifth, keep the smallest size that passes.

    Args:
        vectors: (n, E) unit rows of one task.
        episode_rows: Half-open row range of each episode, in row order.
        exact_below: Tasks with fewer rows are not given a prefix.
        sizes: Candidate sizes, ascending.
    """
    sizes = [size for size in sizes if size <= min(vectors.shape[1] // 2, len(vectors) // 4)]
    if len(vectors) < exact_below or len(episode_rows) < 2 or not sizes:
        return Calibration(None, {})
    # A memory map is random-access, so the held-out rows are left out by copying the others.
    held_out = episode_rows[HOLD_OUT_EVERY // 2 :: HOLD_OUT_EVERY] or episode_rows[-1:]
    is_query = np.zeros(len(vectors), dtype=bool)
    for first, stop in held_out:
        is_query[first:stop] = True
    known: Matrix = np.asarray(vectors[~is_query], dtype=np.float32)
    asked = np.flatnonzero(is_query)
    asked = asked[:: max(1, len(asked) // MAX_QUERIES)]
    queries = np.asarray(vectors[asked], dtype=np.float32)
    truth = _true_scores(known, queries)
    widest = fit_prefix(known, sizes[-1])
    recall: dict[str, float] = {}
    for size in sizes:
        recall[str(size)] = _recall(known, queries, truth, widest.leading(size))
        if recall[str(size)] >= MIN_RECALL:
            return Calibration(fit_prefix(vectors, size), recall)
    return Calibration(None, recall)


def exact_scores(vectors: Matrix, query: Float32Array, rows: IntArray) -> Float32Array:
    """Return float32 products of single rows with the query.

    Row by row on purpose: the score of a row must not depend on which rows stand around it, as it
    does in a matrix product, or equal vectors would rank differently in different searches.
    """
    products = [np.dot(np.asarray(vectors[row], dtype=np.float32), query) for row in rows]
    return np.array(products, dtype=np.float32)


def _true_scores(known: Matrix, queries: Float32Array) -> Float32Array:
    """Return float32 (Q, 5): the best exact scores of each query, best first."""
    products = known @ queries.T  # (n, Q)
    candidates = np.argpartition(products, -RERANK_ROWS, axis=0)[-RERANK_ROWS:]
    scores = [
        -np.sort(-exact_scores(known, query, candidates[:, index]))[:RECALL_K]
        for index, query in enumerate(queries)
    ]
    return np.stack(scores)


def _recall(known: Matrix, queries: Float32Array, truth: Float32Array, prefix: Prefix) -> float:
    """Return the smaller of recall@5 and top-1 agreement, so that one bound covers both.

    A hit counts by its score, not by its row: of equal frames any is right.
    """
    found, first = 0.0, 0.0
    for query, wanted in zip(queries, truth, strict=True):
        rows = best_rows(prefix.codes, prefix.project(query), RERANK_ROWS)
        scores = -np.sort(-exact_scores(known, query, rows))[:RECALL_K]
        found += float(np.mean(scores >= wanted[-1] - SCORE_TOLERANCE))
        first += float(scores[0] >= wanted[0] - SCORE_TOLERANCE)
    return min(found, first) / len(queries)
