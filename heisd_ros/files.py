"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL = "part"
"""Suffix of a file that is being written; one that is left over is of a killed process."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` once all of it is on the disk.

    A reader sees the old file or the new one, never half of it; a failure leaves the old one. Not
    for two threads that write the same file.

    Args:
        path: File to write; its folder is made.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "new" / "note.txt"
        >>> with whole_file(path) as stream:
        ...     _ = stream.write(b"done")
        >>> path.read_text()
        'done'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.{PARTIAL}")
    try:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a text as UTF-8; see `whole_file`."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
