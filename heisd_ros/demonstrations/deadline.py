"""Calls that must not hold up the control loop: a deadline, and a pause after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from heisd_ros.errors import StoreError

T = TypeVar("T")


class DeadlineCaller:
    """Runs calls in worker threads, gives up after a deadline, and then fails fast for a while.

    After a failure, calls are refused at once for `pause_s`; then one call is let through as a
    trial. So a dead server costs one deadline per pause, and its return is noticed within a pause.
    """

    def __init__(
        self,
        timeout_s: float,
        pause_s: float,
        *,
        workers: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the workers.

        Args:
            timeout_s: Deadline of one call, seconds.
            pause_s: Time without calls after a failure, seconds.
            workers: Threads; 1 makes the calls one after the other.
            clock: Monotonic seconds.
        """
        self._timeout_s, self._pause_s, self._clock = timeout_s, pause_s, clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="store")
        self._lock = threading.Lock()
        self._closed_until = float("-inf")
        self._reason = ""

    def call(self, function: Callable[[], T]) -> T:
        """Return what the function returns.

        Raises:
            StoreError: What the function raised, that the deadline passed, or that the pause after
                an earlier failure is not over.
        """
        with self._lock:
            now = self._clock()
            if now < self._closed_until:
                raise StoreError(f"paused after a failure: {self._reason}")
            if self._reason:
                # One trial; whoever comes meanwhile is still refused.
                self._closed_until = now + self._pause_s
        try:
            result = self._pool.submit(function).result(self._timeout_s)
        except FutureTimeoutError as error:
            self._pause(f"no answer within {self._timeout_s} s")
            raise StoreError(f"no answer within {self._timeout_s} s; is the server up?") from error
        except StoreError as error:
            self._pause(str(error))
            raise
        with self._lock:
            self._reason, self._closed_until = "", float("-inf")
        return result

    def close(self) -> None:
        """Refuse further calls; a call that is running ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._reason, self._closed_until = "closed", float("inf")

    def _pause(self, reason: str) -> None:
        with self._lock:
            self._reason, self._closed_until = reason, self._clock() + self._pause_s
