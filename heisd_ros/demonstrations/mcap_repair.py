"""Close an MCAP file that was cut off, so that its whole records can be read.

A file is: magic, records (opcode uint8, length uint64 little endian, content), magic. A recorder
that dies leaves out the end. The copy made here ends after the last whole record with an empty
summary, which makes readers scan the records instead (https://mcap.dev/spec).
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import BinaryIO

MAGIC = b"\x89MCAP0\r\n"
RECORD = struct.Struct("<BQ")
FOOTER, DATA_END = 0x02, 0x0F
END = RECORD.pack(DATA_END, 4) + bytes(4) + RECORD.pack(FOOTER, 20) + bytes(20) + MAGIC
"""Checksums of 0 mean "not computed"."""


def repair_mcap(path: Path, copy: Path) -> int:
    """Write a readable copy of a file that was cut off.

    Args:
        path: The damaged file; it is not changed.
        copy: File to write.

    Returns:
        Bytes behind the last whole record, which are lost; -1 if nothing can be done: the file is
        no MCAP file, or it is complete and something else is wrong with it.

    Raises:
        OSError: If the disk is full or the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as damaged:
        begins = damaged.read(len(MAGIC)) == MAGIC
        damaged.seek(max(size - len(MAGIC), 0))
        if not begins or (size > len(MAGIC) and damaged.read() == MAGIC):
            return -1
        end = _last_whole_record(damaged, size)
        damaged.seek(0)
        with copy.open("wb") as whole:
            shutil.copyfileobj(damaged, whole)
            whole.truncate(end)
            whole.seek(end)
            whole.write(END)
    return size - end


def _last_whole_record(stream: BinaryIO, size: int) -> int:
    """Return where the data records end."""
    at = len(MAGIC)
    while True:
        stream.seek(at)
        head = stream.read(RECORD.size)
        if len(head) < RECORD.size:
            return at
        opcode, length = RECORD.unpack(head)
        # The summary behind the end of the data repeats what is in front of it.
        if opcode in (0, FOOTER, DATA_END) or at + RECORD.size + length > size:
            return at
        at += RECORD.size + length
