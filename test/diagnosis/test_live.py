"""The live view: figures by hand, and the text a person sees."""

import io
import math

import pytest

from heisd_ros.diagnosis.live import LiveDecision, LiveState, LiveStatus
from heisd_ros.types import DecodeReport, DraftKind

rich_console = pytest.importorskip("rich.console")

SECOND = 1_000_000_000


def decision(at_s, *, decided=True, guard="", instruction="lift the bowl", **report):
    facts = {
        "kind": DraftKind.RETRIEVAL,
        "skipped": False,
        "accept_length": 7.0,
        "forwards": 1,
        "stage_ms": {"vision": 4.0, "total": 20.0},
        "fused": 0.5,
        "nodes": 12,
        "top_score": 0.9,
        "reason": "",
    }
    return LiveDecision(
        round(at_s * SECOND), DecodeReport(**{**facts, **report}), decided, 0.08, instruction, guard
    )


def filled():
    state = LiveState(threshold=0.2)
    state.offer_decision(decision(100.0))
    state.offer_decision(decision(100.2, skipped=True, forwards=0, nodes=0, accept_length=0.0))
    state.offer_decision(
        decision(
            100.4,
            kind=DraftKind.DRAFTER,
            forwards=3,
            accept_length=2.0,
            stage_ms={"vision": 8.0, "total": 50.0},
            guard="linear_limit,linear_step",
        )
    )
    state.offer_decision(decision(100.6, decided=False, guard="stale_image", reason="late_result"))
    state.offer_fused(0.5, 0)
    state.offer_status("decoder_node: decisions", LiveStatus(1, "stale"))
    return state


def shown(state, now_s):
    from heisd_ros.diagnosis.live_view import view

    console = rich_console.Console(record=True, width=100, file=io.StringIO())
    console.print(view(state, round(now_s * SECOND)))
    return console.export_text()


def test_figures_of_the_last_minute():
    figures = filled().figures(101 * SECOND)
    assert figures.decisions == 4
    assert figures.hz == pytest.approx(5.0)  # three gaps in 0.6 s
    assert figures.forwards == pytest.approx(4 / 3)  # 1, 0, 3
    assert figures.accept_length == pytest.approx(4.5)  # 7 and 2; a skipped draft is not verified
    assert figures.skipped == pytest.approx(1 / 3)
    assert figures.stage_ms["total"] == pytest.approx(30.0)  # 20, 20, 50
    assert dict(figures.modes) == {"retrieval": 1, "skipped": 1, "drafter": 1}
    assert dict(figures.guard) == {"linear_limit": 1, "linear_step": 1, "stale_image": 1}
    assert dict(figures.reasons) == {"late_result": 1}


def test_what_is_older_than_a_minute_does_not_count():
    state = filled()
    assert state.figures(161 * SECOND).decisions == 0
    assert math.isnan(state.figures(161 * SECOND).forwards)
    state.offer_decision(decision(160.5))
    assert state.figures(160 * SECOND + SECOND // 2).decisions == 2  # of 100.6 and 160.5 s


def test_the_view_shows_mode_boundary_latency_reasons_and_age():
    text = shown(filled(), 100.7)
    for part in (
        "lift the bowl",
        "mode at rest",
        "picture 80 ms old",
        "F 0.50, boundary 0.20, above: retrieval",
        "4, 5.0 Hz",
        "1.33",
        "4.50",
        "33 %",
        "accept length [tokens]",
        "mean [ms]",
        "decision: late_result",
        "guard: linear_limit",
        "decoder_node: decisions",
        "warn stale",
    ):
        assert part in text, part
    assert "no decision for" not in text


def test_the_bar_has_forty_places_and_the_boundary_in_it():
    line = next(line for line in shown(filled(), 100.7).splitlines() if "F 0.50" in line)
    # F 0.5 fills 20 of 40; the boundary 0.2 is place 8.
    assert "#" * 8 + "|" + "#" * 11 + "." * 20 in line


def test_silence_is_told():
    assert "no decision for 10 s" in shown(filled(), 110.6)
    assert "no decision yet" in shown(LiveState(), 0.0)


def test_what_messages_say_is_text_and_never_markup():
    state = LiveState()
    evil = "[red]stop[/red] [link=x]y"
    state.offer_decision(decision(1.0, instruction=evil, guard="[bold]g", reason="[bold]r"))
    state.offer_status("[bold]name", LiveStatus(0, "[bold]status"))
    text = shown(state, 1.0)
    for part in (evil, "guard: [bold]g", "decision: [bold]r", "[bold]name", "[bold]status"):
        assert part in text, part
