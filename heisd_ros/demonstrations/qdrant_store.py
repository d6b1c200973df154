"""The same store on a Qdrant server: for fleets that share one set of demonstrations.

Uses only what the server and qdrant-client's in-memory mode do alike: one collection, a filter on
the task, dot products of unit vectors, integer ids that are the row numbers. The in-memory mode is
for tests: it is slow and holds no more than 20,000 rows. Folders of the local mode are never
opened, because opening one executes the pickles in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from heisd_ros.demonstrations.columns import checked_query
from heisd_ros.demonstrations.deadline import DeadlineCaller
from heisd_ros.demonstrations.manifest import (
    Manifest,
    check_encoder,
    manifest_from_text,
)
from heisd_ros.demonstrations.qdrant_payload import hits_of_points
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import MissingDependencyError, StoreError
from heisd_ros.types import Float32Array, Hits

try:
    import grpc  # type: ignore[import-untyped]
    from qdrant_client import QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException
except ImportError as error:
    raise MissingDependencyError(
        "qdrant-client is needed for QdrantStore: pip install 'heisd_ros[qdrant]'"
    ) from error

Client = QdrantClient
T = TypeVar("T")
CLIENT_ERRORS = (ApiException, QdrantException, grpc.RpcError, ValueError, OSError, RuntimeError)
MANIFEST_ID = 2**63 - 1
"""The point that carries the manifest; written last, so that its absence shows a broken export."""
MAX_LOCAL_ROWS = 20_000
REQUEST_TIMEOUT_S = 1
"""The client counts whole seconds; the deadline of a search is kept by DeadlineCaller."""
SCROLL_ROWS = 256


def connect(
    url: str,
    *,
    api_key: str = "",
    prefer_grpc: bool = True,
    timeout_s: int = REQUEST_TIMEOUT_S,
) -> QdrantClient:
    """Return a client of a server, or of a new in-memory collection set for `:memory:`.

    Nothing is contacted yet.

    Args:
        url: `http://host:port`, or `:memory:`.
        api_key: Key of the server; empty for none.
        prefer_grpc: Use gRPC (port 6334), which is faster than REST.
        timeout_s: Whole seconds after which a request is given up; more for copying.

    Raises:
        StoreError: If the address is no http(s) URL.
    """
    if url == ":memory:":
        return QdrantClient(url)
    if not url.startswith(("http://", "https://")):
        raise StoreError(
            f"expected the address of a Qdrant server like http://host:6333, got {url!r}; folders "
            "of its local mode are not opened, since they can execute code"
        )
    return QdrantClient(
        url=url,
        api_key=api_key or None,
        prefer_grpc=prefer_grpc,
        timeout=timeout_s,
        check_compatibility=False,
    )


class QdrantStore:
    """`DemonstrationStore` over one Qdrant collection; safe to search from many threads."""

    def __init__(
        self,
        client: QdrantClient,
        collection: str,
        *,
        fingerprint: str = "",
        timeout_s: float = 0.05,
        pause_s: float = 1.0,
    ) -> None:
        """Wrap a client; the server is first contacted by `check` or by a search.

        Args:
            client: From `connect`.
            collection: Name that `export_to_qdrant` wrote.
            fingerprint: Fingerprint of the encoder that makes the queries; empty skips the check.
            timeout_s: Deadline of one search, seconds.
            pause_s: After a failure, searches fail at once for this long, seconds.
        """
        self._client, self._collection = client, collection
        self._fingerprint = fingerprint
        # The in-memory mode is not made for several threads.
        self._caller = DeadlineCaller(timeout_s, pause_s, workers=1 if is_local(client) else 4)
        self._manifest: Manifest | None = None

    @property
    def manifest(self) -> Manifest:
        """What is known about the store; read from the server once.

        Raises:
            StoreError: If the server or the collection is not there, or was built with another
                encoder.
        """
        if self._manifest is None:
            manifest = self._caller.call(
                lambda: read_qdrant_manifest(self._client, self._collection)
            )
            check_encoder(manifest.profile, self._collection, self._fingerprint, (), {})
            self._manifest = manifest
        return self._manifest

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._caller.close()
        self._client.close()

    def delete_collection(self) -> None:
        """Remove the collection from the server, for good."""
        self._ask(lambda: self._client.delete_collection(self._collection))

    def search(self, embedding: Float32Array, task: str, k: int, *, exact: bool = False) -> Hits:
        """Return the k nearest steps of this task by cosine, best first; empty if task unknown.

        Args:
            embedding: float32 (E,), unit norm.
            task: Instruction; it is normalised to the task key.
            k: Neighbours wanted, >= 1.
            exact: Ask the server not to use its approximate index.

        Raises:
            StoreError: If the query is refused, the server does not answer in time, or a stored
                row is malformed.
        """
        manifest = self.manifest
        query = checked_query(embedding, manifest.profile.embedding_size)
        if k < 1:
            raise StoreError(f"k must be at least 1, got {k}")
        condition = models.FieldCondition(
            key="task", match=models.MatchValue(value=normalise_task(task))
        )
        response = self._ask(
            lambda: self._client.query_points(
                self._collection,
                query=query.tolist(),
                query_filter=models.Filter(must=[condition]),
                search_params=models.SearchParams(exact=True) if exact else None,
                limit=k,
                with_payload=True,
            )
        )
        points = sorted(response.points, key=lambda point: (-np.float32(point.score), point.id))
        return hits_of_points(points, [point.score for point in points], manifest.lookahead)

    def successors(self, hits: Hits, n: int) -> Hits:
        """Return the steps n later in the same episodes; hits whose episode ends are dropped.

        Raises:
            StoreError: If n is negative or the server does not answer in time.
        """
        if n < 0:
            raise StoreError(f"n must not be negative, got {n}")
        ids = [int(row) + n for row in hits.row]
        records = self._ask(lambda: self._client.retrieve(self._collection, ids)) if ids else []
        found = {record.id: record for record in records}
        kept, scores = [], []
        for i, row in enumerate(ids):
            payload = found[row].payload if row in found else None
            follows = payload and (payload.get("episode"), payload.get("step")) == (
                hits.episode[i],
                hits.step[i] + n,
            )
            if follows:
                kept.append(found[row])
                scores.append(float(hits.score[i]))
        return hits_of_points(kept, scores, self.manifest.lookahead)

    def _ask(self, function: Callable[[], T]) -> T:
        return self._caller.call(lambda: _translated(self._collection, function))


def is_local(client: QdrantClient) -> bool:
    """Return whether the client is the in-memory mode."""
    return bool(client.init_options.get("location") == ":memory:")


def read_qdrant_manifest(client: QdrantClient, collection: str) -> Manifest:
    """Read the manifest of an exported store.

    Raises:
        StoreError: If the collection does not exist, or its export never finished.
    """
    records = _translated(collection, lambda: client.retrieve(collection, [MANIFEST_ID]))
    if not records:
        raise StoreError(
            f"Qdrant collection {collection!r} has no manifest: its export never finished, or it "
            "is not ours; export the store again"
        )
    payload = records[0].payload or {}
    return manifest_from_text(str(payload.get("manifest", "")), f"collection {collection!r}")


def create_collection(client: QdrantClient, collection: str, size: int, *, replace: bool) -> None:
    """Create an empty collection of unit vectors, with an index on the task.

    Raises:
        StoreError: If it exists and is not to be replaced.
    """

    def create() -> None:
        if client.collection_exists(collection):
            if not replace:
                raise StoreError(f"collection {collection!r} exists; name another or replace it")
            client.delete_collection(collection)
        vectors = models.VectorParams(size=size, distance=models.Distance.DOT)
        client.create_collection(collection, vectors_config=vectors)
        if not is_local(client):
            index = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
            client.create_payload_index(collection, "task", field_schema=index)

    _translated(collection, create)


def upload(
    client: QdrantClient,
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
    _translated(collection, lambda: client.upsert(collection, points, wait=True))


def scroll_rows(
    client: QdrantClient, collection: str
) -> Iterator[tuple[int, Float32Array, Mapping[str, Any]]]:
    """Yield (row, float32 (E,), payload) of every row, in row order."""
    offset: Any = None
    while True:
        ask = partial(
            client.scroll, collection, limit=SCROLL_ROWS, offset=offset, with_vectors=True
        )
        records, offset = _translated(collection, ask)
        for record in records:
            if record.id != MANIFEST_ID:
                vector = np.asarray(record.vector, dtype=np.float32)
                yield int(record.id), vector, record.payload or {}
        if offset is None:
            return


def _translated(collection: str, function: Callable[[], T]) -> T:
    """Call the client; whatever it raises becomes a StoreError."""
    try:
        return function()
    except CLIENT_ERRORS as error:
        if isinstance(error, StoreError):
            raise
        text = str(error).strip().splitlines()
        raise StoreError(
            f"Qdrant collection {collection!r}: {type(error).__name__} "
            f"{text[0] if text else ''}; check the server and the collection's name"
        ) from error
