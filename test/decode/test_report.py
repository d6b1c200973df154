"""The summary of a run: what is averaged over what."""

import math

import numpy as np
import pytest

from heisd_ros.decode.report import Neighbourhood, summarise
from heisd_ros.types import DecodeReport, Draft, DraftKind


def report(kind=DraftKind.RETRIEVAL, skipped=False, accept=7, forwards=1, nodes=6, total=10.0):
    return DecodeReport(kind, skipped, accept, forwards, {"total": total}, nodes=nodes)


def test_accept_length_is_the_mean_over_verified_drafts_only():
    rows = [
        report(accept=7),
        report(accept=4, forwards=4),
        report(DraftKind.AR, nodes=0, accept=1, forwards=7),
        report(skipped=True, accept=0, forwards=0),
    ]
    summary = summarise(rows)
    assert summary.accept_length == 5.5  # (7 + 4) / 2: neither the AR nor the skipped step counts
    assert summary.forwards_per_step == 3.0  # (1 + 4 + 7 + 0) / 4
    assert summary.skip_share == 0.25
    assert summary.mode_share["retrieval"] == 0.75


def test_times_are_median_and_99th_percentile():
    summary = summarise([report(total=float(ms)) for ms in range(1, 102)])
    assert (summary.total_ms_p50, summary.total_ms_p99) == (51.0, 100.0)


def test_an_empty_run_has_no_figures():
    summary = summarise([])
    assert summary.steps == 0
    assert math.isnan(summary.forwards_per_step)


def test_neighbours_are_told_apart_from_the_other_chains_of_a_draft():
    chains = np.zeros((4, 7), dtype=np.int64)
    chains[:, :3] = [[10, 20, 30], [14, 20, 29], [12, 26, 30], [99, 99, 99]]
    actions = np.zeros((4, 7))
    actions[:, 6] = [1.0, 0.9, 0.0, 0.0]
    scores = np.array([0.75, 0.5, 0.25], dtype=np.float32)  # the fourth chain is no neighbour
    near = Neighbourhood.of(Draft(DraftKind.RETRIEVAL, None, scores, chains, actions))
    assert near.scores == (0.75, 0.5, 0.25)
    assert near.top_score == 0.75
    assert near.spread == (4 + 6 + 1) / 2
    assert near.gripper_consensus == pytest.approx(2 / 3)


def test_without_neighbours_nothing_is_known():
    nothing = Draft(DraftKind.KINEMATIC, None, np.zeros(0), np.ones((1, 7), int), np.ones((1, 7)))
    near = Neighbourhood.of(nothing)
    assert near.scores == ()
    assert all(map(math.isnan, (near.top_score, near.spread, near.gripper_consensus)))
