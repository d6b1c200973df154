"""Choose the cheapest two-stage search that finds the true neighbours of held-out episodes.

A search reads the basis and the codes of d columns, then r whole vectors. More columns let fewer
vectors do, so both are chosen together: the pair that moves the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.demonstrations.prefix import Matrix, Prefix, fit_prefix
from heisd_ros.types import Float32Array, IntArray

PREFIX_SIZES = (32, 48, 64, 96, 128, 192, 256)
NARROW = 64
"""Columns that are tried first, from one fit."""
RERANK_ROWS = 64
"""Most rows that are scored exactly after the prefix scan."""
RERANK_CHOICES = (16, 32, RERANK_ROWS)
RANDOM_READ = 2
"""A byte of a scattered row costs about twice a byte read in sequence (measured, cold cache)."""
EXACT_BELOW_ROWS = 1024
"""A task of fewer rows is searched exactly: that is already fast."""
MIN_RECALL = 0.995
"""0.99 is promised; 256 queries know a recall to about half a percent."""
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
        recall: Recall@5 on held-out episodes for each pair tried, `columns/rows`.
        rerank_rows: Rows to score exactly behind the prefix.
    """

    prefix: Prefix | None
    recall: dict[str, float]
    rerank_rows: int = RERANK_ROWS


def calibrate_prefix(
    vectors: Matrix,
    episode_rows: Sequence[tuple[int, int]],
    *,
    exact_below: int = EXACT_BELOW_ROWS,
    sizes: Sequence[int] = PREFIX_SIZES,
) -> Calibration:
    """Fit on four of five episodes, query with the fifth, keep the cheapest pair that passes.

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
    recall: dict[str, float] = {}
    best: tuple[int, int, int] | None = None  # bytes, size, rows
    fitted: Prefix | None = None
    for size in sizes:
        if best and _bytes_read(vectors, size, RERANK_CHOICES[0]) >= best[0]:
            break
        if fitted is None or len(fitted.basis) < size:
            # Wide fits take most of the time of a build and are seldom needed.
            widest = max(other for other in sizes if (other <= NARROW) == (size <= NARROW))
            fitted = fit_prefix(known, widest)
        measured = _recalls(known, queries, truth, fitted.leading(size))
        for rows, share in measured.items():
            recall[f"{size}/{rows}"] = share
            if share >= MIN_RECALL:
                offer = (_bytes_read(vectors, size, rows), size, rows)
                best = min(best or offer, offer)
    if best is None:
        return Calibration(None, recall)
    return Calibration(fit_prefix(vectors, best[1]), recall, best[2])


def _bytes_read(vectors: Matrix, size: int, rows: int) -> int:
    n, length = vectors.shape
    return 4 * int(size * (n + length) + RANDOM_READ * rows * length)


def exact_scores(vectors: Matrix, query: Float32Array, rows: IntArray) -> Float32Array:
    """Return float32 products of some rows with the query.

    Not by a matrix product, on purpose: BLAS lets the score of a row depend on which rows stand
    around it, and equal vectors would rank differently in different searches.
    """
    picked = np.asarray(vectors[rows], dtype=np.float32)
    scores: Float32Array = np.einsum("ij,j->i", picked, query)
    return scores


def _true_scores(known: Matrix, queries: Float32Array) -> Float32Array:
    """Return float32 (Q, 5): the best exact scores of each query, best first."""
    products = known @ queries.T  # (n, Q)
    candidates = np.argpartition(products, -RERANK_ROWS, axis=0)[-RERANK_ROWS:]
    scores = [
        -np.sort(-exact_scores(known, query, candidates[:, index]))[:RECALL_K]
        for index, query in enumerate(queries)
    ]
    return np.stack(scores)


def _recalls(
    known: Matrix, queries: Float32Array, truth: Float32Array, prefix: Prefix
) -> dict[int, float]:
    """Return, for each number of rows, the smaller of recall@5 and top-1 agreement.

    A hit counts by its score, not by its row: of equal frames any is right.
    """
    found = dict.fromkeys(RERANK_CHOICES, 0.0)
    first = dict.fromkeys(RERANK_CHOICES, 0.0)
    for query, wanted in zip(queries, truth, strict=True):
        ranks = prefix.codes @ prefix.project(query)
        rows = np.argpartition(ranks, -RERANK_ROWS)[-RERANK_ROWS:]
        rows = rows[np.argsort(-ranks[rows], kind="stable")]
        exact = exact_scores(known, query, rows)
        for count in RERANK_CHOICES:
            scores = -np.sort(-exact[:count])[:RECALL_K]
            found[count] += float(np.mean(scores >= wanted[-1] - SCORE_TOLERANCE))
            first[count] += float(scores[0] >= wanted[0] - SCORE_TOLERANCE)
    return {count: min(found[count], first[count]) / len(queries) for count in RERANK_CHOICES}
