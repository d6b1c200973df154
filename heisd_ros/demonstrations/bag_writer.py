"""Writes serialised messages into an MCAP bag on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from heisd_ros.closing import Closing
from heisd_ros.demonstrations.bag_types import INSTALL, known_types
from heisd_ros.errors import DataError, MissingDependencyError

QUEUED = 2000
"""Messages waiting for the disk; at 500 messages per second that is four seconds."""
BAG_VERSION: Final = 9


class BagWriter(Closing):
    """A new bag. `put` never waits for the disk: what does not fit into the queue is counted.

    Attributes:
        written: Messages written, by topic.
        dropped: Messages that were not written because the disk was too slow or failed.
        error: Text of the error that stopped the writing; empty while all is well.
    """

    def __init__(
        self,
        folder: str | Path,
        topics: Mapping[str, str],
        *,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Create the bag and start the thread.

        Args:
            folder: Must not exist yet.
            topics: Name -> type of every topic.
            facts: Texts kept in the bag's metadata (`custom_data`).

        Raises:
            DataError: If the folder exists or cannot be made.
            MissingDependencyError: If rosbags is not installed.
        """
        self.folder = Path(folder)
        self.written: Counter[str] = Counter()
        self.dropped = 0
        self.error = ""
        self._writer = _open(self.folder, facts or {})
        types = known_types()
        self._connections = {
            name: self._writer.add_connection(name, kind, typestore=types)
            for name, kind in topics.items()
        }
        self._queue: queue.Queue[Callable[[], tuple[str, int, bytes]] | None] = queue.Queue(QUEUED)
        self._thread = threading.Thread(target=self._run, name="bag")
        self._thread.start()

    def put(self, topic: str, stamp_ns: int, message: bytes) -> None:
        """Add a serialised message received at this time, nanoseconds since the epoch."""
        self.put_later(lambda: (topic, stamp_ns, message))

    def put_later(self, make: Callable[[], tuple[str, int, bytes]]) -> None:
        """Add a message that the writing thread makes, for what takes time to serialise."""
        try:
            self._queue.put_nowait(make)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is waiting, then index and metadata; may be called twice.

        Raises:
            DataError: If something could not be written.
        """
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        writer, self._writer = self._writer, None
        if writer is not None and not self.error:
            try:
                writer.close()
            except OSError as error:
                self.error = str(error)
        if self.error:
            raise DataError(f"bag {self.folder} is incomplete: {self.error}")

    def _run(self) -> None:
        while (make := self._queue.get()) is not None:
            if self.error:
                self.dropped += 1
                continue
            try:
                topic, stamp_ns, message = make()
                self._writer.write(self._connections[topic], stamp_ns, message)
            except Exception as error:
                # Whatever goes wrong in this thread is told by `close`, in the caller's.
                self.error = f"{type(error).__name__}: {error}"
                continue
            self.written[topic] += 1


def _open(folder: Path, facts: Mapping[str, str]) -> Any:  # noqa: ANN401  (rosbags Writer)
    try:
        from rosbags.rosbag2 import StoragePlugin, Writer, WriterError
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error
    try:
        writer = Writer(folder, version=BAG_VERSION, storage_plugin=StoragePlugin.MCAP)
        for name, text in facts.items():
            writer.set_custom_data(name, text)
        writer.open()
    except (WriterError, OSError) as error:
        raise DataError(f"cannot make the bag {folder}: {error}; name a new folder") from error
    return writer
