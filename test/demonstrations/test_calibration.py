"""The search prefix and how its size is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from heisd_ros.demonstrations.calibration import calibrate_prefix, exact_scores
from heisd_ros.demonstrations.prefix import best_rows, fit_prefix
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes


def unit_rows(rng, n, d):
    rows = rng.standard_normal((n, d)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def ranges(lengths):
    stops = np.cumsum(lengths).tolist()
    return list(zip([0, *stops[:-1]], stops, strict=True))


def smooth(embedding_size=256):
    """One task of ten episodes, about 600 rows."""
    spec = SyntheticSpec(tasks=1, episodes=10, steps=60, embedding_size=embedding_size, seed=4)
    episodes = synthetic_episodes(spec)
    vectors = np.concatenate([rows.vectors for rows in episodes])
    return vectors, ranges([len(rows.steps) for rows in episodes])


def test_synthetic_embeddings_are_as_alike_as_real_ones():
    vectors, bounds = smooth(1024)
    inside = [vectors[a : b - 1] * vectors[a + 1 : b] for a, b in bounds]
    consecutive = np.concatenate(inside).sum(axis=1).mean()
    first, stop = bounds[0]
    best = (vectors[stop:] @ vectors[first:stop].T).max(axis=0).mean()
    assert consecutive == pytest.approx(0.997, abs=0.003)
    assert best == pytest.approx(0.96, abs=0.015)


def test_prefix_scores_differ_from_cosines_by_a_constant_where_no_direction_is_lost():
    # Rows vary in three directions only, so four columns hold everything.
    rng = np.random.default_rng(1)
    plane = np.linalg.qr(rng.standard_normal((50, 4)))[0].T
    low = np.concatenate([np.ones((300, 1)), 0.3 * rng.standard_normal((300, 3))], axis=1)
    vectors = (low @ plane).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    prefix = fit_prefix(vectors, 5)
    query = unit_rows(rng, 1, 50)[0]
    difference = prefix.codes @ prefix.project(query) - vectors @ query
    assert np.ptp(difference) < 1e-5


def test_leading_columns_are_those_of_a_narrower_fit():
    vectors, _ = smooth()
    wide, narrow = fit_prefix(vectors, 64).leading(16), fit_prefix(vectors, 16)
    assert wide.basis.shape == (16, 256)
    assert wide.codes.shape == narrow.codes.shape == (len(vectors), 16)
    # The leading ten directions are well separated; signs are free.
    overlap = np.abs(np.einsum("ij,ij->i", wide.basis[:10], narrow.basis[:10]))
    assert overlap.min() > 0.99
    np.testing.assert_array_equal(wide.codes[:, -1], narrow.codes[:, -1])


def test_float16_rows_give_nearly_the_same_prefix_as_float32_rows():
    vectors, _ = smooth()
    full, half = fit_prefix(vectors, 32), fit_prefix(vectors.astype(np.float16), 32)
    query = vectors[5]
    a, b = (prefix.codes @ prefix.project(query) for prefix in (full, half))
    np.testing.assert_allclose(a - a[0], b - b[0], atol=2e-3)


def test_best_rows_over_several_blocks_are_those_of_one_sort():
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((20_000, 3)).astype(np.float32)
    query = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    order = np.argsort(-(matrix @ query))
    np.testing.assert_array_equal(best_rows(matrix, query, 50), np.sort(order[:50]))
    low, high = 8000, 17_000  # across two block borders
    kept = [row for row in order if not low <= row < high][:50]
    np.testing.assert_array_equal(best_rows(matrix, query, 50, skip=(low, high)), np.sort(kept))


def test_skipping_everything_finds_nothing():
    matrix = np.ones((10, 2), dtype=np.float32)
    assert best_rows(matrix, matrix[0], 3, skip=(0, 10)).tolist() == []


def test_equal_rows_have_equal_scores_wherever_they_stand():
    rng = np.random.default_rng(3)
    vectors = unit_rows(rng, 101, 4352)
    vectors[[0, 3, 50, 100]] = vectors[7]
    query = unit_rows(rng, 1, 4352)[0]
    scores = exact_scores(vectors, query, np.array([0, 3, 7, 50, 100]))
    assert len(set(scores.tolist())) == 1


def test_the_cheapest_pair_that_passes_is_chosen():
    vectors, bounds = smooth()
    outcome = calibrate_prefix(vectors, bounds, exact_below=0, sizes=(4, 8, 16, 32, 64))
    chosen = (len(outcome.prefix.basis), outcome.rerank_rows)
    n, length = vectors.shape
    # Basis and codes are read in sequence, whole rows at random, which costs twice as much.
    cost = {
        (d, r): 4 * (d * (n + length) + 2 * r * length)
        for d, r in (map(int, pair.split("/")) for pair in outcome.recall)
    }
    passing = {
        pair: c for pair, c in cost.items() if outcome.recall[f"{pair[0]}/{pair[1]}"] >= 0.995
    }
    assert chosen == min(passing, key=passing.get)
    assert len(passing) < len(cost)  # something was too little, or this test shows nothing
    assert outcome.prefix.codes.shape == (n, chosen[0])


def test_more_rows_scored_exactly_never_lower_the_recall():
    vectors, bounds = smooth()
    recall = calibrate_prefix(vectors, bounds, exact_below=0, sizes=(8,)).recall
    assert recall["8/16"] <= recall["8/32"] <= recall["8/64"]


def test_rows_without_structure_fall_back_to_exact_search():
    # In 512 random directions, eight components say nothing about the neighbours.
    vectors = unit_rows(np.random.default_rng(5), 1000, 512)
    outcome = calibrate_prefix(vectors, ranges([100] * 10), exact_below=0, sizes=(4, 8))
    assert outcome.prefix is None
    assert outcome.recall["8/64"] < 0.99


def test_small_tasks_and_single_episodes_are_searched_exactly():
    vectors, bounds = smooth()
    assert calibrate_prefix(vectors, bounds, exact_below=10_000).prefix is None
    assert calibrate_prefix(vectors, [(0, len(vectors))], exact_below=0).prefix is None


def test_of_equal_frames_any_is_a_right_answer():
    # 1,000 copies of one frame: "the five nearest" by row number would be a lottery.
    vectors = np.repeat(unit_rows(np.random.default_rng(6), 1, 256), 1000, axis=0)
    outcome = calibrate_prefix(vectors, ranges([100] * 10), exact_below=0, sizes=(64,))
    assert outcome.recall == {"64/16": 1.0, "64/32": 1.0, "64/64": 1.0}
    assert outcome.rerank_rows == 16
    assert np.isfinite(outcome.prefix.codes).all()
