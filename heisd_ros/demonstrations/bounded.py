"""Unpacking with a bound: a small file that unfolds to a huge one is refused, not tried."""

from __future__ import annotations

import importlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

from heisd_ros.demonstrations.bag_types import INSTALL
from heisd_ros.errors import DataError, MissingDependencyError

MAX_BLOCK_BYTES = 256 * 1024 * 1024
"""Of one message or one chunk of a bag; the largest picture we take has 150 MB."""
MAX_RATIO = 1000
"""Of a compressed bag file as a whole; recordings reach 10, text 100."""
MAX_EPISODE_BYTES = 4 * 1024**3
"""Of one demonstrated episode; 2000 steps of two 640x480 cameras have 3.7 GB."""
PIECE_BYTES = 1024 * 1024

CHUNK = 0x06
MCAP_MAGIC = b"\x89MCAP0\r\n"
RECORD, CHUNK_HEAD, LENGTH = struct.Struct("<BQ"), struct.Struct("<QQQII"), struct.Struct("<Q")


def unpack_zstd(packed: bytes, limit: int = MAX_BLOCK_BYTES) -> bytes:
    """Return the content of zstd frames.

    Raises:
        DataError: If it has more than `limit` bytes.
        Exception: What the zstd module raises on damaged data.
    """
    pieces: list[bytes] = []
    total = 0
    for piece in _zstd_pieces(packed):
        total += len(piece)
        _check(total, limit, "a compressed message")
        pieces.append(piece)
    return b"".join(pieces)


def unpack_file(packed: Path, plain: Path) -> None:
    """Unpack a zstd file, at most `MAX_RATIO` times its size.

    Raises:
        DataError: If it holds more.
        Exception: What the zstd module raises on damaged data.
    """
    limit = packed.stat().st_size * MAX_RATIO
    total = 0
    with zstd_module().open(packed, "rb") as source, plain.open("wb") as sink:
        while piece := source.read(PIECE_BYTES):
            total += len(piece)
            _check(total, limit, f"{packed}")
            sink.write(piece)


def check_mcap(path: Path) -> None:
    """Refuse an MCAP file with a chunk that unfolds to more than `MAX_BLOCK_BYTES`.

    A damaged file passes: whoever reads it says what is wrong.

    Raises:
        DataError: If a chunk says or turns out to be larger.
    """
    with path.open("rb") as file:
        if file.read(len(MCAP_MAGIC)) != MCAP_MAGIC:
            return
        for start, length in _chunks(file):
            file.seek(start)
            _check_chunk(file, length, path)


def check_archive(path: Path, limit: int = MAX_EPISODE_BYTES) -> None:
    """Refuse a zip archive (`.npz`) whose members are larger together than `limit` bytes.

    Raises:
        DataError: If they are.
        BadZipFile: If it is no zip archive.
    """
    with ZipFile(path) as archive:
        # Reading a member never yields more than its directory entry says.
        _check(sum(entry.file_size for entry in archive.infolist()), limit, str(path))


def zstd_module() -> Any:  # noqa: ANN401  (a module)
    """Return Python's own zstd, or the backport that rosbags installs."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error


def _chunks(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield (place, length) of the content of every chunk record."""
    place = file.tell()
    while True:
        head = file.read(RECORD.size)
        if len(head) < RECORD.size:
            return
        code, length = RECORD.unpack(head)
        place += RECORD.size
        if code == CHUNK:
            yield place, length
        place += length
        try:
            file.seek(place)
        except (OSError, OverflowError, ValueError):  # a length that no file has
            return


def _check_chunk(file: BinaryIO, length: int, path: Path) -> None:
    head = file.read(CHUNK_HEAD.size)
    if len(head) < CHUNK_HEAD.size:
        return
    _, _, size, _, name_length = CHUNK_HEAD.unpack(head)
    _check(size, MAX_BLOCK_BYTES, f"a chunk of {path}")
    _check(length, MAX_BLOCK_BYTES, f"a chunk of {path}")
    name = file.read(min(name_length, length))
    file.read(LENGTH.size)
    packed = file.read(max(length - CHUNK_HEAD.size - len(name) - LENGTH.size, 0))
    if name not in (b"zstd", b"lz4"):
        return
    pieces = _zstd_pieces(packed) if name == b"zstd" else _lz4_pieces(packed)
    total = 0
    try:
        for piece in pieces:
            total += len(piece)
            _check(total, size, f"a chunk of {path}")
    except DataError:
        raise
    except Exception:  # damaged: the reader will say so
        return


def _zstd_pieces(packed: bytes) -> Iterator[bytes]:
    rest = bytes(packed)
    while rest:
        unpacker = zstd_module().ZstdDecompressor()
        yield unpacker.decompress(rest, PIECE_BYTES)
        while not unpacker.eof and not unpacker.needs_input:
            yield unpacker.decompress(b"", PIECE_BYTES)
        if not unpacker.eof:
            raise EOFError("compressed data is cut off")
        rest = unpacker.unused_data


def _lz4_pieces(packed: bytes) -> Iterator[bytes]:
    from lz4.frame import LZ4FrameDecompressor  # rosbags brings it

    unpacker = LZ4FrameDecompressor()
    yield unpacker.decompress(packed, PIECE_BYTES)
    while not unpacker.eof and not unpacker.needs_input:
        yield unpacker.decompress(b"", PIECE_BYTES)


def _check(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise DataError(
            f"{what} unfolds to more than {limit} bytes and is refused; it is damaged or made to "
            "fill the memory"
        )
