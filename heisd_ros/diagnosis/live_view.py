"""The live view as a picture of a state: a pure function, shown with rich."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from heisd_ros.diagnosis.live import Figures, LiveState
from heisd_ros.errors import MissingDependencyError

try:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise MissingDependencyError(
        "rich draws the live view: pip install 'heisd_ros[monitor]'"
    ) from error

BAR = 40
QUIET_S = 3.0
"""Without a decision for this long the view says so."""
LEVELS = {0: ("ok", "green"), 1: ("warn", "yellow"), 2: ("error", "bold red"), 3: ("stale", "red")}
NONE = "-"


def view(state: LiveState, now_ns: int) -> Any:  # noqa: ANN401  (a rich renderable)
    """Return the view.

    Args:
        state: What was heard.
        now_ns: Nanoseconds of the clock of `LiveDecision.at_ns`.
    """
    figures = state.figures(now_ns)
    return Group(
        Panel(_headline(state, now_ns), title=Text("HeiSD")),
        Panel(_boundary(state), title=Text("F against the boundary")),
        Panel(_minute(figures), title=Text("last minute")),
        Panel(_stages(figures.stage_ms), title=Text("time per decision, mean [ms]")),
        Panel(_reasons(figures), title=Text("reasons and guard, last minute")),
        Panel(_statuses(state), title=Text("diagnostics")),
    )


def _headline(state: LiveState, now_ns: int) -> Text:
    last = state.last
    if last is None:
        return Text("no decision yet", style="yellow")
    silent_s = (now_ns - last.at_ns) * 1e-9
    # Text, not markup: an instruction may hold brackets.
    line = Text(f"{last.instruction or 'no instruction'}\n")
    mode = "skipped" if last.report.skipped else last.report.kind.value
    line.append(f"mode {mode if last.decided else 'at rest'}", style="bold")
    line.append(f", picture {last.picture_age_s * 1e3:.0f} ms old at the command")
    if silent_s > QUIET_S:
        line.append(f"\nno decision for {silent_s:.0f} s", style="bold red")
    return line


def _boundary(state: LiveState) -> Text:
    if math.isnan(state.fused):
        return Text("F unknown")
    level = round(min(max(state.fused, 0.0), 1.0) * BAR)
    bar = list("#" * level + "." * (BAR - level))
    above = math.isfinite(state.threshold) and state.fused > state.threshold
    if math.isfinite(state.threshold):
        bar[min(round(state.threshold * BAR), BAR - 1)] = "|"
    word = "above: retrieval" if above else "below: drafter"
    text = f"{''.join(bar)} F {state.fused:.2f}"
    if math.isfinite(state.threshold):
        text += f", boundary {state.threshold:.2f}, {word}"
    return Text(text)


def _minute(figures: Figures) -> Table:
    total = sum(figures.modes.values())
    shares = ", ".join(f"{m} {100 * n / total:.0f} %" for m, n in figures.modes.most_common())
    table = _grid()
    _row(table, "decisions", f"{figures.decisions}, {figures.hz:.1f} Hz")
    _row(table, "forward passes per decision", _number(figures.forwards))
    _row(table, "accept length [tokens]", _number(figures.accept_length))
    _row(table, "without verification", _percent(figures.skipped))
    _row(table, "modes", shares or NONE)
    return table


def _stages(stage_ms: Mapping[str, float]) -> Table:
    table = _grid()
    longest = max(stage_ms.values(), default=0.0)
    for name, mean in stage_ms.items():
        bar = "#" * round(BAR * mean / longest) if longest > 0.0 else ""
        _row(table, name, f"{mean:8.1f} {bar}")
    if not stage_ms:
        _row(table, NONE, "")
    return table


def _reasons(figures: Figures) -> Table:
    table = _grid()
    for where, counts in (("decision", figures.reasons), ("guard", figures.guard)):
        for reason, count in counts.most_common():
            _row(table, f"{where}: {reason}", str(count))
    if not table.row_count:
        _row(table, "nothing", "")
    return table


def _statuses(state: LiveState) -> Table:
    table = _grid()
    for name, status in sorted(state.statuses.items()):
        word, style = LEVELS.get(status.level, LEVELS[3])
        _row(table, Text(name), Text(f"{word} {status.text}", style=style))
    if not table.row_count:
        _row(table, "none received", "")
    return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    return table


def _row(table: Table, *cells: str | Text) -> None:
    """Add a row. Words of messages are text: rich would take brackets in a string for markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else NONE


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if math.isfinite(share) else NONE
