"""TFRecord files and tf.train.Example without TensorFlow.

A record is: length (uint64 little endian), masked CRC-32C of the length, data, masked CRC-32C of
the data. An Example is a map from name to a list of bytes, float32 or int64
(tensorflow/core/example/feature.proto).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from heisd_ros.errors import DataError, MissingDependencyError
from heisd_ros.types import Float32Array, IntArray

HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4
MAX_RECORD_BYTES = 2 << 30
"""The limit of a protocol buffer."""
INSTALL = "RLDS data sets need: pip install 'heisd_ros[rlds]'"

Feature: TypeAlias = "list[bytes] | Float32Array | IntArray"


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """Where the whole records of a file begin, and what is wrong behind the last one.

    Attributes:
        offsets: Byte of each record's header.
        problem: Empty, or why reading ended before the end of the file.
    """

    offsets: tuple[int, ...]
    problem: str = ""


def index_records(path: Path) -> RecordIndex:
    """Find all whole records; reads headers only.

    Raises:
        DataError: If the file cannot be opened.
    """
    offsets: list[int] = []
    problem, at = "", 0
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            while at < size and not problem:
                stream.seek(at)
                length, problem = _length(stream, size - at)
                if not problem:
                    offsets.append(at)
                    at += HEADER.size + length + FOOTER_BYTES
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return RecordIndex(tuple(offsets), problem)


def read_record(path: Path, offset: int) -> bytes:
    """Return the data of the record at this byte.

    Raises:
        DataError: If its checksum is wrong or it is cut off.
    """
    with path.open("rb") as stream:
        stream.seek(offset)
        length, problem = _length(stream, path.stat().st_size - offset)
        if problem:
            raise DataError(f"{path} at byte {offset}: {problem}")
        data, footer = stream.read(length), stream.read(FOOTER_BYTES)
    if struct.unpack("<I", footer)[0] != masked_crc(data):
        raise DataError(f"{path} at byte {offset}: the record's checksum is wrong")
    return data


def parse_example(data: bytes) -> dict[str, Feature]:
    """Return the features of a serialised tf.train.Example.

    Raises:
        DataError: If it is none.
    """
    message = _example_class()()
    try:
        message.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, imported lazily
        raise DataError(f"a record is no tf.train.Example: {error}") from error
    return {entry.key: _values(entry.value) for entry in message.features.feature}


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of data, rotated and shifted as TFRecord does."""
    try:
        import google_crc32c
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error
    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _length(stream: BinaryIO, available: int) -> tuple[int, str]:
    """Return the length of the record that begins here, and what is wrong with it."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return 0, "the file ends inside a record"
    length, crc = HEADER.unpack(header)
    if crc != masked_crc(header[:8]):
        return 0, "the checksum of a record's length is wrong"
    if length > MAX_RECORD_BYTES:
        return 0, f"a record of {length} bytes is refused"
    if HEADER.size + length + FOOTER_BYTES > available:
        return 0, "the file ends inside a record"
    return length, ""


def _values(feature: Any) -> Feature:  # noqa: ANN401  (a generated message)
    if len(feature.bytes_list.value):
        return list(feature.bytes_list.value)
    if len(feature.float_list.value):
        return np.array(feature.float_list.value, dtype=np.float32)
    return np.array(feature.int64_list.value, dtype=np.int64)


@cache
def _example_class() -> Any:  # noqa: ANN401
    """Build the message classes; field numbers as in feature.proto."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error
    file = descriptor_pb2.FileDescriptorProto(
        name="heisd_ros/example.proto", package="heisd_example", syntax="proto3"
    )
    kinds = {"bytes": 12, "float": 2, "int64": 3, "string": 9}

    def add(name: str, **fields: tuple[int, str, bool]) -> None:
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            new = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in kinds:
                new.type = kinds[kind]
            else:
                new.type, new.type_name = 11, f".heisd_example.{kind}"

    add("BytesList", value=(1, "bytes", True))
    add("FloatList", value=(1, "float", True))
    add("Int64List", value=(1, "int64", True))
    add(
        "Feature",
        bytes_list=(1, "BytesList", False),
        float_list=(2, "FloatList", False),
        int64_list=(3, "Int64List", False),
    )
    add("Entry", key=(1, "string", False), value=(2, "Feature", False))
    add("Features", feature=(1, "Entry", True))
    add("Example", features=(1, "Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("heisd_example.Example"))
