"""Write .npy files piece by piece, with their size and SHA-256, safely on a full disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from heisd_ros.demonstrations.manifest import FileRecord
from heisd_ros.demonstrations.prefix import Matrix


class ArrayFile:
    """A .npy file written piece by piece through write(), never through a writable memory map.

    On a full disk write() raises, while a memory map kills the process with SIGBUS.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._path = path
        self._stream = path.open("w+b")
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._stream, {**header, "shape": shape})
        self._stream.seek(0)
        self._digest = hashlib.sha256(self._stream.read())
        self.record = FileRecord(0, "")

    def write(self, data: bytes | memoryview) -> None:
        """Append raw numbers in C order."""
        self._digest.update(data)
        self._stream.write(data)

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stream:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self.record = FileRecord(self._path.stat().st_size, self._digest.hexdigest())


def write_array(path: Path, array: Matrix) -> FileRecord:
    """Write a whole array and return what the manifest records of it."""
    contiguous = np.ascontiguousarray(array)
    sink = ArrayFile(path, contiguous.dtype, contiguous.shape)
    with sink:
        sink.write(contiguous.tobytes())
    return sink.record
