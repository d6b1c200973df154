"""The summary of a run: what is averaged over what."""

import math

from heisd_ros.decode.report import summarise
from heisd_ros.types import DecodeReport, DraftKind


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
