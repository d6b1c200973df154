"""The engines that the retrieval benchmark compares: built, written, opened and searched alike.

faiss-cpu, hnswlib and qdrant-edge-py are no dependencies of the package: install them to compare.
An index is built in a child process, so that what the build needs is not counted as memory of the
search, its processor time is known, and one that takes too long can be stopped.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

K = 5
M, EF_CONSTRUCTION = 16, 100
EF_SEARCH = (64, 128, 256, 512)
BATCH = 500

Found = tuple[np.ndarray, np.ndarray]
"""Row numbers and scores, best first."""
Search = Callable[[np.ndarray], Found]
Progress = Callable[[int], None]


class StoppedError(Exception):
    """An engine did not get ready; the text says how far it came."""


@dataclass
class Engine:
    """A searchable engine and what it took to get there; nan: not measured.

    Attributes:
        name: For the table.
        search: Query to rows and scores.
        answer: Query to the rows' payload, which is what is timed; None: search and a look-up.
        widen: Sets the width of a graph search; None if there is none.
        build_s: Seconds of processor time.
        open_s: Seconds.
        anonymous_mb: Resident memory of its own.
        mapped_mb: Resident pages of mapped files.
        disk_mb: Files.
    """

    name: str
    search: Search
    answer: Callable[[np.ndarray], object] | None = None
    widen: Callable[[int], None] | None = None
    build_s: float = float("nan")
    open_s: float = float("nan")
    anonymous_mb: float = float("nan")
    mapped_mb: float = float("nan")
    disk_mb: float = float("nan")


@dataclass(frozen=True)
class Plan:
    """Where an index lies and what its build may take.

    Attributes:
        folder: Indexes that are there are used again.
        threads: Of the build.
        minutes: Wall-clock limit of the build.
        memory_gb: Limit of the build's own memory; the mapped rows do not count.
    """

    folder: Path
    threads: int
    minutes: float
    memory_gb: float


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
    return Engine(name, search, None, None, build_s, taken, grown[0], grown[1], disk_mb(disk))


def disk_mb(path: Path) -> float:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(file.stat().st_blocks * 512 for file in files) / 1e6


def built(path: Path, plan: Plan, build: Callable[[Path, Progress], None]) -> float:
    """Build what is not there yet in a child process; return its seconds of processor time.

    Raises:
        StoppedError: If it took too long, too much memory, or failed.
    """
    if path.exists():
        return float("nan")
    partial = path.with_name(path.name + ".part")
    context = multiprocessing.get_context("fork")
    rows, start = context.Value("q", 0), time.perf_counter()

    def run() -> None:
        limit = int(plan.memory_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        build(partial, lambda count: setattr(rows, "value", count))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = context.Process(target=run)
    child.start()
    child.join(60 * plan.minutes)
    late = child.is_alive()
    child.kill()
    child.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if late or child.exitcode:
        reason = (
            "stopped" if late else f"failed (exit {child.exitcode}, memory {plan.memory_gb} GB)"
        )
        raise StoppedError(
            f"{reason} after {(time.perf_counter() - start) / 60:.0f} minutes ({spent:.0f} s of "
            f"processor time) with {rows.value} rows inserted"
        )
    partial.rename(path)
    return spent


def exact_numpy(rows: np.ndarray) -> Search:
    def search(query: np.ndarray) -> Found:
        scores = rows @ query
        best = np.argpartition(scores, -K)[-K:]
        best = best[np.argsort(-scores[best])]
        return best, scores[best]

    return search


def faiss_hnsw(rows: np.ndarray, plan: Plan) -> Engine:
    import faiss

    def build(path: Path, progress: Progress) -> None:
        faiss.omp_set_num_threads(plan.threads)
        index = faiss.IndexHNSWFlat(rows.shape[1], M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = EF_CONSTRUCTION
        for first in range(0, len(rows), BATCH):
            index.add(np.ascontiguousarray(rows[first : first + BATCH]))
            progress(index.ntotal)
        faiss.write_index(index, str(path))

    path = plan.folder / "faiss.index"
    build_s = built(path, plan, build)
    index = []

    def open_() -> Search:
        index.append(faiss.read_index(str(path)))
        faiss.omp_set_num_threads(1)

        def search(query: np.ndarray) -> Found:
            scores, found = index[0].search(query[None], K)
            return found[0], scores[0]

        return search

    engine = opened(f"faiss {faiss.__version__} HNSW", open_, build_s=build_s, disk=path)
    engine.widen = lambda width: setattr(index[0].hnsw, "efSearch", width)
    return engine


def hnswlib_hnsw(rows: np.ndarray, plan: Plan) -> Engine:
    import hnswlib

    def build(path: Path, progress: Progress) -> None:
        index = hnswlib.Index("ip", rows.shape[1])
        index.init_index(len(rows), M=M, ef_construction=EF_CONSTRUCTION)
        index.set_num_threads(plan.threads)
        for first in range(0, len(rows), BATCH):
            index.add_items(np.ascontiguousarray(rows[first : first + BATCH]))
            progress(index.element_count)
        index.save_index(str(path))

    path = plan.folder / "hnswlib.index"
    build_s = built(path, plan, build)
    found = hnswlib.Index("ip", rows.shape[1])

    def open_() -> Search:
        found.load_index(str(path))
        found.set_num_threads(1)

        def search(query: np.ndarray) -> Found:
            labels, distances = found.knn_query(query, k=K)
            return labels[0].astype(np.int64), 1.0 - distances[0]

        return search

    engine = opened("hnswlib HNSW", open_, build_s=build_s, disk=path)
    engine.widen = found.set_ef
    return engine


def qdrant_edge(rows: np.ndarray, tasks: np.ndarray, plan: Plan, task: int) -> Engine:
    """One shard of float32 with a payload index on the task, indexed by HNSW."""
    import qdrant_edge as edge

    def build(path: Path, progress: Progress) -> None:
        path.mkdir()
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
            progress(first + len(points))
        shard.update(
            edge.UpdateOperation.create_field_index("task", edge.PayloadSchemaType.Integer)
        )
        shard.optimize()
        shard.flush()
        shard.close()

    path = plan.folder / "edge"
    build_s = built(path, plan, build)
    width = [EF_SEARCH[0]]

    def open_() -> Search:
        found = edge.EdgeShard.load(str(path))
        condition = edge.FieldCondition(key="task", match=edge.MatchValue(value=task))

        def search(query: np.ndarray) -> Found:
            request = edge.QueryRequest(
                limit=K,
                query=edge.Query.Nearest(query),
                filter=edge.Filter(must=[condition]),
                params=edge.SearchParams(hnsw_ef=width[0]),
            )
            points = found.query(request)
            scores = np.array([point.score for point in points], dtype=np.float32)
            return np.array([point.id for point in points], dtype=np.int64), scores

        return search

    engine = opened("qdrant-edge 0.9 HNSW", open_, build_s=build_s, disk=path)
    engine.widen = lambda wanted: width.__setitem__(0, wanted)
    return engine


def try_qdrant_local(rows: np.ndarray, plan: Plan) -> None:
    """Insert all rows into qdrant-client's local mode and search once.

    Raises:
        StoppedError: Says how far that came; also if all went well, since it has no index to keep.
    """
    from qdrant_client import QdrantClient, models

    def build(path: Path, progress: Progress) -> None:
        client = QdrantClient(":memory:")
        vectors = models.VectorParams(size=rows.shape[1], distance=models.Distance.DOT)
        client.create_collection("bench", vectors)
        for first in range(0, len(rows), BATCH):
            block = rows[first : first + BATCH]
            ids = range(first, first + len(block))
            points = [
                models.PointStruct(id=i, vector=row.tolist())
                for i, row in zip(ids, block, strict=True)
            ]
            client.upsert("bench", points)
            progress(ids.stop)
        client.query_points("bench", rows[0].tolist(), limit=K)
        path.touch()

    path = plan.folder / "local.done"
    build_s = built(path, plan, build)
    raise StoppedError(f"inserted and searched once in {build_s:.0f} s of processor time")
