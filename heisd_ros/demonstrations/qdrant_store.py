"""The same store on a Qdrant server: for fleets that share one set of demonstrations.

Uses only what the server and qdrant-client's in-memory mode do alike: a filter on the task, dot
products of unit vectors, integer ids that are the row numbers. The in-memory mode is for tests: it
is slow and holds no more than 20,000 rows. Folders of the local mode are never opened, because
opening one executes the pickles in it.
"""

from __future__ import annotations

import importlib.metadata
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from heisd_ros.demonstrations.columns import checked_query
from heisd_ros.demonstrations.deadline import DeadlineCaller
from heisd_ros.demonstrations.manifest import Manifest, TaskRecord, check_encoder
from heisd_ros.demonstrations.qdrant_connection import (
    Client,
    Question,
    ask,
    connect,
    is_local,
    read_export,
    search_also,
    search_points,
    search_points_grpc,
    speaks_grpc,
)
from heisd_ros.demonstrations.qdrant_export import Export, check_version
from heisd_ros.demonstrations.qdrant_payload import ReplacedError, hits_of_points
from heisd_ros.demonstrations.store_address import parse_address
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import StoreError, StoreUnavailableError
from heisd_ros.types import Float32Array, Hits

T = TypeVar("T")
GREETING_TIMEOUT_S = 3.0
"""Patience of the first contact, before anything moves."""
LOG_PAUSE_S = 10.0
"""Fewest seconds between two log lines about a server that is away."""
_LOG = logging.getLogger(__name__)


class QdrantStore:
    """`DemonstrationStore` over one export; safe to search from many threads."""

    def __init__(
        self,
        client: Client,
        collection: str,
        *,
        fingerprint: str = "",
        cameras: tuple[str, ...] = (),
        preprocessing: Mapping[str, Any] | None = None,
        timeout_s: float = 0.05,
        pause_s: float = 1.0,
    ) -> None:
        """Wrap a client; the server is first contacted by `greet` or by a search.

        Args:
            client: From `connect`.
            collection: Name that `export_to_qdrant` wrote, or an alias of it.
            fingerprint: Fingerprint of the encoder that makes the queries; empty skips the check.
            cameras: Cameras of the queries in view order; empty skips the check.
            preprocessing: What happens to a picture before the encoder; see `MemoryStore.open`.
            timeout_s: Deadline of one search, seconds.
            pause_s: After a failure, searches fail at once for this long, seconds.
        """
        self._client, self._collection = client, collection
        self._encoder = (fingerprint, cameras, preprocessing or {})
        self._caller = DeadlineCaller(
            timeout_s,
            pause_s,
            # The in-memory mode is not made for several threads.
            workers=1 if is_local(client) else 4,
            on_change=self._log_change,
        )
        self._keeps_deadlines = speaks_grpc(client)
        self._export: Export | None = None
        self._version_is_known = is_local(client)
        self._logged_at = float("-inf")

    @classmethod
    def open(
        cls,
        url: str,
        *,
        fingerprint: str = "",
        cameras: tuple[str, ...] = (),
        preprocessing: Mapping[str, Any] | None = None,
        timeout_s: float = 0.05,
        pause_s: float = 1.0,
    ) -> QdrantStore:
        """Connect to `scheme://host[:port][/collection]` and greet the server.

        A server that is away, or whose collection cannot be used, is logged and tried again by
        every search after a pause: a robot starts without it. Arguments as in the constructor.

        Raises:
            StoreError: If the address or the credentials are malformed.
        """
        address = parse_address(url)
        store = cls(
            connect(address, timeout_s=timeout_s),
            address.collection,
            fingerprint=fingerprint,
            cameras=cameras,
            preprocessing=preprocessing,
            timeout_s=timeout_s,
            pause_s=pause_s,
        )
        with suppress(StoreError):  # logged by then
            store.greet()
        return store

    @property
    def manifest(self) -> Manifest:
        """What is known about the store; read from the server once.

        Raises:
            StoreError: If the server or the collection is not there, or was built with another
                encoder.
        """
        return self._opened().manifest

    @property
    def digest(self) -> str:
        """Changes with every export whose content, name or layout differs; raises as `manifest`."""
        return self._opened().digest

    def greet(self) -> Manifest:
        """Contact the server with more patience than a search has; raises as `manifest`."""
        return self._caller.call(self._read, timeout_s=GREETING_TIMEOUT_S).manifest

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._caller.close()
        self._client.close()

    def search(
        self,
        embedding: Float32Array,
        task: str,
        k: int,
        *,
        after: Hits | None = None,
        exact: bool = False,
    ) -> Hits:
        """Return the k nearest steps of this task by cosine, best first; empty if task unknown.

        Args:
            embedding: float32 (E,), unit norm.
            task: Instruction; it is normalised to the task key.
            k: Neighbours wanted, >= 1.
            after: Earlier hits; the points of their next steps are scored by a second query of the
                same batch, so they cost no round trip.
            exact: Ask the server not to use its approximate index.

        Raises:
            StoreUnavailableError: If the server does not answer in time, or not as it should.
            StoreError: If the query is refused, or a stored row is malformed.
        """
        export = self._opened()
        query = checked_query(embedding, export.manifest.profile.embedding_size)
        if k < 1:
            raise StoreError(f"k must be at least 1, got {k}")
        record = export.tasks.get(normalise_task(task))
        if record is None:
            return hits_of_points([], [], export, None)
        question = Question(
            self._where(export, record.key), query, "" if export.per_task else record.key, k, exact
        )
        wanted = _next_steps(after, record)
        found = self._find_also(question, wanted) if wanted else self._find(question)
        points = sorted(found, key=lambda point: (-np.float32(point.score), point.id))[:k]
        return self._hits(points, [point.score for point in points], export, record)

    def _find_also(
        self, question: Question, wanted: Mapping[int, tuple[int, int]]
    ) -> Sequence[Any]:
        """Return the nearest points and the wanted ones, each once.

        Args:
            question: What is searched for.
            wanted: Row -> (episode, step) that it must have: behind an episode's end, and after
                another export, the next row is another step.
        """
        nearest, others = self._ask(
            question.collection, lambda: search_also(self._client, question, sorted(wanted))
        )
        found = {point.id: point for point in nearest}
        for point in others:
            payload = point.payload or {}
            if (payload.get("episode"), payload.get("step")) == wanted.get(point.id):
                found.setdefault(point.id, point)
        return list(found.values())

    def successors(self, hits: Hits, n: int) -> Hits:
        """Return the steps n later in the same episodes; hits whose episode ends are dropped.

        Raises:
            StoreError: If n is negative or the server does not answer in time.
        """
        if n < 0:
            raise StoreError(f"n must not be negative, got {n}")
        export = self._opened()
        wanted: dict[str, set[int]] = {}
        for row in hits.row.tolist():
            for record in export.manifest.tasks:
                if record.first_row <= row < record.stop_row:
                    # Steps ascend by at least one a row: the wanted one is at most n rows ahead,
                    # and nearer only if steps were dropped in between.
                    rows = range(row, min(row + n + 1, record.stop_row))
                    wanted.setdefault(self._where(export, record.key), set()).update(rows)
        found = {
            (payload.get("episode"), payload.get("step")): point
            for name, ids in wanted.items()
            for point in self._get(name, sorted(ids))
            if (payload := point.payload or {})
        }
        kept, scores = [], []
        for episode, step, score in zip(hits.episode, hits.step, hits.score, strict=True):
            point = found.get((int(episode), int(step) + n))
            if point is not None:
                kept.append(point)
                scores.append(float(score))
        return self._hits(kept, scores, export, None)

    def _get(self, collection: str, ids: list[int]) -> list[Any]:
        return self._ask(collection, lambda: self._client.retrieve(collection, ids))

    def _where(self, export: Export, task: str) -> str:
        """An alias that leads elsewhere by now is followed; rows of another export are noticed."""
        return export.collection_of(task) if export.per_task else self._collection

    def _find(self, question: Question) -> Sequence[Any]:
        if not self._keeps_deadlines:
            return self._ask(question.collection, lambda: search_points(self._client, question))
        limit_s = self._caller.timeout_s
        return self._ask(
            question.collection,
            lambda: search_points_grpc(self._client, question, limit_s),
            call=self._caller.call_here,
        )

    def _ask(
        self,
        collection: str,
        function: Callable[[], T],
        *,
        call: Callable[[Callable[[], T]], T] | None = None,
    ) -> T:
        try:
            return (call or self._caller.call)(lambda: ask(collection, function))
        except StoreUnavailableError:
            raise
        except StoreError:
            self._export = None  # the server is well, so the collection is not what it was
            raise

    def _opened(self) -> Export:
        return self._export or self._caller.call(self._read)

    def _read(self) -> Export:
        """Runs on a worker: an answer that is late for this search serves the next one."""
        if not self._version_is_known:
            server = ask(self._collection, self._client.info).version
            warning = check_version(server, importlib.metadata.version("qdrant-client"))
            self._version_is_known = True
            if warning:
                _LOG.warning("%s", warning)
        export = read_export(self._client, self._collection)
        check_encoder(export.manifest.profile, self._collection, *self._encoder)
        self._export = export
        return export

    def _hits(
        self, points: list[Any], scores: list[float], export: Export, task: TaskRecord | None
    ) -> Hits:
        try:
            return hits_of_points(points, scores, export, task)
        except ReplacedError:
            self._export = None
            raise

    def _log_change(self, reason: str) -> None:
        now = time.monotonic()
        if not reason:
            _LOG.info("demonstration store %r answers again", self._collection)
        elif now - self._logged_at >= LOG_PAUSE_S:
            self._logged_at = now
            _LOG.warning("demonstration store %r is not used: %s", self._collection, reason)


def _next_steps(hits: Hits | None, record: TaskRecord) -> dict[int, tuple[int, int]]:
    """Return row -> (episode, step) of what would directly follow some hits of a task."""
    if hits is None:
        return {}
    columns = (hits.row.tolist(), hits.episode.tolist(), hits.step.tolist())
    return {
        row + 1: (episode, step + 1)
        for row, episode, step in zip(*columns, strict=True)
        if record.first_row <= row and row + 1 < record.stop_row
    }


def digest_of(url: str) -> str:
    """Return the digest of the export that an address leads to; raises as `greet`."""
    address = parse_address(url)
    store = QdrantStore(connect(address), address.collection)
    try:
        store.greet()
        return store.digest
    finally:
        store.close()
