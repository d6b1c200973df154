"""Calls that must not hold up the control loop: a deadline, and a pause after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from queue import SimpleQueue
from typing import Any, TypeVar

from heisd_ros.errors import StoreError, StoreUnavailableError

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
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare the workers.

        Args:
            timeout_s: Deadline of one call, seconds.
            pause_s: Time without calls after a failure, seconds.
            workers: Threads; 1 makes the calls one after the other.
            clock: Monotonic seconds.
            on_change: Told the reason when calls begin to fail, and an empty one when they succeed
                again.
        """
        self._timeout_s, self._pause_s, self._clock = timeout_s, pause_s, clock
        self._pool = DaemonPool(workers, "store")
        self._lock = threading.Lock()
        self._closed_until = float("-inf")
        self._reason = ""
        self._on_change = on_change

    @property
    def timeout_s(self) -> float:
        """Deadline of one call, seconds."""
        return self._timeout_s

    def call(self, function: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Return what the function returns.

        Args:
            function: Runs on a worker; after the deadline it runs on, but nobody waits.
            timeout_s: Deadline of this call, seconds; None: the usual one.

        Raises:
            StoreUnavailableError: If the deadline passed, or the pause after an earlier failure is
                not over.
            StoreError: What the function raised.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return self.call_here(lambda: self._wait_for(function, limit_s))

    def call_here(self, function: Callable[[], T]) -> T:
        """Return what the function returns; it runs on this thread and keeps `timeout_s` itself.

        Saves the way to a worker and back. Raises as `call`.
        """
        with self._lock:
            now = self._clock()
            if now < self._closed_until:
                raise StoreUnavailableError(f"paused after a failure: {self._reason}")
            if self._reason:
                # One trial; whoever comes meanwhile is still refused.
                self._closed_until = now + self._pause_s
        try:
            result = function()
        except StoreError as error:
            self._settle(str(error) or type(error).__name__)
            raise
        self._settle("")
        return result

    def close(self) -> None:
        """Refuse further calls; a call that is running ends by itself."""
        self._pool.close()
        with self._lock:
            self._reason, self._closed_until = "closed", float("inf")

    def _wait_for(self, function: Callable[[], T], limit_s: float) -> T:
        future = self._pool.submit(function)
        try:
            return future.result(limit_s)
        except FutureTimeoutError:
            # What still waits for a worker must not reach a server that has just come back.
            future.cancel()
            text = f"no answer within {limit_s} s; is the server up?"
            raise StoreUnavailableError(text) from None

    def _settle(self, reason: str) -> None:
        """Note how a call ended; an empty reason is success."""
        with self._lock:
            if self._reason == "closed":
                return
            changed = bool(reason) != bool(self._reason)
            self._reason = reason
            self._closed_until = self._clock() + self._pause_s if reason else float("-inf")
        if changed and self._on_change is not None:
            self._on_change(reason)


class DaemonPool:
    """A few threads that run functions; one that hangs does not keep the process from ending.

    `concurrent.futures.ThreadPoolExecutor` waits for its threads when the interpreter ends.
    """

    def __init__(self, workers: int, name: str) -> None:
        """Start the threads."""
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._workers = workers
        for number in range(workers):
            threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True).start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run the function on the next free thread."""
        future: Future[T] = Future()
        self._work.put((future, function))
        return future

    def close(self) -> None:
        """End the threads when they have nothing left to do."""
        for _ in range(self._workers):
            self._work.put(None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, function = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
