"""Bags that are cut off, empty, foreign or contradictory: what the reader says about each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from offline import bag_maker as maker

from bench.reliability.outcome import Figure, Outcome, Row, Settings, all_of
from heisd_ros.demonstrations.bag_writer import BagWriter
from heisd_ros.demonstrations.readers.rosbag2 import BagReader, BagSettings
from heisd_ros.errors import DataError

STEPS = 8
LONG = 30
"""Steps of a bag of two chunks: one is whole, if the file ends in the other."""
STAMPS = [maker.START_NS + step * maker.PERIOD_NS for step in range(LONG)]
PERIOD_S = maker.PERIOD_NS * 1e-9
TEXT = b"this is text, not a recording" * 40


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of malformed bag and the verdict on it.

    Attributes:
        name: What is wrong with it.
        make: Makes it in an empty folder; returns what is to be opened.
        refusal: Words of the one sentence that refuses it; empty if it is to be read.
        read: Number of observations that are there all the same; None for a beginning.
        counted: Words of what the reader must count as skipped; empty for nothing.
        settings: Of the reader.
    """

    name: str
    make: Callable[[Path], Path]
    refusal: str = ""
    read: int | None = STEPS
    counted: str = ""
    settings: BagSettings = field(default_factory=BagSettings)


def verdict(kind: Kind, folder: Path) -> str:
    """Make such a bag and read it; return what was wrong with the verdict, empty if right."""
    path = kind.make(folder)
    try:
        with BagReader(path, kind.settings) as reader:
            stamps = [o.stamp_ns for o in reader.observations(period_s=PERIOD_S)]
            skipped = reader.skipped()
    except DataError as error:
        told = str(error)
        right = kind.refusal and kind.refusal in told and path.name in told and "\n" not in told
        return "" if right else f"refused: {told}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if kind.refusal:
        return f"read {len(stamps)} observations"
    return _difference(kind, stamps, list(skipped))


def _difference(kind: Kind, stamps: list[int], skipped: list[str]) -> str:
    some = 0 < len(stamps) < LONG if kind.read is None else len(stamps) == kind.read
    if not some or not set(stamps) <= set(STAMPS) or stamps != sorted(stamps):
        return f"read {len(stamps)} observations"
    if kind.read is None and stamps != STAMPS[: len(stamps)]:
        return "what was recovered is no prefix"
    told = any(kind.counted in text for text in skipped)
    return "" if told or not kind.counted else f"did not count it: {skipped}"


def _whole(folder: Path, storage: str = "mcap") -> Path:
    return maker.write_bag(folder / "run", maker.episode(STEPS), storage=storage)


def _file(bag: Path) -> Path:
    return next(path for path in bag.iterdir() if path.suffix in {".mcap", ".db3"})


def _empty(storage: str) -> Callable[[Path], Path]:
    return lambda folder: maker.write_bag(folder / "run", [], storage=storage)


def _cut(storage: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        bag = _whole(folder, storage)
        file = _file(bag)
        content = file.read_bytes()
        file.write_bytes(content[: int(0.6 * len(content))])
        return bag

    return make


def _cut_in_the_second_chunk(folder: Path) -> Path:
    bag = maker.write_bag(folder / "run", maker.episode(LONG, size=96))
    file = _file(bag)
    content = file.read_bytes()
    file.write_bytes(content[: int(0.85 * len(content))])
    return bag


def _text_as(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / f"run{suffix}"
        path.write_bytes(TEXT)
        return path

    return make


def _wrong_magic(storage: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        bag = _whole(folder, storage)
        file = _file(bag)
        file.write_bytes(b"XXXXXXXX" + file.read_bytes()[8:])
        return bag

    return make


def _no_metadata(storage: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        bag = _whole(folder, storage)
        (bag / "metadata.yaml").unlink()
        return bag

    return make


def _metadata_is_no_yaml(folder: Path) -> Path:
    bag = _whole(folder)
    (bag / "metadata.yaml").write_text("{[", encoding="utf-8")
    return bag


def _with_facts(change: Callable[[dict[str, object]], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        bag = _whole(folder)
        path = bag / "metadata.yaml"
        text = yaml.safe_load(path.read_text())
        change(text["rosbag2_bagfile_information"])
        path.write_text(yaml.safe_dump(text))
        return bag

    return make


def _promise_more(facts: dict) -> None:
    facts["message_count"] += 5


def _promise_a_file(facts: dict) -> None:
    facts["relative_file_paths"].append("run_1.mcap")


def _unknown_type(folder: Path) -> Path:
    from rosbags.rosbag2 import StoragePlugin, Writer

    writer = Writer(folder / "run", version=9, storage_plugin=StoragePlugin.SQLITE3)
    with writer:
        odd = writer.add_connection(
            "/odd", "odd_msgs/msg/Odd", msgdef="wrong (", rihs01="RIHS01_" + "0" * 64
        )
        known: dict[str, object] = {}
        for number, (topic, message) in enumerate(maker.episode(STEPS)):
            name = message.__msgtype__
            if topic not in known:
                known[topic] = writer.add_connection(topic, name, typestore=maker.TYPES)
            data = maker.TYPES.serialize_cdr(message, name)
            writer.write(known[topic], 10**18 + number, bytes(data))
            writer.write(odd, 10**18 + number, b"\x00\x01\x00\x00what")
    return folder / "run"


def _damaged_picture(folder: Path) -> Path:
    messages = list(maker.episode(STEPS))
    messages[3][1].encoding = "foo"
    return maker.write_bag(folder / "run", messages)


def _without(topic: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        messages = [entry for entry in maker.inputs_only(maker.episode(STEPS)) if entry[0] != topic]
        return maker.write_bag(folder / "run", messages)

    return make


def _stamps_are_zero(folder: Path) -> Path:
    """Drivers without a clock: every stamp is zero, and the time of reception counts."""
    with BagWriter(folder / "run", maker.KINDS) as writer:
        for topic, message in maker.inputs_only(maker.episode(STEPS)):
            received = maker.START_NS
            if hasattr(message, "header"):
                stamp = message.header.stamp
                received = stamp.sec * 10**9 + stamp.nanosec
                message.header.stamp = maker.stamp(0)
            writer.put(
                topic, received, bytes(maker.TYPES.serialize_cdr(message, maker.KINDS[topic]))
            )
    return folder / "run"


def _out_of_order(folder: Path) -> Path:
    """Messages were received in another order than their stamps say."""
    messages = maker.inputs_only(maker.episode(STEPS))
    swapped = [*messages[:5], *messages[10:15], *messages[5:10], *messages[15:]]
    return maker.write_bag(folder / "run", swapped)


SALVAGE = BagSettings(salvage=True)
KINDS = (
    Kind("MCAP without a message", _empty("mcap"), "is empty"),
    Kind("SQLite without a message", _empty("sqlite3"), "is empty"),
    Kind("MCAP cut off", _cut("mcap"), "damaged or cut off"),
    Kind("SQLite cut off", _cut("sqlite3"), "damaged or cut off"),
    Kind(
        "MCAP cut off, to be salvaged",
        _cut_in_the_second_chunk,
        read=None,
        counted="cut off",
        settings=SALVAGE,
    ),
    Kind("MCAP with another magic", _wrong_magic("mcap"), "damaged or cut off"),
    Kind("SQLite with another magic", _wrong_magic("sqlite3"), "damaged or cut off"),
    Kind("text under the name of a bag", _text_as(".mcap"), "damaged or cut off"),
    Kind("text under the name of a compressed bag", _text_as(".db3.zstd"), "damaged or cut off"),
    Kind("MCAP without metadata", _no_metadata("mcap")),
    Kind("SQLite without metadata", _no_metadata("sqlite3")),
    Kind("metadata that are no YAML", _metadata_is_no_yaml),
    Kind("fewer messages than promised", _with_facts(_promise_more), "promises"),
    Kind("a missing part", _with_facts(_promise_a_file), "incomplete"),
    Kind("a topic of an unknown type", _unknown_type, counted="unknown type"),
    Kind("a picture of an unknown encoding", _damaged_picture, read=7, counted="unknown_encoding"),
    Kind("a camera missing", _without("/wrist/image"), "no image topic for camera wrist"),
    Kind("all stamps zero", _stamps_are_zero),
    Kind("messages in another order than their stamps", _out_of_order, read=7, counted="not newer"),
)


def broken_bags(settings: Settings) -> Outcome:
    """Read a bag of each kind."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    wrong = {}
    with tempfile.TemporaryDirectory(dir=settings.logs) as root:
        for number, kind in enumerate(KINDS):
            folder = Path(root) / str(number)
            folder.mkdir()
            found = verdict(kind, folder)
            if found:
                wrong[kind.name] = found
    return Outcome(
        f"{len(KINDS)} kinds",
        (
            all_of("right verdicts", len(KINDS) - len(wrong), len(KINDS)),
            Figure("of them refused with one sentence", sum(bool(k.refusal) for k in KINDS)),
            Figure("read as far as they are whole", sum(not k.refusal for k in KINDS)),
        ),
        "; ".join(f"{name}: {found}" for name, found in wrong.items()),
    )


ROWS = (
    Row(
        "broken_bags",
        "Malformed bags, SQLite and MCAP",
        "each refused with its name and cause, or read as far as it is whole",
        broken_bags,
    ),
)
