"""The table of a page from the results of the experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BLOCK = "reliability"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per experiment, what could not run, and where the figures come from."""
    head = "| what | target | measured | repeated | reached | load |\n|---|---|---|---|---|---|"
    lines = [_line(row) for row in rows]
    places = dict.fromkeys((row["machine"], row["commit"], row["date"][:10]) for row in rows)
    origin = [f"- {machine}; commit {commit}, {date}." for machine, commit, date in places]
    notes = [f"- `{row['key']}`: {row['note']}" for row in rows if row["note"]]
    return "\n".join([head, *lines, "", *notes, "", *origin])


def _line(row: Mapping[str, Any]) -> str:
    figures = "; ".join(_figure(figure) for figure in row["figures"]) or "-"
    cells = (
        f"{row['title']} (`{row['key']}`)",
        row["target"],
        figures,
        f"{row['runs']} ({row['length']})" if row["runs"] else "-",
        row["status"],
        f"{row['load']:.0f} on {row['cores']} cores, wakes {row['jitter_ms']:.0f} ms late",
    )
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _figure(figure: Mapping[str, Any]) -> str:
    value = figure["value"]
    number = "none seen" if value is None else _number(value)
    unit = f" {figure['unit']}" if figure["unit"] and value is not None else ""
    missed = "" if figure["reached"] else " (**missed**)"
    return f"{figure['name']} {number}{unit}{missed}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) or abs(value) >= 100 else f"{value:.1f}"


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
