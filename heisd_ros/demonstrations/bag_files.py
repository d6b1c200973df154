"""A rosbag2 recording as a stream of messages, without ROS: split, compressed or without metadata.

Storage files are opened one by one, so that a bag whose `metadata.yaml` is missing or disagrees
with them in anything but the number of messages is read all the same.
"""

from __future__ import annotations

import heapq
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml

from heisd_ros.closing import Closing
from heisd_ros.demonstrations.bag_types import INSTALL, known_types, types_of
from heisd_ros.demonstrations.bounded import check_mcap, unpack_file, unpack_zstd
from heisd_ros.demonstrations.mcap_repair import repair_mcap
from heisd_ros.errors import DataError, HeisdError, MissingDependencyError

METADATA = "metadata.yaml"
STORAGES = (".mcap", ".db3")
COMPRESSED = (".zstd", ".zst")
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""No CDR message begins like this: its first byte is 0."""


@dataclass(frozen=True, slots=True)
class BagMessage:
    """One message of a bag.

    Attributes:
        topic: Name of its topic.
        kind: Type, e.g. `sensor_msgs/msg/Image`.
        log_ns: Time it was received, nanoseconds.
        content: The message, fields as attributes.
    """

    topic: str
    kind: str
    log_ns: int
    content: Any


class BagFiles(Closing):
    """An open bag.

    Attributes:
        path: Folder or file it was opened from.
        topics: Name -> type.
        counts: Name -> messages.
        facts: Texts that the recorder kept in the metadata.
        skipped: Messages that could not be read, by topic and cause.
    """

    def __init__(self, path: str | Path, *, salvage: bool = False) -> None:
        """Open and index the bag.

        Args:
            path: Folder or file.
            salvage: True reads MCAP files that were cut off as far as their whole records go, and
                says so in `skipped`; False refuses them.

        Raises:
            DataError: If it is no bag, damaged, cut off, or empty; one sentence names the file.
            MissingDependencyError: If rosbags is not installed.
        """
        self.path = Path(path)
        self.topics: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self._stack = ExitStack()
        self._salvage = salvage
        try:
            metadata = _metadata(self.path)
            self.facts: Mapping[str, str] = metadata.get("custom_data") or {}
            files = _storage_files(self.path, metadata)
            self._readers = [self._open(file) for file in files]
            self._types = types_of(c for reader in self._readers for c in reader.connections)
            self._index(metadata)
        except BaseException:
            self._stack.close()
            raise

    def messages(self, topics: Iterable[str]) -> Iterator[BagMessage]:
        """Yield the messages of these topics in the order of their reception.

        Messages that cannot be decoded are counted in `skipped`.

        Raises:
            DataError: If a file turns out to be damaged.
        """
        wanted = set(topics)
        streams = [_messages(reader, wanted) for reader in self._readers]
        for connection, log_ns, raw in heapq.merge(*streams, key=lambda item: item[1]):
            try:
                data = unpack_zstd(raw) if bytes(raw[:4]) == ZSTD_MAGIC else raw
                content = self._types.deserialize_cdr(data, connection.msgtype)
            except Exception:
                # The parser meets foreign bytes: whatever it trips over is one unreadable message.
                self.skipped[f"{connection.topic}: unreadable message"] += 1
                continue
            yield BagMessage(connection.topic, connection.msgtype, log_ns, content)

    def unknown(self) -> dict[str, int]:
        """Return the topics of types that neither ROS nor we define, with their messages."""
        known = known_types().fielddefs
        return {
            topic: self.counts[topic] for topic, kind in self.topics.items() if kind not in known
        }

    def close(self) -> None:
        """Close all files and remove what was unpacked."""
        self._stack.close()

    def _open(self, path: Path) -> Any:  # noqa: ANN401  (rosbags Reader)
        plain = self._unpacked(path) if path.suffix in COMPRESSED else path
        try:
            return self._reader(plain)
        except Exception as error:
            repaired = self._repaired(plain) if self._salvage else None
            if repaired is None:
                raise _damaged(path, error) from error
        try:
            return self._reader(repaired)
        except Exception as error:
            raise _damaged(path, error) from error

    def _reader(self, path: Path) -> Any:  # noqa: ANN401  (rosbags Reader)
        reader_class = _rosbag2().Reader
        if path.suffix == ".mcap":
            check_mcap(path)
        return self._stack.enter_context(reader_class(path))

    def _repaired(self, path: Path) -> Path | None:
        """Return a readable copy of an MCAP file that was cut off; None if it cannot be made."""
        if path.suffix != ".mcap":
            return None
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="heisd_bag_")))
        try:
            lost_bytes = repair_mcap(path, folder / path.name)
        except OSError:
            return None
        if lost_bytes < 0:
            return None
        self.skipped[f"{path.name}: cut off, bytes behind its last whole record"] += lost_bytes
        return folder / path.name

    def _unpacked(self, path: Path) -> Path:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="heisd_bag_")))
        plain = folder / path.stem
        try:
            unpack_file(path, plain)
        except Exception as error:
            raise _damaged(path, error) from error
        return plain

    def _index(self, metadata: Mapping[str, Any]) -> None:
        for reader in self._readers:
            for connection in reader.connections:
                self.topics[connection.topic] = connection.msgtype
                self.counts[connection.topic] += connection.msgcount
        found, promised = sum(self.counts.values()), metadata.get("message_count")
        lost = promised - found if isinstance(promised, int) else 0
        if lost > 0 and self.skipped:  # a file was salvaged
            self.skipped[f"messages that {METADATA} promises"] += lost
        elif lost > 0:
            raise DataError(
                f"bag {self.path} is cut off: {METADATA} promises {promised} messages, the files "
                f"hold {found}; record it again or repair it with `ros2 bag reindex`"
            )
        if not found:
            raise DataError(f"bag {self.path} is empty: it holds no message; record it again")


def _messages(reader: Any, wanted: set[str]) -> Iterator[tuple[Any, int, bytes]]:  # noqa: ANN401
    connections = [c for c in reader.connections if c.topic in wanted]
    if not connections:
        return
    try:
        yield from reader.messages(connections=connections)
    except Exception as error:
        raise _damaged(reader.path, error) from error


def _damaged(path: Path, error: Exception) -> HeisdError:
    if isinstance(error, HeisdError):
        return error
    cause = str(error).strip().rstrip(".") or type(error).__name__
    return DataError(
        f"bag file {path} is damaged or cut off: {cause}; record it again or repair it with "
        "`ros2 bag reindex` or `mcap recover`"
    )


def _metadata(path: Path) -> dict[str, Any]:
    """Return the bag's own description; empty if there is none that can be read."""
    if not path.exists():
        raise DataError(f"bag {path} does not exist; give the folder that was recorded")
    file = path / METADATA
    if not file.is_file():
        return {}
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    inner = content.get("rosbag2_bagfile_information") if isinstance(content, dict) else None
    return inner if isinstance(inner, dict) else {}


def _storage_files(path: Path, metadata: Mapping[str, Any]) -> list[Path]:
    if path.is_file():
        files = [path] if _is_storage(path) else []
    else:
        named = [
            path / PurePath(str(name)).name for name in metadata.get("relative_file_paths", [])
        ]
        lost = [file.name for file in named if not file.is_file()]
        if lost:
            raise DataError(
                f"bag {path} is incomplete: {METADATA} names {', '.join(lost)}, which is missing"
            )
        files = named or sorted(filter(_is_storage, path.iterdir()), key=_natural)
    if not files:
        raise DataError(
            f"{path} is not a bag: expected {METADATA} or a file ending in "
            f"{' or '.join(STORAGES)}; give the folder that `ros2 bag record` made"
        )
    return files


def _is_storage(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    return path.is_file() and plain.suffix in STORAGES


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort `bag_10` behind `bag_9`."""
    return [
        (int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)
    ]


def _rosbag2() -> Any:  # noqa: ANN401  (the module rosbags.rosbag2)
    try:
        from rosbags import rosbag2
    except ImportError as error:
        raise MissingDependencyError(INSTALL) from error
    return rosbag2
