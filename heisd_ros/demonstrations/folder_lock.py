"""One writer per folder: a lock that ends with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock_folder(folder: Path) -> int:
    """Make a folder if it is not there, and lock it against other processes.

    Returns:
        A descriptor; closing it unlocks the folder.

    Raises:
        BlockingIOError: If another process holds the lock.
        OSError: If the folder cannot be made or opened.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
