"""Copy a store between its folder and a Qdrant collection, bit for bit, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.manifest import Manifest
from heisd_ros.demonstrations.qdrant_connection import (
    MANIFEST_ID,
    MAX_LOCAL_ROWS,
    Client,
    ask,
    is_local,
    models,
    read_export,
)
from heisd_ros.demonstrations.qdrant_export import Export, is_task_collection
from heisd_ros.demonstrations.qdrant_payload import checked_payload, features_of, payload_of
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import StoreError
from heisd_ros.types import Float32Array

BATCH_ROWS = 64
"""64 rows of 4352 numbers are about 5 MB of JSON; the server's default limit is 32 MB."""
SCROLL_ROWS = 256
TENANT_LINKS = 16
"""Links per row of the search graph that each task has for itself (Qdrant's usual m)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a cluster keeps a collection; None is the server's default.

    Attributes:
        per_task: One collection per task, as in the paper, instead of one index with tenants.
        shards: Parts that are spread over the nodes.
        replicas: Copies of every part.
        confirmed: Copies that must have a batch before it counts as written.
    """

    per_task: bool = False
    shards: int | None = None
    replicas: int | None = None
    confirmed: int | None = None


def export_to_qdrant(
    store: MemoryStore,
    client: Client,
    collection: str,
    *,
    replace: bool = False,
    layout: Layout | None = None,
) -> None:
    """Write every row, then the manifest.

    Args:
        store: Source.
        client: From `connect`.
        collection: Name of the collection.
        replace: Delete a collection of this name first.
        layout: How it is kept; None for the defaults.

    Raises:
        StoreError: If the collection exists, the server fails, or the in-memory mode would get
            too many rows.
    """
    layout = layout or Layout()
    if is_local(client) and len(store) > MAX_LOCAL_ROWS:
        raise StoreError(
            f"the in-memory mode takes at most {MAX_LOCAL_ROWS} rows, got {len(store)}; "
            "use a server"
        )
    export = Export(store.manifest, collection, layout.per_task)
    length = store.manifest.profile.embedding_size
    _make_room(client, collection, replace=replace)
    for name in dict.fromkeys((collection, *export.collections)):
        _create(client, name, length, layout)
    for task in store.tasks:
        _upload_task(store, client, export, task)
    anywhere = np.eye(1, length, dtype=np.float32)
    _upload(client, collection, [MANIFEST_ID], anywhere, [export.to_payload()])


def import_from_qdrant(client: Client, collection: str, out: str | Path) -> Manifest:
    """Write the folder of a collection that `export_to_qdrant` made.

    Raises:
        StoreError: If the collection is incomplete, or the folder cannot be written.
    """
    export = read_export(client, collection)
    manifest = export.manifest
    sources = [source for task in manifest.tasks for source in task.sources]
    with StoreWriter(
        out, manifest.profile, dtype=manifest.dtype, lookahead=manifest.lookahead
    ) as writer:
        rows = 0
        for number, episode in _episodes(client, export):
            if number >= len(sources):
                raise StoreError(f"collection {collection!r} has an episode {number} too many")
            rows += len(episode)
            writer.add_episode(_rows(episode, sources[number], manifest))
        if rows != manifest.rows:
            raise StoreError(
                f"collection {collection!r}: expected {manifest.rows} rows, got {rows}; export the "
                "store again"
            )
        return writer.finish(manifest.dropped)


def point_alias(client: Client, alias: str, collection: str) -> None:
    """Let an alias lead to a finished export, in one step for everyone who searches by it.

    Raises:
        StoreError: If the export is unfinished, or the server fails.
    """
    read_export(client, collection)
    create = models.CreateAlias(collection_name=collection, alias_name=alias)
    steps: list[Any] = [models.CreateAliasOperation(create_alias=create)]
    known = ask(alias, client.get_aliases).aliases
    if any(entry.alias_name == alias for entry in known):
        delete = models.DeleteAlias(alias_name=alias)
        steps.insert(0, models.DeleteAliasOperation(delete_alias=delete))
    ask(alias, lambda: client.update_collection_aliases(steps))


def delete_export(client: Client, collection: str) -> None:
    """Remove an export with all its collections, for good; nothing happens if there is none."""
    names = [entry.name for entry in ask(collection, client.get_collections).collections]
    for name in names:
        if name == collection or is_task_collection(name, collection):
            ask(name, partial(client.delete_collection, name))


def _make_room(client: Client, collection: str, *, replace: bool) -> None:
    if not ask(collection, lambda: client.collection_exists(collection)):
        return
    if not replace:
        raise StoreError(f"collection {collection!r} exists; name another or replace it")
    delete_export(client, collection)


def _create(client: Client, name: str, size: int, layout: Layout) -> None:
    """Create an empty collection of unit vectors, with an index on the task."""
    options: dict[str, Any] = {
        "shard_number": layout.shards,
        "replication_factor": layout.replicas,
        "write_consistency_factor": layout.confirmed,
    }
    if not layout.per_task:
        # Every search is within a task, and tasks are islands: one graph each, none over all.
        options["hnsw_config"] = models.HnswConfigDiff(m=0, payload_m=TENANT_LINKS)
    vectors = models.VectorParams(size=size, distance=models.Distance.DOT)
    ask(name, lambda: client.create_collection(name, vectors_config=vectors, **options))
    if not is_local(client):
        index = models.KeywordIndexParams(
            type=models.KeywordIndexType.KEYWORD, is_tenant=not layout.per_task
        )
        ask(name, lambda: client.create_payload_index(name, "task", field_schema=index, wait=True))


def _upload_task(store: MemoryStore, client: Client, export: Export, task: str) -> None:
    steps = store.rows_of(task)
    openings = store.gripper_opening(steps.row)
    tokens = store.target_tokens(steps.row)
    for first in range(0, len(steps), BATCH_ROWS):
        rows = steps.row[first : first + BATCH_ROWS]
        payloads = [
            payload_of(
                *(export, task, steps, i),
                gripper=float(openings[i]),
                target_tokens=None if tokens is None else tokens[i],
            )
            for i in range(first, first + len(rows))
        ]
        _upload(client, export.collection_of(task), rows.tolist(), store.vectors(rows), payloads)


def _upload(
    client: Client,
    collection: str,
    ids: Sequence[int],
    vectors: Float32Array,
    payloads: Iterable[Mapping[str, Any]],
) -> None:
    """Write points; returns when the server has them."""
    points = [
        models.PointStruct(id=int(row), vector=vector.tolist(), payload=dict(payload))
        for row, vector, payload in zip(ids, vectors, payloads, strict=True)
    ]
    ask(collection, lambda: client.upsert(collection, points, wait=True))


Point = tuple[int, Float32Array, Mapping[str, Any]]


def _scroll(client: Client, export: Export, collection: str) -> Iterator[Point]:
    """Yield (row, float32 (E,), payload) of every row, in row order."""
    offset: Any = None
    while True:
        scroll = partial(
            client.scroll, collection, limit=SCROLL_ROWS, offset=offset, with_vectors=True
        )
        records, offset = ask(collection, scroll)
        for record in records:
            if record.id != MANIFEST_ID:
                payload = checked_payload(record, export)
                yield int(record.id), np.asarray(record.vector, dtype=np.float32), payload
        if offset is None:
            return


def _episodes(client: Client, export: Export) -> Iterator[tuple[int, list[Point]]]:
    for collection in export.collections:
        rows = _scroll(client, export, collection)
        for number, points in groupby(rows, key=lambda point: int(point[2]["episode"])):
            yield number, list(points)


def _rows(points: list[Point], source: str, manifest: Manifest) -> EpisodeRows:
    payloads = [payload for _, _, payload in points]
    tokens = None
    if manifest.target_tokens:
        tokens = np.array([payload["target_tokens"] for payload in payloads], dtype=np.int64)
    return EpisodeRows(
        task=payloads[0]["task"],
        source=source,
        vectors=np.stack([vector for _, vector, _ in points]),
        actions=np.array([payload["action"] for payload in payloads], dtype=np.float64),
        steps=np.array([payload["step"] for payload in payloads], dtype=np.int64),
        positions=np.array([payload["position"] for payload in payloads], dtype=float),
        gripper=np.array([payload["gripper"] for payload in payloads], dtype=float),
        features=features_of(payloads, manifest.feature_size),
        target_tokens=tokens,
    )
