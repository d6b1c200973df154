"""Where the time of a step went."""

from __future__ import annotations

from collections.abc import Callable


class Stopwatch:
    """Splits one step into named stages by an injected clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start; `clock` returns seconds and never goes back."""
        self._clock = clock
        self._start = self._last = clock()
        self._stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Charge the time since the last lap to a stage."""
        now = self._clock()
        self._stages[stage] = self._stages.get(stage, 0.0) + 1e3 * (now - self._last)
        self._last = now

    def stage_ms(self) -> dict[str, float]:
        """Return milliseconds per stage, and `total` since the start."""
        return {**self._stages, "total": 1e3 * (self._clock() - self._start)}
