"""Starting, spinning and ending nodes: one thread and executor each, exit code 0 on a signal."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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

    def close(self) -> None:
        """Stop threads and say the last word."""

    def destroy_node(self) -> None:
        """Free the node."""


AnyNode = TypeVar("AnyNode", bound=Node)


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
        self._thread = threading.Thread(target=self._spin, name=f"spin_{node.get_name()}")
        self._thread.start()

    def stop(self) -> None:
        """Stop spinning and join; may be called twice."""
        self._stopping.set()
        self._executor.create_task(_nothing)  # ends the wait; wake() alone would go on waiting
        self._thread.join()
        self._executor.shutdown()

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
    stop = StopSignal()
    with ros_context(args) as context:
        try:
            node = factory(context)
        except HeisdError as error:
            sys.stderr.write(f"refused to start: {error}\n")
            return EXIT_REFUSED
        except KeyboardInterrupt:
            return 0
        stop.loading = False
        thread = NodeThread(node)
        try:
            return work(node, stop.event)
        finally:
            close = getattr(node, "close", None)
            if close is not None:
                close()
            thread.stop()
            node.destroy_node()


def wait_for_stop(node: Node, stop: threading.Event) -> int:  # noqa: ARG001
    """Wait until the process is told to stop."""
    while not stop.wait(0.5):
        pass
    return 0


def _nothing() -> None:
    """A task whose only purpose is to be ready."""
