"""The pictures of the report, drawn with matplotlib's Agg backend and returned as PNG bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from heisd_ros.errors import MissingDependencyError
from heisd_ros.offline.moments import gripper_changes
from heisd_ros.offline.palette import INK, MODES, QUIET, RULE, STAGES, mode_of
from heisd_ros.offline.run_record import RunRecord, StepRow
from heisd_ros.types import FloatArray

DPI = 200
WIDTH = 5.4
"""Inches; so narrow that ten-point text stays legible when a phone shrinks the picture."""
STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ECEFF3",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "heisd",
}


def path_plot(record: RunRecord, limits: FloatArray | None = None) -> bytes:
    """Return the end-effector path from above and from the side, coloured by decoding mode.

    Args:
        record: The run.
        limits: Lowest and highest corner (2, 3), metres, from `path_limits` of all runs compared;
            None fits the run.
    """
    limits = path_limits([record]) if limits is None else limits
    if limits is None:
        return _note("No end-effector pose was recorded.")
    views = ((0, 1, "From above", "x [m]", "y [m]"), (0, 2, "From the side", "x [m]", "z [m]"))
    handles = [*_mode_handles(record.rows), *_mark_handles(record.rows)]
    with _figure(2.9 + 0.22 * math.ceil(len(handles) / 2), layout="compressed") as figure:
        axes = figure.subplots(1, 2)
        for axis, (right, up, title, right_label, up_label) in zip(axes, views, strict=True):
            _draw_path(axis, record.rows, right, up)
            axis.set(title=title, xlabel=right_label, ylabel=up_label)
            axis.set_xlim(limits[0, right], limits[1, right])
            axis.set_ylim(limits[0, up], limits[1, up])
            axis.set_box_aspect(1)  # with limits that form a cube: equal scales
            axis.locator_params(nbins=4)
        _legend(figure, handles)
        return _png(figure)


def path_limits(records: Sequence[RunRecord]) -> FloatArray | None:
    """Return one cube (2, 3) around the paths of all runs, metres; None without any pose."""
    points = np.array([row.position for record in records for row in record.rows]).reshape(-1, 3)
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    half = 0.56 * max(float((high - low).max()), 0.02)
    middle = (low + high) / 2
    return np.stack([middle - half, middle + half])


def decoding_plot(record: RunRecord) -> bytes:
    """Return F with its threshold, the mode ribbon and the forward passes, step by step."""
    rows = record.rows
    steps = np.arange(len(rows), dtype=np.float64)
    with _figure(4.3) as figure:
        axes = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [3.0, 0.35, 2.4]})
        _draw_metric(axes[0], steps, rows)
        _draw_ribbon(axes[1], steps, rows)
        _draw_bars(axes[2], steps, [row.forwards for row in rows], rows)
        axes[2].set(ylabel="forward passes", xlabel="decision")
        axes[2].set_ylim(0, max(7.9, max((row.forwards for row in rows), default=0) + 0.9))
        axes[2].axhline(7, color=QUIET, linewidth=0.9, linestyle=":")
        axes[2].text(0, 7.08, "autoregressive: 7", color=QUIET, fontsize=8.5, va="bottom")
        axes[2].set_xlim(-0.7, max(len(rows), 1) - 0.3)
        _legend(figure, _mode_handles(rows))
        return _png(figure)


def time_plot(record: RunRecord) -> bytes:
    """Return the wall time of every step, stacked by stage, with the total as a line."""
    rows = record.rows
    stages = stage_names(rows)
    if not stages:
        return _note("No stage times were recorded.")
    steps, base = np.arange(len(rows)), np.zeros(len(rows))
    with _figure(2.75) as figure:
        axis = figure.subplots()
        for stage in stages:
            height = np.array([stage_time(row, stage) for row in rows])
            colour = STAGES.get(stage, STAGES["other"])
            axis.bar(steps, height, bottom=base, width=0.9, color=colour, label=stage, linewidth=0)
            base += height
        axis.set(xlabel="decision", ylabel="wall time [ms]")
        # One slow first step must not flatten all others.
        axis.set_ylim(0, 1.15 * float(np.percentile(base, 98)) + 1e-3)
        axis.set_xlim(-0.7, max(len(rows), 1) - 0.3)
        _legend(figure, axis.get_legend_handles_labels()[0], columns=4)
        return _png(figure)


def stage_names(rows: Sequence[StepRow]) -> tuple[str, ...]:
    """Return the timed stages in the order of the step; `other` is what no stage accounts for."""
    seen = {stage for row in rows for stage in row.stage_ms if stage != "total"}
    known = [stage for stage in STAGES if stage in seen]
    extra = sorted(seen - set(known))
    has_total = any("total" in row.stage_ms for row in rows)
    return (*known, *extra, *(("other",) if has_total and "other" not in seen else ()))


def stage_time(row: StepRow, stage: str) -> float:
    """Return milliseconds of a stage, 0 where it was not timed."""
    if stage in row.stage_ms:
        value = row.stage_ms[stage]
        return value if np.isfinite(value) else 0.0
    if stage != "other":
        return 0.0
    spent = sum(value for name, value in row.stage_ms.items() if name != "total")
    rest = row.stage_ms.get("total", spent) - spent
    return max(rest, 0.0) if np.isfinite(rest) else 0.0


def _draw_path(axis: Any, rows: Sequence[StepRow], right: int, up: int) -> None:  # noqa: ANN401
    points = np.array([row.position for row in rows], dtype=np.float64)
    for index in range(len(rows) - 1):
        pair = points[index : index + 2]
        axis.plot(
            pair[:, right],
            pair[:, up],
            color=MODES[mode_of(rows[index])].colour,
            linewidth=2.6,
            solid_capstyle="round",
        )
    shapes = {True: "^", False: "v"}
    for step, opens in gripper_changes(rows):
        face = "white" if opens else INK
        axis.plot(*points[step, [right, up]], shapes[opens], color=INK, mfc=face, ms=8.5, zorder=4)
    axis.plot(*points[0, [right, up]], "o", color=INK, mfc="white", ms=8, mew=1.8, zorder=5)
    axis.plot(*points[-1, [right, up]], "s", color=INK, mfc="none", ms=12, mew=1.6, zorder=5)


def _draw_metric(axis: Any, steps: FloatArray, rows: Sequence[StepRow]) -> None:  # noqa: ANN401
    fused = np.array([row.fused for row in rows], dtype=np.float64)
    threshold = np.array([row.threshold for row in rows], dtype=np.float64)
    colours = [MODES[mode_of(row)].colour for row in rows]
    axis.plot(steps, fused, color="#9AA3B0", linewidth=1.2, zorder=2)
    axis.scatter(steps, fused, c=colours, s=16, zorder=3, linewidths=0)
    if np.isfinite(threshold).any():
        axis.plot(steps, threshold, color=INK, linewidth=1.1, linestyle="--")
        last = float(threshold[np.isfinite(threshold)][-1])
        axis.text(
            0.995,
            last + 0.015,
            f"threshold {last:.2f}",
            transform=axis.get_yaxis_transform(),
            ha="right",
            va="bottom",
            fontsize=9,
        )
    if not np.isfinite(fused).any():
        axis.text(0.5, 0.5, "F was not measured", transform=axis.transAxes, ha="center")
    axis.set(ylabel="F")
    axis.set_ylim(-0.02, 1.04)


def _draw_ribbon(axis: Any, steps: FloatArray, rows: Sequence[StepRow]) -> None:  # noqa: ANN401
    _draw_bars(axis, steps, [1.0] * len(rows), rows, width=1.0)
    axis.set_yticks([])
    axis.set_ylim(0, 1)
    axis.grid(visible=False)
    axis.set_ylabel("mode", rotation=0, ha="right", va="center")
    for spine in axis.spines.values():
        spine.set_visible(False)


def _draw_bars(
    axis: Any,  # noqa: ANN401  (matplotlib axes)
    steps: FloatArray,
    heights: Sequence[float],
    rows: Sequence[StepRow],
    width: float = 0.82,
) -> None:
    for mode in modes_in(rows):
        chosen = np.array([mode_of(row) == mode for row in rows])
        look = MODES[mode]
        axis.bar(
            steps[chosen],
            np.asarray(heights, dtype=np.float64)[chosen],
            width=width,
            color=look.colour,
            hatch=look.hatch or None,
            edgecolor="white" if look.hatch else look.colour,
            linewidth=0,
        )


def modes_in(rows: Sequence[StepRow]) -> tuple[str, ...]:
    """Return the modes that occur, in the order of the palette."""
    seen = {mode_of(row) for row in rows}
    return tuple(mode for mode in MODES if mode in seen)


def _mode_handles(rows: Sequence[StepRow]) -> list[Any]:
    from matplotlib.patches import Patch

    looks = [MODES[mode] for mode in modes_in(rows)]
    return [
        Patch(facecolor=look.colour, hatch=look.hatch or None, edgecolor="white", label=look.label)
        for look in looks
    ]


def _mark_handles(rows: Sequence[StepRow]) -> list[Any]:
    from matplotlib.lines import Line2D

    states = {opens for _, opens in gripper_changes(rows)}
    marks = [("o", "white", "start"), ("s", "none", "end")]
    marks += [("v", INK, "gripper closes")] if False in states else []
    marks += [("^", "white", "gripper opens")] if True in states else []
    return [
        Line2D([], [], linestyle="", marker=shape, color=INK, mfc=face, ms=7, label=label)
        for shape, face, label in marks
    ]


def _legend(figure: Any, handles: Sequence[Any], columns: int = 2) -> None:  # noqa: ANN401
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=min(len(handles), columns))


def _note(text: str) -> bytes:
    with _figure(0.8) as figure:
        figure.text(0.5, 0.5, text, ha="center", va="center", color=QUIET)
        return _png(figure)


def _png(figure: Any) -> bytes:  # noqa: ANN401
    buffer = io.BytesIO()
    # No Software entry: the same record gives the same bytes with any matplotlib build.
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


@contextmanager
def _figure(height: float, layout: Any = "constrained") -> Iterator[Any]:  # noqa: ANN401
    """Yield an empty figure of this height in inches; no window, no global state."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "matplotlib draws the report: pip install 'heisd_ros[report]'"
        ) from error
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(WIDTH, height), layout=layout)
