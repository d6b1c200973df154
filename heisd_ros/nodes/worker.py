"""One thread beside the executor: slow work happens there, and only the newest waits."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

Job = Callable[[], None]


class LatestWorker:
    """Runs jobs one at a time; of the jobs that may be skipped only the newest is kept waiting.

    Attributes:
        dropped: Jobs that were replaced by a newer one before they began.
    """

    def __init__(self, name: str, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Start the thread.

        Args:
            name: Name of the thread.
            clock: Returns nanoseconds, never goes back.
        """
        self.dropped = 0
        self._clock = clock
        self._condition = threading.Condition()
        self._newest: Job | None = None
        self._queue: deque[Job] = deque()
        self._busy_since_ns: int | None = None
        self._closed = False
        # Daemon: a job that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Run this job next; a job submitted before it that has not begun is dropped."""
        with self._condition:
            self.dropped += self._newest is not None
            self._newest = job
            self._condition.notify()

    def enqueue(self, job: Job) -> None:
        """Run this job as soon as possible; it is never dropped."""
        with self._condition:
            self._queue.append(job)
            self._condition.notify()

    def busy_ns(self) -> int:
        """Return for how long the current job has been running, nanoseconds; 0 when idle."""
        since = self._busy_since_ns
        return 0 if since is None else self._clock() - since

    def close(self, timeout_s: float) -> bool:
        """Forget waiting jobs and end the thread; return False if a job is still running then."""
        with self._condition:
            self._closed = True
            self._newest = None
            self._queue.clear()
            self._condition.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._busy_since_ns = self._clock()
            try:
                job()
            except Exception:
                # Whatever one job does, the next one must run: the caller's jobs count their
                # own failures, so what arrives here is a defect and is logged in full.
                logging.getLogger(__name__).exception("job failed in %s", self._thread.name)
            finally:
                self._busy_since_ns = None

    def _next(self) -> Job | None:
        with self._condition:
            while not (self._queue or self._newest or self._closed):
                self._condition.wait()
            if self._queue:
                return self._queue.popleft()
            job, self._newest = self._newest, None
            return job
