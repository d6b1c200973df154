"""Starting, spinning and ending nodes: one thread and executor each, exit code 0 on a signal."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Protocol, TypeVar

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from heisd_ros.errors import HeisdError

EXIT_REFUSED = 2
"""A known error at start: configuration, checkpoint, store."""
EXIT_FATAL = 3
"""An error after which only a restart helps."""


class ClosableNode(Protocol):
    """A node that leaves the arm at rest when it is closed."""

    def rest(self) -> None:
        """End all output at once; called while the node still spins."""

    def close(self) -> None:
        """Free what the node holds; called after it has stopped spinning."""

    def destroy_node(self) -> None:
        """Free the node."""


AnyNode = TypeVar("AnyNode", bound=Node)
Result = TypeVar("Result")

SPIN = "spin_"
"""Names of the threads that spin a node begin like this."""
STOP_S = 1.0
"""Longest wait for the running callback of a node that is being stopped."""
SWITCH_S = 0.0005
"""How long a thread may keep the interpreter while another waits for it (Python's own: 5 ms).

A picture becomes a twist through five threads; each may wait so long for the one before. Measured
with bench/node_latency.py on a busy machine: a fifth less at the median, a seventh at p99.
"""


def share_interpreter() -> None:
    """Let the threads of this process hand the interpreter over quickly; for its `main` to call."""
    sys.setswitchinterval(SWITCH_S)


@contextmanager
def ros_context(
    args: Sequence[str] | None = None, *, domain_id: int | None = None
) -> Iterator[Context]:
    """Initialise a context of our own and shut it down at the end.

    No signal handlers of rclpy: with them the context is gone before a last zero command can be
    published.
    """
    context = Context()
    rclpy.init(
        args=None if args is None else list(args),
        context=context,
        domain_id=domain_id,
        signal_handler_options=SignalHandlerOptions.NO,
    )
    try:
        yield context
    finally:
        context.try_shutdown()


class NodeThread:
    """Spins one node in one thread. Several threads cost less than one multi-threaded executor."""

    def __init__(self, node: Node) -> None:
        """Start spinning."""
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._stopping = threading.Event()
        # Daemon: a transition that loads for minutes must not keep the process from ending.
        self._thread = threading.Thread(
            target=self._spin, name=f"{SPIN}{node.get_name()}", daemon=True
        )
        self._thread.start()

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function on the node's thread, between two callbacks, and return its result."""
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            return function()
        outcome: Future[Result] = Future()
        self._executor.create_task(_run_into, outcome, function)
        return outcome.result()

    def stop(self) -> bool:
        """Stop spinning; return False if a callback is still running then. May be called twice."""
        self._stopping.set()
        self._executor.create_task(_nothing)  # ends the wait; wake() alone would go on waiting
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            return False
        for node in self._executor.get_nodes():
            self._executor.remove_node(node)
        self._executor.shutdown()
        return True

    def _spin(self) -> None:
        while not self._stopping.is_set():
            self._spin_once()

    def _spin_once(self) -> None:
        try:
            self._executor.spin_once(timeout_sec=0.5)
        except Exception:
            # A defect in one callback must not silence the node: a silent decoder would leave
            # its last command to the arm's own time-out.
            logging.getLogger(__name__).exception("callback failed")


class StopSignal:
    """Turns SIGINT and SIGTERM into a flag; while a node is being built, into KeyboardInterrupt.

    Attributes:
        event: Set after the first signal.
    """

    def __init__(self) -> None:
        """Install the handlers; only in the main thread."""
        self.event = threading.Event()
        self.loading = True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        first = not self.event.is_set()
        self.event.set()
        if self.loading and first:
            raise KeyboardInterrupt


def run_node(
    factory: Callable[[Context], AnyNode],
    args: Sequence[str] | None,
    work: Callable[[AnyNode, threading.Event], int],
) -> int:
    """Build a node, spin it beside `work`, and end cleanly.

    Args:
        factory: Builds the node; may take long.
        args: Command line; None for that of the process.
        work: Runs in this thread until the event is set or the work is done; returns the exit code.

    Returns:
        The exit code: of the work, 0 after a signal, 2 for a known error at start.
    """
    share_interpreter()
    stop = StopSignal()
    with ros_context(args) as context:
        code = _build_and_work(context, stop, factory, work)
    if _still_spinning():
        # A callback is still loading; nothing it could say matters any more.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _build_and_work(
    context: Context,
    stop: StopSignal,
    factory: Callable[[Context], AnyNode],
    work: Callable[[AnyNode, threading.Event], int],
) -> int:
    node: AnyNode | None = None
    try:
        node = factory(context)
        getattr(node, "start_by_itself", _nothing)()
        stop.loading = False
        return _spin_and_work(node, stop, work)
    except HeisdError as error:
        sys.stderr.write(f"refused to start: {error}\n")
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return 0
    finally:
        if node is not None and not _still_spinning():
            getattr(node, "close", _nothing)()
            node.destroy_node()


def _spin_and_work(
    node: AnyNode, stop: StopSignal, work: Callable[[AnyNode, threading.Event], int]
) -> int:
    thread = NodeThread(node)
    try:
        return work(node, stop.event)
    finally:
        getattr(node, "rest", _nothing)()
        thread.stop()


def wait_for_stop(node: Node, stop: threading.Event) -> int:  # noqa: ARG001
    """Wait until the process is told to stop."""
    while not stop.wait(0.5):
        pass
    return 0


def _still_spinning() -> bool:
    return any(thread.name.startswith(SPIN) for thread in threading.enumerate())


def _run_into(outcome: Future[Result], function: Callable[[], Result]) -> None:
    try:
        outcome.set_result(function())
    except Exception as error:
        outcome.set_exception(error)


def _nothing() -> None:
    """Do nothing: a task whose only purpose is to be ready, a step that a node does not have."""
