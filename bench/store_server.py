"""What QdrantStore itself costs: the same canned answer fetched raw, by qdrant-client, and by us.

    python bench/store_server.py [--queries 300]

The server is another process on 127.0.0.1 that answers every search with the same bytes at once,
so `raw` is the price of the transport alone, and what a real server adds is its own search. The
three are asked in turn within one run; their ratios mean more than the milliseconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

import grpc  # noqa: E402
import numpy as np  # noqa: E402
from qdrant_client import grpc as pb  # noqa: E402
from qdrant_client import models  # noqa: E402
from qdrant_loopback import GrpcHandler, Loopback, RestHandler, plain  # noqa: E402

from heisd_ros.demonstrations.qdrant_connection import connect  # noqa: E402
from heisd_ros.demonstrations.qdrant_store import QdrantStore  # noqa: E402
from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant  # noqa: E402
from heisd_ros.demonstrations.store_address import parse_address  # noqa: E402
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store  # noqa: E402

LENGTH, K, WARM_UP = 4352, 5, 20
TASK = "synthetic task 0"
METHOD = "/qdrant.Points/Query"
GOAL_MS = 2.0


def serve() -> None:
    """Child process: print both addresses, answer until stdin closes."""
    with tempfile.TemporaryDirectory() as folder:
        there = Loopback()
        store = synthetic_store(Path(folder) / "store", SyntheticSpec(1, 2, 10, LENGTH, seed=1))
        export_to_qdrant(store, there.client, "heisd")
        vector = store.vectors(np.array([4]))[0].tolist()
    points = there.query("heisd", vector, None, K)
    rest = json.dumps({"result": {"points": plain(points)}, "status": "ok", "time": 0.0}).encode()
    query = pb.QueryPoints(
        collection_name="heisd",
        query=pb.Query(nearest=pb.VectorInput(dense=pb.DenseVector(data=vector))),
        limit=K,
    )
    protobuf = GrpcHandler(there).query(query).SerializeToString()

    class CannedGrpc(GrpcHandler):
        def service(self, details):
            if details.method == METHOD:
                return grpc.unary_unary_rpc_method_handler(lambda *_: protobuf)
            return super().service(details)

    def handle(self):
        if not self.path.startswith("/collections/heisd/points/query"):
            return RestHandler.handle_any(self)
        self.rfile.read(int(self.headers["Content-Length"]))
        return self.send(200, rest)

    there.stop()
    handlers = sys.modules["qdrant_loopback"]
    handlers.GrpcHandler = CannedGrpc
    for verb in ("GET", "PUT", "POST"):
        setattr(RestHandler, f"do_{verb}", handle)
    there.start()
    print(json.dumps({scheme: there.url(scheme) for scheme in ("grpc", "http")}), flush=True)
    sys.stdin.read()


def fetchers(scheme: str, url: str, vector: np.ndarray) -> dict[str, Callable[[], object]]:
    address = parse_address(url)
    client = connect(url, timeout_s=30)
    store = QdrantStore(client, "heisd", timeout_s=30.0)
    store.greet()
    condition = models.FieldCondition(key="task", match=models.MatchValue(value=TASK))
    numbers = vector.tolist()
    asked = {"query": numbers, "limit": K, "with_payload": True}
    return {
        "raw": raw_grpc(address, numbers) if scheme == "grpc" else raw_http(address, asked),
        "qdrant-client": lambda: client.query_points(
            "heisd", query_filter=models.Filter(must=[condition]), **asked
        ),
        "QdrantStore": lambda: store.search(vector, TASK, K),
    }


def raw_grpc(address, numbers) -> Callable[[], object]:
    request = pb.QueryPoints(
        collection_name="heisd",
        query=pb.Query(nearest=pb.VectorInput(dense=pb.DenseVector(data=numbers))),
        limit=K,
    ).SerializeToString()
    call = grpc.insecure_channel(address.netloc).unary_unary(METHOD)
    answer = call(request)
    print(f"gRPC: {len(request)} bytes asked, {len(answer)} bytes answered")
    return lambda: call(request)


def raw_http(address, asked) -> Callable[[], object]:
    body = json.dumps(asked).encode()

    def fetch() -> bytes:
        connection = http.client.HTTPConnection(address.netloc, timeout=30)
        connection.request("POST", "/collections/heisd/points/query", body)
        answer = connection.getresponse().read()
        connection.close()
        return answer

    print(f"REST: {len(body)} bytes asked, {len(fetch())} bytes answered")
    return fetch


def measure(calls: dict[str, Callable[[], object]], queries: int) -> dict[str, np.ndarray]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM_UP + queries):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number >= WARM_UP:
                taken[name].append((time.perf_counter() - start) * 1000)
    return {name: np.array(values) for name, values in taken.items()}


def table(scheme: str, taken: dict[str, np.ndarray]) -> str:
    lines = []
    raw = taken["raw"]
    for name, ms in taken.items():
        over = np.median(ms) - np.median(raw)
        lines.append(
            f"| {scheme} | {name} | {np.median(ms):.2f} | {np.percentile(ms, 99):.2f} | "
            f"{ms.min():.2f} | {np.median(ms) / np.median(raw):.2f}x | "
            f"{over:.2f} | {ms.min() - raw.min():.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve()
    child = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    urls = json.loads(child.stdout.readline())
    vector = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)
    vector /= np.linalg.norm(vector)
    print(f"{LENGTH} numbers asked, {K} rows answered, {arguments.queries} queries each\n")
    rows = [
        table(scheme, measure(fetchers(scheme, url, vector), arguments.queries))
        for scheme, url in urls.items()
    ]
    print(
        "\n| transport | who | p50 ms | p99 ms | min ms | p50 ratio to raw | p50 above raw, ms "
        "| min above raw, ms |\n|---|---|---|---|---|---|---|---|"
    )
    print("\n".join(rows))
    child.communicate("")
    return None


if __name__ == "__main__":
    main()
