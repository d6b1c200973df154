"""Copy a store between its folder and a Qdrant collection, bit for bit, both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.episode_rows import EpisodeRows
from heisd_ros.demonstrations.manifest import Manifest, manifest_to_text
from heisd_ros.demonstrations.qdrant_payload import payload_of
from heisd_ros.demonstrations.qdrant_store import (
    MANIFEST_ID,
    MAX_LOCAL_ROWS,
    Client,
    create_collection,
    is_local,
    read_qdrant_manifest,
    scroll_rows,
    upload,
)
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import StoreError
from heisd_ros.types import Float32Array

BATCH_ROWS = 64
"""64 rows of 4352 numbers are about 5 MB of JSON; the server's default limit is 32 MB."""


def export_to_qdrant(
    store: MemoryStore, client: Client, collection: str, *, replace: bool = False
) -> None:
    """Write every row, then the manifest.

    Args:
        store: Source.
        client: From `connect`.
        collection: Name of the collection.
        replace: Delete a collection of this name first.

    Raises:
        StoreError: If the collection exists, the server fails, or the in-memory mode would get
            too many rows.
    """
    if is_local(client) and len(store) > MAX_LOCAL_ROWS:
        raise StoreError(
            f"the in-memory mode takes at most {MAX_LOCAL_ROWS} rows, got {len(store)}; "
            "use a server"
        )
    manifest = store.manifest
    length = manifest.profile.embedding_size
    create_collection(client, collection, length, replace=replace)
    for task in store.tasks:
        steps = store.rows_of(task)
        openings = store.gripper_opening(steps.row)
        for first in range(0, len(steps), BATCH_ROWS):
            rows = steps.row[first : first + BATCH_ROWS]
            payloads = [
                payload_of(task, steps, i, float(openings[i]))
                for i in range(first, first + len(rows))
            ]
            upload(client, collection, rows.tolist(), store.vectors(rows), payloads)
    anywhere = np.eye(1, length, dtype=np.float32)
    facts = {"task": "", "manifest": manifest_to_text(manifest)}
    upload(client, collection, [MANIFEST_ID], anywhere, [facts])


def import_from_qdrant(client: Client, collection: str, out: str | Path) -> Manifest:
    """Write the folder of a collection that `export_to_qdrant` made.

    Raises:
        StoreError: If the collection is incomplete, or the folder cannot be written.
    """
    manifest = read_qdrant_manifest(client, collection)
    sources = [source for task in manifest.tasks for source in task.sources]
    with StoreWriter(
        out, manifest.profile, dtype=manifest.dtype, lookahead=manifest.lookahead
    ) as writer:
        rows = 0
        for number, episode in _episodes(client, collection):
            if number >= len(sources):
                raise StoreError(f"collection {collection!r} has an episode {number} too many")
            rows += len(episode)
            writer.add_episode(_rows(episode, sources[number]))
        if rows != manifest.rows:
            raise StoreError(
                f"collection {collection!r}: expected {manifest.rows} rows, got {rows}; export the "
                "store again"
            )
        return writer.finish(manifest.dropped)


Point = tuple[int, Float32Array, Mapping[str, Any]]


def _episodes(client: Client, collection: str) -> Iterator[tuple[int, list[Point]]]:
    for number, points in groupby(
        scroll_rows(client, collection), key=lambda point: int(point[2]["episode"])
    ):
        yield number, list(points)


def _rows(points: list[Point], source: str) -> EpisodeRows:
    payloads = [payload for _, _, payload in points]
    return EpisodeRows(
        task=payloads[0]["task"],
        source=source,
        vectors=np.stack([vector for _, vector, _ in points]),
        actions=np.array([payload["action"] for payload in payloads], dtype=np.float64),
        steps=np.array([payload["step"] for payload in payloads], dtype=np.int64),
        positions=np.array([payload["position"] for payload in payloads], dtype=float),
        gripper=np.array([payload["gripper"] for payload in payloads], dtype=float),
    )
