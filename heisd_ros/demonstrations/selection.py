"""Which episodes a build takes, and what is counted of those that it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from heisd_ros.demonstrations.episode import Episode
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import StoreError

FAILED, OVER_LIMIT = "failed episodes", "episodes over the limit"
OTHER_TASK, EMPTY = "episodes of other tasks", "empty episodes"


class Selection:
    """Decides which episodes are stored, and counts those that are not."""

    def __init__(self, tasks: Iterable[str], per_task: int | None, max_lost: float) -> None:
        """Set up.

        Args:
            tasks: Instructions to keep; none for all.
            per_task: Largest number of episodes of one task; None for all.
            max_lost: Share of a task's steps that may be lost in failed episodes.
        """
        self._wanted = {normalise_task(task) for task in tasks}
        self._limit, self._max_lost = per_task, max_lost
        self._taken: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._failed_steps: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def takes(self, episode: Episode) -> bool:
        """Return whether to store the episode."""
        task = normalise_task(episode.instruction)
        if self._wanted and task not in self._wanted:
            self.dropped[OTHER_TASK] += 1
            return False
        if not len(episode):
            self.dropped[EMPTY] += 1
            return False
        self._steps[task] += len(episode)
        if not episode.success:
            self._failed_steps[task] += len(episode)
            self.dropped[FAILED] += 1
            return False
        if self._limit is not None and self._taken[task] >= self._limit:
            self.dropped[OVER_LIMIT] += 1
            return False
        self._taken[task] += 1
        return True

    def check(self) -> None:
        """Refuse a silent loss: a wanted task that is absent, or one that mostly failed.

        Raises:
            StoreError: Naming the tasks.
        """
        absent: Collection[str] = sorted(self._wanted - set(self._steps))
        if absent:
            raise StoreError(f"no episode of {', '.join(map(repr, absent))}; check the spelling")
        lost = [
            f"{task!r} ({self._failed_steps[task]} of {steps} steps)"
            for task, steps in sorted(self._steps.items())
            if self._failed_steps[task] > self._max_lost * steps
        ]
        if lost:
            raise StoreError(
                f"more than {self._max_lost:.0%} lost in failed episodes: {', '.join(lost)}; "
                "collect better ones, or allow it with --max-lost 1"
            )
