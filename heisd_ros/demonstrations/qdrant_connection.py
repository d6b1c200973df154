"""The connection to a Qdrant server: the only module that knows qdrant-client.

Every error of the client and of the server leaves it as a StoreError.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from heisd_ros.demonstrations.qdrant_export import Export, export_from_payload
from heisd_ros.demonstrations.store_address import (
    KEY_HELP,
    Credentials,
    ServerAddress,
    check_key_is_safe,
    parse_address,
    read_credentials,
)
from heisd_ros.errors import MissingDependencyError, StoreError, StoreUnavailableError
from heisd_ros.types import Float32Array

try:
    import grpc  # type: ignore[import-untyped]
    from qdrant_client import QdrantClient
    from qdrant_client import grpc as messages
    from qdrant_client import models as qdrant_models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException, UnexpectedResponse
except ImportError as error:
    raise MissingDependencyError(
        "qdrant-client is needed for QdrantStore: pip install 'heisd_ros[qdrant]'"
    ) from error

Client = QdrantClient
models = qdrant_models
T = TypeVar("T")
CLIENT_ERRORS = (
    *(ApiException, QdrantException, grpc.RpcError),
    *(ValueError, TypeError, AttributeError, OSError, RuntimeError),
)
"""What the client raises; the builtin ones when an answer is not what the protocol says."""
REFUSED = ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED")
ANSWERED = (*REFUSED, "400", "404", "409", "NOT_FOUND", "INVALID_ARGUMENT", "ALREADY_EXISTS")
"""The server is well and says no; everything else means that it is away."""
MANIFEST_ID = 2**63 - 1
"""The point that carries the manifest; written last, so that its absence shows a broken export."""
MAX_LOCAL_ROWS = 20_000
REQUEST_TIMEOUT_S = 1
"""The client counts whole seconds; the deadline of a search is kept outside of it."""
GRPC_OPTIONS = {
    # A server that returns is noticed within a second, also after a long absence.
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.min_reconnect_backoff_ms": 1000,
    "grpc.max_reconnect_backoff_ms": 1000,
    # A cable that was pulled leaves no word: ask whether the other side is still there.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 2000,
}


def connect(
    url: str | ServerAddress,
    *,
    credentials: Credentials | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> QdrantClient:
    """Return a client of a server, or of a new in-memory collection set for `:memory:`.

    Nothing is contacted yet.

    Args:
        url: `grpc://host:6334` (fastest), `grpcs`, `http`, `https`, or `:memory:`; a collection
            behind it is not looked at.
        credentials: Key and authority; None: from the environment.
        timeout_s: Whole seconds after which a request is given up, rounded up.

    Raises:
        StoreError: If the address is none, or a key would travel unencrypted.
    """
    if url == ":memory:":
        return QdrantClient(url)
    address = url if isinstance(url, ServerAddress) else parse_address(url)
    secrets = read_credentials() if credentials is None else credentials
    check_key_is_safe(address, secrets)
    options: dict[str, Any] = {
        "prefer_grpc": address.grpc,
        "https": address.tls,
        "host": f"[{address.host}]" if ":" in address.host else address.host,
        "grpc_port" if address.grpc else "port": address.port,
        "api_key": secrets.api_key or None,
        "timeout": max(1, math.ceil(timeout_s)),
        "check_compatibility": False,
        "grpc_options": dict(GRPC_OPTIONS),
    }
    if address.tls and secrets.ca_file:
        options["grpc_options"]["root_certificates"] = secrets.ca_file.read_bytes()
        options["verify"] = ssl.create_default_context(cafile=str(secrets.ca_file))
    client = QdrantClient(**options)
    client.init_options.pop("api_key", None)
    return client


def is_local(client: QdrantClient) -> bool:
    """Return whether the client is the in-memory mode."""
    return bool(client.init_options.get("location") == ":memory:")


def speaks_grpc(client: QdrantClient) -> bool:
    """Return whether searches travel by gRPC, whose calls keep a deadline by themselves."""
    return bool(client.init_options.get("prefer_grpc")) and not is_local(client)


@dataclass(frozen=True, slots=True)
class Question:
    """A search.

    Attributes:
        collection: Where.
        vector: float32 (E,), unit norm.
        task: Task that every answer must have; empty for any.
        k: Rows wanted.
        exact: Ask the server not to use its approximate index.
    """

    collection: str
    vector: Float32Array
    task: str
    k: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A row that a search found: its number, its cosine and its payload of plain values."""

    id: int | str
    score: float
    payload: dict[str, Any]


def search_points(client: QdrantClient, question: Question) -> Sequence[Any]:
    """Return the scored points that answer a question, as qdrant-client gives them."""
    condition = models.FieldCondition(key="task", match=models.MatchValue(value=question.task))
    response = client.query_points(
        question.collection,
        query=question.vector.tolist(),
        query_filter=models.Filter(must=[condition]) if question.task else None,
        search_params=models.SearchParams(exact=True) if question.exact else None,
        limit=question.k,
        with_payload=True,
    )
    return response.points


def search_also(
    client: QdrantClient, question: Question, rows: Sequence[int]
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the answers to a question, and the given rows scored by it, from one request."""
    task = models.FieldCondition(key="task", match=models.MatchValue(value=question.task))
    conditions: list[Any] = [task] if question.task else []
    nearest = models.QueryRequest(
        query=models.NearestQuery(nearest=question.vector.tolist()),
        filter=models.Filter(must=conditions) if conditions else None,
        params=models.SearchParams(exact=True) if question.exact else None,
        limit=question.k,
        with_payload=True,
    )
    by_id = models.Filter(must=[*conditions, models.HasIdCondition(has_id=list(rows))])
    others = nearest.model_copy(update={"filter": by_id, "limit": len(rows)})
    first, second = client.query_batch_points(question.collection, [nearest, others])
    return first.points, second.points


def search_points_grpc(client: QdrantClient, question: Question, timeout_s: float) -> Sequence[Any]:
    """Return the same as `search_points` in less time, by the client's gRPC stub.

    `query_points` packs numbers one by one, knows only whole seconds as a deadline, and builds
    what we do not read.

    Args:
        client: One that `speaks_grpc`.
        question: What is asked.
        timeout_s: Deadline, seconds.

    Raises:
        StoreUnavailableError: If the deadline passed.
    """
    match = messages.Match(keyword=question.task)
    condition = messages.Condition(field=messages.FieldCondition(key="task", match=match))
    vector = messages.VectorInput(dense=_dense(question.vector))
    request = messages.QueryPoints(
        collection_name=question.collection,
        query=messages.Query(nearest=vector),
        filter=messages.Filter(must=[condition]) if question.task else None,
        params=messages.SearchParams(exact=True) if question.exact else None,
        limit=question.k,
        with_payload=messages.WithPayloadSelector(enable=True),
    )
    try:
        answer = client.grpc_points.Query(request, timeout=timeout_s)
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            text = f"no answer within {timeout_s} s; is the server up?"
            raise StoreUnavailableError(text) from None
        raise
    return [_point(point) for point in answer.result]


def _point(point: Any) -> Point:  # noqa: ANN401
    payload = {name: _plain(value) for name, value in point.payload.items()}
    return Point(getattr(point.id, point.id.WhichOneof("point_id_options")), point.score, payload)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value of a payload as Python has it; objects, which we do not store, as messages."""
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        # Nearly all that a payload holds are lists of numbers.
        values = value.list_value.values
        return [v.double_value if v.HasField("double_value") else _plain(v) for v in values]
    return None if kind in {None, "null_value"} else getattr(value, kind)


def _dense(vector: Float32Array) -> Any:  # noqa: ANN401
    """Return the message of a vector from its bytes: packed floats are little-endian float32."""
    return messages.DenseVector.FromString(_head(len(vector)) + vector.astype("<f4").tobytes())


@lru_cache
def _head(length: int) -> bytes:
    """Return what stands in front of the packed numbers."""
    return bytes(messages.DenseVector(data=[0.0] * length).SerializeToString()[: -4 * length])


def read_export(client: QdrantClient, collection: str) -> Export:
    """Read what an exported store is.

    Raises:
        StoreError: If the collection does not exist, or its export never finished.
    """
    records = ask(collection, lambda: client.retrieve(collection, [MANIFEST_ID]))
    if not records:
        raise StoreError(
            f"Qdrant collection {collection!r} has no manifest: its export never finished, or it "
            "is not ours; export the store again"
        )
    return export_from_payload(records[0].payload or {}, collection)


def ask(collection: str, function: Callable[[], T]) -> T:
    """Call the client; whatever it raises becomes a StoreError.

    Raises:
        StoreUnavailableError: If the server is away or answers what its protocol does not know.
        StoreError: If it is well and refuses.
    """
    try:
        return function()
    except CLIENT_ERRORS as error:
        if isinstance(error, StoreError):
            raise
        code, text = _code_and_text(error)
        where = f"Qdrant collection {collection!r}: "
        if code in REFUSED:
            # Not chained: the server may repeat the key in its answer.
            message = f"{where}the server refused the API key ({code}); {KEY_HELP}"
            raise StoreError(message) from None
        kind = StoreError if code in ANSWERED else StoreUnavailableError
        raise kind(f"{where}{code} {text}; check the server and the collection's name") from error


def _code_and_text(error: Exception) -> tuple[str, str]:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        code, text = str(error.code().name), str(error.details())
    elif isinstance(error, UnexpectedResponse):
        code, text = str(error.status_code), error.content.decode(errors="replace")
    elif isinstance(error, ValueError) and "not found" in str(error):  # the in-memory mode
        code, text = "NOT_FOUND", str(error)
    else:
        code, text = type(error).__name__, str(error)
    lines = text.strip().splitlines()
    return code, lines[0][:200] if lines else ""
