"""Retrieval latency and recall: the store's search against exact numpy, interleaved in one run.

    OMP_NUM_THREADS=1 python bench/retrieval.py

Absolute milliseconds belong to the machine; the ratios inside one run are what to compare. Before
each query of the cold rows, a buffer larger than the caches is read.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes, synthetic_store

TASK = "synthetic task 0"
FLUSH_BYTES = 96 << 20
HELD_OUT = 4
K = 5

Search = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=52)
    parser.add_argument("--steps", type=int, default=131, help="mean steps per episode")
    parser.add_argument("--embedding-size", type=int, default=4352)
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--qdrant", action="store_true", help="add qdrant-client's local mode")
    arguments = parser.parse_args()
    spec = SyntheticSpec(1, arguments.episodes, arguments.steps, arguments.embedding_size, seed=7)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store = synthetic_store(Path(folder) / "store", spec)
        built_s = time.perf_counter() - start
        unseen = synthetic_episodes(replace(spec, episodes=spec.episodes + HELD_OUT))
        queries = np.concatenate([rows.vectors for rows in unseen[spec.episodes :]])
        queries = queries[:: max(1, len(queries) // arguments.queries)][: arguments.queries]
        searches = engines(store, with_qdrant=arguments.qdrant)
        record = store.manifest.tasks[0]
        print(
            f"{len(store)} rows x {spec.embedding_size} float32, {len(queries)} held-out queries, "
            f"K={K}, prefix {record.prefix_size}, build {built_s:.1f} s\n"
        )
        print(table(searches, queries))


def engines(store: MemoryStore, *, with_qdrant: bool) -> dict[str, Search]:
    rows = store.vectors(np.arange(len(store)))

    def exact_numpy(query: np.ndarray) -> np.ndarray:
        scores = rows @ query
        best = np.argpartition(scores, -K)[-K:]
        return best[np.argsort(-scores[best])]

    found: dict[str, Search] = {
        "numpy float32, exact": exact_numpy,
        "MemoryStore": lambda query: store.search(query, TASK, K).row,
        "MemoryStore, exact": lambda query: store.search(query, TASK, K, exact=True).row,
    }
    if with_qdrant:
        from heisd_ros.demonstrations.qdrant_store import QdrantStore, connect
        from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant

        client = connect(":memory:")
        export_to_qdrant(store, client, "bench")
        local = QdrantStore(client, "bench", timeout_s=60.0)
        found["QdrantStore, local mode"] = lambda query: local.search(query, TASK, K).row
    return found


def table(searches: dict[str, Search], queries: np.ndarray) -> str:
    truth = [searches["numpy float32, exact"](query) for query in queries]
    lines = [
        "| engine | cache | p50 ms | p99 ms | min ms | p50 ratio to numpy | recall@5 | top-1 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cache, flush in (("cold", np.ones(FLUSH_BYTES // 8)), ("warm", np.zeros(1))):
        times, recall, first = measure(searches, queries, truth, flush)
        base = np.median(times["numpy float32, exact"])
        for name, taken in times.items():
            p50, p99 = np.percentile(taken, [50, 99])
            lines.append(
                f"| {name} | {cache} | {p50:.2f} | {p99:.2f} | {min(taken):.2f} "
                f"| 1/{base / p50:.1f} | {np.mean(recall[name]):.4f} | {np.mean(first[name]):.3f} |"
            )
    return "\n".join(lines)


def measure(
    searches: dict[str, Search], queries: np.ndarray, truth: list[np.ndarray], flush: np.ndarray
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, list[float]]]:
    times: dict[str, list[float]] = {name: [] for name in searches}
    recall: dict[str, list[float]] = {name: [] for name in searches}
    first: dict[str, list[float]] = {name: [] for name in searches}
    for query, wanted in zip(queries, truth, strict=True):
        for name, search in searches.items():
            flush += 1.0
            start = time.perf_counter()
            rows = search(query)
            times[name].append((time.perf_counter() - start) * 1e3)
            recall[name].append(len(np.intersect1d(rows, wanted)) / K)
            first[name].append(float(rows[0] == wanted[0]))
    return times, recall, first


if __name__ == "__main__":
    main()
