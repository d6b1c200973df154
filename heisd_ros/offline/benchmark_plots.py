"""The pictures of an evaluation: success with its uncertainty, and what a step costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.errors import MissingDependencyError
from heisd_ros.offline.palette import MODES
from heisd_ros.offline.plots import DPI, STYLE, WIDTH
from heisd_ros.offline.results import ALL_TASKS, Results, Row

BLUE = MODES["retrieval"].colour
ORANGE = MODES["drafter"].colour
GREY = MODES["ar"].colour


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Write `success.png` and `cost.png`; return their paths.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    rows = [row for row in results.rows if row.task == ALL_TASKS]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "success.png"]
    with _figure(0.7 + 0.34 * len(rows)) as figure:
        _draw_success(figure.subplots(), rows)
        figure.savefig(paths[0], dpi=DPI, metadata={"Software": None})
    decoded = [row for row in rows if not np.isnan(row.forwards) and not np.isnan(row.projected_ms)]
    if decoded:
        paths.append(folder / "cost.png")
        with _figure(0.9 + 0.34 * len(decoded)) as figure:
            _draw_cost(figure.subplots(1, 2, sharey=True), decoded)
            figure.suptitle(f"projected: {results.profile}", fontsize=8)
            figure.savefig(paths[1], dpi=DPI, metadata={"Software": None})
    return paths


def _draw_success(axis: Any, rows: Sequence[Row]) -> None:  # noqa: ANN401
    places = np.arange(len(rows))[::-1]
    rate = np.array([row.successes / max(row.episodes, 1) for row in rows])
    low = rate - np.array([row.low for row in rows])
    high = np.array([row.high for row in rows]) - rate
    axis.barh(places, 100 * rate, color=BLUE, height=0.62, linewidth=0)
    errors = 100 * np.clip(np.stack([low, high]), 0.0, None)
    axis.errorbar(100 * rate, places, xerr=errors, fmt="none", ecolor="#1C2430", capsize=3)
    axis.set_yticks(places, [f"{row.method}  {row.successes}/{row.episodes}" for row in rows])
    axis.set(xlim=(0, 100), xlabel="episodes solved [%], Wilson 95 % interval")
    axis.grid(visible=False, axis="y")


def _draw_cost(axes: Sequence[Any], rows: Sequence[Row]) -> None:
    places = np.arange(len(rows))[::-1]
    forwards, time = axes
    forwards.barh(places, [row.forwards for row in rows], color=GREY, height=0.62, linewidth=0)
    forwards.set(xlabel="forwards / step")
    forwards.set_yticks(places, [row.method for row in rows])
    time.barh(places, [row.projected_ms for row in rows], color=ORANGE, height=0.62, linewidth=0)
    time.set(xlabel="ms / step, projected")
    for axis in axes:
        axis.grid(visible=False, axis="y")


@contextmanager
def _figure(height: float) -> Iterator[Any]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "matplotlib draws the plots: pip install 'heisd_ros[report]'"
        ) from error
    style: Any = STYLE  # matplotlib's types list every single name
    with mpl.rc_context(style):
        yield Figure(figsize=(WIDTH, height), layout="constrained")
