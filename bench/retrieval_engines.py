"""The engines that the retrieval benchmark compares: built, written, opened and searched alike.

faiss-cpu, hnswlib and qdrant-edge-py are no dependencies of the package: install them to compare.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

K = 5
M, EF_CONSTRUCTION, EF_SEARCH = 16, 100, 64
BATCH = 500

Search = Callable[[np.ndarray], np.ndarray]


@dataclass
class Engine:
    """A searchable engine and what it took to get there; nan: not measured.

    Attributes:
        name: For the table.
        search: Query to row numbers.
        draft: Query to the rows' actions, which is what is timed; None: search and a look-up.
        build_s: Seconds.
        open_s: Seconds.
        anonymous_mb: Resident memory of its own.
        mapped_mb: Resident pages of mapped files.
        disk_mb: Files.
    """

    name: str
    search: Search
    draft: Callable[[np.ndarray], object] | None = None
    build_s: float = float("nan")
    open_s: float = float("nan")
    anonymous_mb: float = float("nan")
    mapped_mb: float = float("nan")
    disk_mb: float = float("nan")


def memory_mb() -> tuple[float, float]:
    """Return anonymous and mapped resident megabytes of this process."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))


def opened(name: str, open_: Callable[[], Search], *, build_s: float, disk: Path) -> Engine:
    """Open an engine, and note how long that took and what it occupies after one search."""
    before = memory_mb()
    start = time.perf_counter()
    search = open_()
    taken = time.perf_counter() - start
    after = memory_mb()
    grown = [max(0.0, b - a) for a, b in zip(before, after, strict=True)]
    return Engine(name, search, None, build_s, taken, grown[0], grown[1], disk_mb(disk))


def disk_mb(path: Path) -> float:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(file.stat().st_blocks * 512 for file in files) / 1e6


def exact_numpy(rows: np.ndarray, first: int = 0) -> Search:
    def search(query: np.ndarray) -> np.ndarray:
        scores = rows @ query
        best = np.argpartition(scores, -K)[-K:]
        return best[np.argsort(-scores[best])] + first

    return search


def faiss_hnsw(rows: np.ndarray, folder: Path, threads: int) -> Engine:
    import faiss

    faiss.omp_set_num_threads(threads)
    path = folder / "faiss.index"
    start = time.perf_counter()
    index = faiss.IndexHNSWFlat(rows.shape[1], M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = EF_CONSTRUCTION
    for first in range(0, len(rows), 4096):
        index.add(np.ascontiguousarray(rows[first : first + 4096]))
    build_s = time.perf_counter() - start
    faiss.write_index(index, str(path))
    del index

    def open_() -> Search:
        found = faiss.read_index(str(path))
        found.hnsw.efSearch = EF_SEARCH
        faiss.omp_set_num_threads(1)
        return lambda query: found.search(query[None], K)[1][0]

    return opened(f"faiss {faiss.__version__} HNSW", open_, build_s=build_s, disk=path)


def hnswlib_hnsw(rows: np.ndarray, folder: Path, threads: int) -> Engine:
    import hnswlib

    path = folder / "hnswlib.index"
    start = time.perf_counter()
    index = hnswlib.Index("ip", rows.shape[1])
    index.init_index(len(rows), M=M, ef_construction=EF_CONSTRUCTION)
    index.set_num_threads(threads)
    for first in range(0, len(rows), 4096):
        index.add_items(np.ascontiguousarray(rows[first : first + 4096]))
    build_s = time.perf_counter() - start
    index.save_index(str(path))
    del index

    def open_() -> Search:
        found = hnswlib.Index("ip", rows.shape[1])
        found.load_index(str(path))
        found.set_ef(EF_SEARCH)
        found.set_num_threads(1)
        return lambda query: found.knn_query(query, k=K)[0][0]

    return opened("hnswlib HNSW", open_, build_s=build_s, disk=path)


def qdrant_edge(rows: np.ndarray, tasks: np.ndarray, folder: Path, task: int) -> Engine:
    """One shard of float32 with a payload index on the task, indexed by HNSW."""
    import qdrant_edge as edge

    path = folder / "edge"
    path.mkdir()
    start = time.perf_counter()
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=rows.shape[1], distance=edge.Distance.Dot),
        hnsw_config=edge.HnswIndexConfig(
            m=M, ef_construct=EF_CONSTRUCTION, full_scan_threshold=1000
        ),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1000),
        max_search_threads=1,
    )
    shard = edge.EdgeShard.create(str(path), config)
    for first in range(0, len(rows), BATCH):
        points = [
            edge.Point(row, rows[row], {"task": int(tasks[row])})
            for row in range(first, min(first + BATCH, len(rows)))
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))
        shard.flush()
    shard.update(edge.UpdateOperation.create_field_index("task", edge.PayloadSchemaType.Integer))
    shard.optimize()
    shard.flush()
    shard.close()
    build_s = time.perf_counter() - start

    def open_() -> Search:
        found = edge.EdgeShard.load(str(path))
        condition = edge.FieldCondition(key="task", match=edge.MatchValue(value=task))

        def search(query: np.ndarray) -> np.ndarray:
            request = edge.QueryRequest(
                limit=K,
                query=edge.Query.Nearest(query),
                filter=edge.Filter(must=[condition]),
                params=edge.SearchParams(hnsw_ef=EF_SEARCH),
            )
            return np.array([point.id for point in found.query(request)], dtype=np.int64)

        return search

    return opened("qdrant-edge 0.9 HNSW", open_, build_s=build_s, disk=path)
