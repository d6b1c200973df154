"""What an experiment returns: figures with their bounds, and how a row is described."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


class CannotRunError(RuntimeError):
    """What an experiment needs is not on this machine; the text names it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        name: What it is.
        value: The number; NaN if nothing was observed, which reaches no bound.
        unit: `ms`, `s`, `MB` or empty for a count.
        low: Smallest value that reaches the target; None for no bound.
        high: Largest one.
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the value is within its bounds; True without bounds."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return (self.low is None and self.high is None) or low <= self.value <= high


@dataclass(frozen=True, slots=True)
class Settings:
    """How an experiment shall be run.

    Attributes:
        length: `short`: few repetitions, shows that the experiment works and what goes wrong often;
            `medium`; or `full`.
        logs: Folder for the logs of the node processes.
        demos: Folder of demonstrated episodes; None renders what needs pictures of a task.
    """

    length: str
    logs: Path
    demos: Path | None = None

    def runs(self, short: int, full: int) -> int:
        """Return the number of repetitions, or of seconds; medium is their geometric mean."""
        return {"short": short, "medium": round(math.sqrt(short * full)), "full": full}[self.length]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        key: For `--only`.
        title: What is measured, in words.
        target: The bound, in words.
        measure: The experiment; returns its repetitions and figures.
    """

    key: str
    title: str
    target: str
    measure: Callable[[Settings], Outcome]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one experiment.

    Attributes:
        runs: Repetitions, or what was repeated, e.g. `10 x`.
        figures: What was measured.
        note: What a reader must know to judge them.
    """

    runs: str
    figures: tuple[Figure, ...] = field(default=())
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether all figures are within their bounds."""
        return all(figure.reached for figure in self.figures)


def none_of(name: str, count: int) -> Figure:
    """Return a count that must be zero."""
    return Figure(name, count, high=0)


def all_of(name: str, count: int, total: int) -> Figure:
    """Return a count that must be the whole."""
    return Figure(name, count, low=total, high=total)


def milliseconds(name: str, values_s: Sequence[float], bound_s: float | None) -> list[Figure]:
    """Return p50 and the worst of durations given in seconds; the bound is for the worst."""
    if not values_s:
        return [Figure(f"{name}, worst", math.nan, "ms", high=math.inf)]
    ms = 1e3 * np.asarray(values_s)
    high = None if bound_s is None else 1e3 * bound_s
    return [
        Figure(f"{name}, p50", float(np.percentile(ms, 50)), "ms"),
        Figure(f"{name}, p99", float(np.percentile(ms, 99)), "ms"),
        Figure(f"{name}, worst", float(ms.max()), "ms", high=high),
    ]
