"""The manifest of a demonstration store: what is inside, for which encoder, and how to check it.

A store is a folder with `manifest.json` and one data folder that the manifest names. Replacing the
manifest file is the only step that makes a new build visible, so there is never half a store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import StoreError
from heisd_ros.files import sync_folder, write_whole

SCHEMA = 2
READABLE_SCHEMAS = (1, SCHEMA)
"""1 had neither features nor the target's tokens, and always scored 64 rows exactly."""
MANIFEST_NAME = "manifest.json"
DTYPES = ("float32", "float16")
OLDER_STORES: Mapping[str, Any] = {"normalise": "blocks"}
"""Preprocessing of stores that do not name it, because there was no choice."""
REBUILD = "rebuild it with `heisd build-db`"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size in bytes and SHA-256 of one data file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task of the store.

    Attributes:
        key: Normalised instruction.
        first_row: First row of the task; its rows are contiguous.
        rows: Number of rows (steps).
        sources: Where each episode came from, in row order.
        prefix_size: Columns of the search prefix d; 0 means that the task is searched exactly.
        prefix_offset: Index of the task's first number in the prefix file.
        recall: Recall@5 on held-out episodes for each search that was tried: prefix columns, or
            `columns/rows` scored exactly behind them.
        rerank_rows: Rows scored exactly behind the prefix.
    """

    key: str
    first_row: int
    rows: int
    sources: tuple[str, ...]
    prefix_size: int = 0
    prefix_offset: int = 0
    recall: Mapping[str, float] = field(default_factory=dict)
    rerank_rows: int = 64

    @property
    def stop_row(self) -> int:
        """The row after the last one."""
        return self.first_row + self.rows

    @property
    def measured_recall(self) -> float:
        """Recall@5 of the search that was chosen; exact search finds everything."""
        if not self.prefix_size:
            return 1.0
        pair = f"{self.prefix_size}/{self.rerank_rows}"
        return self.recall[pair if pair in self.recall else str(self.prefix_size)]


@dataclass(frozen=True, slots=True)
class StoreProfile:
    """What the rows of a store mean; fixed before the first row is written.

    Attributes:
        fingerprint: Fingerprint of the vision encoder (`ModelInfo.fingerprint`).
        embedding_size: Length of an embedding, E.
        cameras: Cameras in view order.
        preprocessing: Crop, pooling and normalisation that the embeddings were made with.
        action: Convention of the actions: kind, gripper sign, rate, scale, statistics.
        created_by: The command that made the store.
    """

    fingerprint: str
    embedding_size: int
    cameras: tuple[str, ...] = ("third_person", "wrist")
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    action: Mapping[str, Any] = field(
        default_factory=lambda: {"kind": "pose_delta", "gripper": "1 = open"}
    )
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that is known about a store without reading its arrays.

    Attributes:
        generation: Number of the build; the data folder is `data-<generation>`.
        profile: What the rows mean.
        dtype: Type of the stored embeddings, float32 or float16.
        lookahead: Following actions stored per row, L.
        rows: Rows of all tasks.
        tasks: Tasks in row order.
        files: Data files by name.
        dropped: What the builder left out, `reason` -> count.
        feature_size: Numbers of the stored lm_head feature of a row; 0 if there is none.
        target_tokens: Whether the target's own tokens are stored.
    """

    generation: int
    profile: StoreProfile
    dtype: str
    lookahead: int
    rows: int
    tasks: tuple[TaskRecord, ...]
    files: Mapping[str, FileRecord]
    dropped: Mapping[str, int] = field(default_factory=dict)
    feature_size: int = 0
    target_tokens: bool = False

    @property
    def data_folder(self) -> str:
        """Name of the folder that holds the data files."""
        return f"data-{self.generation:06d}"

    @property
    def episodes(self) -> int:
        """Episodes of all tasks."""
        return sum(len(task.sources) for task in self.tasks)

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each episode came from, by its number."""
        return tuple(source for task in self.tasks for source in task.sources)

    @property
    def size_bytes(self) -> int:
        """Bytes of all data files."""
        return sum(record.size for record in self.files.values())


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a store.

    Raises:
        StoreError: If the folder or the manifest is missing, damaged, or of another schema.
    """
    path = folder / MANIFEST_NAME
    if not folder.is_dir():
        raise StoreError(
            f"demonstration store {folder} does not exist; make it with `heisd build-db`"
        )
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise StoreError(
            f"{folder} has no {MANIFEST_NAME}: it is no demonstration store, or its first build "
            f"never finished; {REBUILD}"
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error}); {REBUILD}") from error
    return manifest_from_text(text, str(path))


def manifest_from_text(text: str, path: str) -> Manifest:
    """Parse and check a manifest.

    Args:
        text: What `manifest_to_text` wrote.
        path: Where it came from, for error messages.

    Raises:
        StoreError: If it is damaged or of another schema.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{path} cannot be read ({error}); {REBUILD}") from error
    if not isinstance(content, dict) or content.get("schema") not in READABLE_SCHEMAS:
        got = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise StoreError(f"{path}: expected schema {SCHEMA}, got {got!r}; {REBUILD}")
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise StoreError(f"{path}: its checksum does not match its content; {REBUILD}")
    try:
        manifest = _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}: field {error} is missing or malformed; {REBUILD}") from error
    _check(manifest, path)
    return manifest


def manifest_to_text(manifest: Manifest) -> str:
    """Return the manifest as JSON with schema version and checksum."""
    content: dict[str, Any] = {"schema": SCHEMA, **asdict(manifest)}
    content["checksum"] = _checksum(content)
    return json.dumps(content, indent=1, sort_keys=True)


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Make a build visible: replace the manifest in one atomic step."""
    write_whole(folder / MANIFEST_NAME, manifest_to_text(manifest))
    sync_folder(folder)


def check_encoder(
    built: StoreProfile,
    store: str,
    fingerprint: str,
    cameras: tuple[str, ...],
    preprocessing: Mapping[str, Any],
) -> None:
    """Refuse a store whose embeddings another encoder or other pictures made.

    An empty fingerprint or no cameras skip their check; so do keys that are not in
    `preprocessing`.

    Raises:
        StoreError: Naming what was expected, what the store has, and what to do.
    """
    made = {**OLDER_STORES, **built.preprocessing}
    pairs: list[tuple[str, Any, Any]] = []
    if cameras:
        pairs.append(("cameras", cameras, built.cameras))
    # The fingerprint comes last: it differs too if pooling or normalisation do, and tells less.
    pairs += [(key, value, made.get(key)) for key, value in preprocessing.items()]
    if fingerprint:
        pairs.append(("vision encoder", fingerprint, built.fingerprint))
    for name, expected, got in pairs:
        if expected != got:
            raise StoreError(
                f"store {store} was built with another {name}: expected {expected}, got {got}; "
                f"{REBUILD} for the checkpoint and the configuration you serve"
            )


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _from_json(content: Mapping[str, Any]) -> Manifest:
    profile = dict(content["profile"])
    profile["cameras"] = tuple(profile["cameras"])
    tasks = tuple(
        TaskRecord(**{**task, "sources": tuple(task["sources"])}) for task in content["tasks"]
    )
    return Manifest(
        generation=int(content["generation"]),
        profile=StoreProfile(**profile),
        dtype=content["dtype"],
        lookahead=int(content["lookahead"]),
        rows=int(content["rows"]),
        tasks=tasks,
        files={name: FileRecord(**record) for name, record in content["files"].items()},
        dropped=content["dropped"],
        feature_size=int(content.get("feature_size", 0)),
        target_tokens=bool(content.get("target_tokens", False)),
    )


def _check(manifest: Manifest, path: str) -> None:
    """Refuse row ranges that overlap or leave gaps: they would let results cross tasks."""
    row = 0
    for task in manifest.tasks:
        if task.first_row != row or task.rows < 1 or task.key != normalise_task(task.key):
            raise StoreError(f"{path}: task {task.key!r} has an impossible row range; {REBUILD}")
        row = task.stop_row
    keys = {task.key for task in manifest.tasks}
    if row != manifest.rows or len(keys) != len(manifest.tasks):
        raise StoreError(f"{path}: tasks cover {row} rows, expected {manifest.rows}; {REBUILD}")
    if manifest.dtype not in DTYPES or manifest.generation < 0 or manifest.lookahead < 0:
        raise StoreError(f"{path}: dtype {manifest.dtype!r} or counts are impossible; {REBUILD}")
