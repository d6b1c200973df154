"""The experiments of bench/reliability, a few repetitions: counts only, no durations."""

import json
import math

import pytest

from bench.reliability import actions, bring_up, inputs, kills, parameters
from bench.reliability.outcome import Figure, Outcome, Settings, milliseconds
from bench.reliability.table import markdown

SPEEDLESS = ("action_fuzz", "bad_pictures", "bad_messages", "parameter_fuzz", "bring_up")
"""Rows whose counts do not depend on how fast the machine is."""
ROWS = {row.key: row for group in (actions, bring_up, inputs, parameters) for row in group.ROWS}


def counts(outcome):
    return {figure.name: figure.value for figure in outcome.figures if not figure.unit}


def test_a_killed_decoder_is_at_rest_after_its_restart_until_it_is_told_again(tmp_path):
    found = counts(kills.kill_decoder(tmp_path, 1))
    assert found["commands that moved after the restart without an instruction"] == 0


@pytest.mark.parametrize("key", SPEEDLESS)
def test_nothing_unsafe_and_no_end_of_a_process_in_a_short_run(key, tmp_path):
    outcome = ROWS[key].measure(Settings("short", tmp_path))
    missed = [figure for figure in outcome.figures if not figure.unit and not figure.reached]
    assert missed == []


@pytest.mark.parametrize(("length", "runs"), [("short", 4), ("medium", 14), ("full", 50)])
def test_medium_is_the_geometric_mean_of_few_and_all(length, runs, tmp_path):
    assert Settings(length, tmp_path).runs(4, 50) == runs


@pytest.mark.parametrize(
    ("value", "low", "high", "reached"),
    [(5, None, None, True), (5, None, 5, True), (6, None, 5, False), (4, 5, None, False)],
)
def test_a_figure_is_reached_within_its_bounds(value, low, high, reached):
    assert Figure("n", value, low=low, high=high).reached is reached


def test_what_was_never_observed_reaches_no_target():
    (figure,) = milliseconds("stop", [], 0.5)
    assert math.isnan(figure.value)
    assert not Outcome("0 x", (figure,)).reached


def test_the_table_says_value_bound_load_and_what_cannot_run():
    row = {
        "key": "cameras",
        "title": "All cameras stop",
        "target": "550 ms",
        "status": "**no**",
        "runs": "5 x",
        "length": "short",
        "figures": [
            {"name": "worst", "value": 954.49, "unit": "ms", "reached": False},
            {"name": "deaths", "value": 0, "unit": "", "reached": True},
        ],
        "note": "10 Hz.",
        "load": 4.7,
        "cores": 2,
        "jitter_ms": 310.0,
        "machine": "a machine",
        "commit": "abc",
        "date": "2026-12-01 01:19 UTC",
    }
    blocked = {**row, "key": "real", "status": "cannot run here", "figures": [], "runs": ""}
    text = markdown(json.loads(json.dumps([row, blocked])))
    assert (
        "| All cameras stop (`cameras`) | 550 ms | worst 954 ms (**missed**); deaths 0 "
        "| 5 x (short) | **no** | 5 on 2 cores, wakes 310 ms late |"
    ) in text
    assert "(`real`) | 550 ms | - | - | cannot run here |" in text
    assert text.count("- a machine; commit abc, 2026-12-01.") == 1
