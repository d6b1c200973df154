"""Compare search engines on demonstrations of one task, or of forty: speed, recall, memory, time.

    python bench/retrieval.py                                        # one task, 6,825 rows
    python bench/retrieval.py --tasks 40 --rows 273465 --keep DIR    # the size of all of LIBERO

Every query is answered by every engine in turn, in one process, so that the ratios hold on a busy
machine; "cold" means that 96 MB were touched before each search. Engines return row numbers; the
rows' actions are looked up in the timed part, for all alike: numbers of rows draft nothing. Run it
with OMP_NUM_THREADS=1. faiss-cpu, hnswlib and qdrant-edge-py are compared if they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from retrieval_data import RealPaths, Scale, episodes, spectrum, task_name
from retrieval_engines import (
    Engine,
    K,
    exact_numpy,
    faiss_hnsw,
    hnswlib_hnsw,
    opened,
    qdrant_edge,
)

from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.protocols import DemonstrationStore

FLUSH_BYTES = 96 << 20
HELD_OUT = 4
OURS, EXACT, ONE_TASK = "MemoryStore", "numpy float32, exact", "MemoryStore of that task alone"
EDGE, LOCAL = "qdrant-edge", "qdrant-local"
OTHERS = ("faiss", "hnswlib", EDGE, LOCAL)
LOCAL_ROWS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--rows", type=int, default=6825)
    parser.add_argument("--embedding-size", type=int, default=4352)
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--like", type=Path, default=Path("weights/store"), help="real store")
    parser.add_argument("--keep", type=Path, help="folder for the built store; used again if there")
    parser.add_argument("--others", nargs="*", choices=OTHERS, default=list(OTHERS))
    parser.add_argument("--threads", type=int, default=1, help="threads of the builds")
    arguments = parser.parse_args()
    scale = Scale(arguments.tasks, arguments.rows, embedding_size=arguments.embedding_size)
    real = RealPaths(arguments.like)
    with tempfile.TemporaryDirectory(dir=arguments.keep and arguments.keep.parent) as folder:
        bench(arguments, scale, real, Path(folder))


def bench(arguments: argparse.Namespace, scale: Scale, real: RealPaths, folder: Path) -> None:
    home = (arguments.keep or folder) / f"store_{scale.rows}"
    build_s = float("nan") if home.exists() else build(home, real, scale)
    queries = np.concatenate([e.vectors for e in episodes(real, scale, held_out=HELD_OUT)])
    queries = queries[:: max(1, len(queries) // arguments.queries)][: arguments.queries]
    engines = make_engines(arguments, Setting(scale, real, home, folder, build_s))
    for engine in engines:
        engine.search(queries[0])
    store = MemoryStore.open(home)
    record = store.manifest.tasks[0]
    sample = np.array(store._column("vectors")[: record.rows])
    print(
        f"{len(store)} rows x {scale.embedding_size} float32 in {scale.tasks} tasks, searched in "
        f"{record.rows}; {len(queries)} held-out queries, K={K}, prefix {record.prefix_size}, "
        f"re-rank {record.rerank_rows}\nvariance in the leading components: {spectrum(sample)}\n"
    )
    print(table(engines, queries, lookup(store)))


def build(home: Path, real: RealPaths, scale: Scale) -> float:
    """Build the store and return the seconds that were not spent making its data."""
    needed = 2.2 * scale.rows * scale.embedding_size * 4
    home.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home.parent).free
    if free < needed:
        raise SystemExit(f"expected {needed / 1e9:.0f} GB of free disk in {home}, got {free / 1e9}")
    start, making = time.perf_counter(), 0.0
    profile = StoreProfile("bench", scale.embedding_size, created_by="bench/retrieval.py")
    with StoreWriter(home, profile) as writer:
        before = time.perf_counter()
        for rows in episodes(real, scale):
            making += time.perf_counter() - before
            writer.add_episode(rows)
            before = time.perf_counter()
        writer.finish()
    return time.perf_counter() - start - making


@dataclass(frozen=True)
class Setting:
    """The data and where it lies."""

    scale: Scale
    real: RealPaths
    home: Path
    folder: Path
    build_s: float


def make_engines(arguments: argparse.Namespace, setting: Setting) -> list[Engine]:
    scale, home = setting.scale, setting.home

    def open_ours() -> Callable[[np.ndarray], np.ndarray]:
        return rows_of(MemoryStore.open(home))

    first = opened(OURS, open_ours, build_s=setting.build_s, disk=home)
    first.draft = hits_of(MemoryStore.open(home))
    vectors = MemoryStore.open(home)._column("vectors")
    task_rows = vectors[: scale.rows_of(0)]
    engines = [Engine(EXACT, exact_numpy(task_rows)), first]
    if scale.tasks > 1:
        alone = setting.folder / "alone"
        build(alone, setting.real, Scale(1, scale.rows_of(0), embedding_size=scale.embedding_size))
        store = MemoryStore.open(alone)
        engines.append(Engine(ONE_TASK, rows_of(store), hits_of(store)))
    for name in arguments.others:
        engine = other(name, vectors, setting, arguments.threads)
        if engine:
            engines.append(engine)
    return engines


def rows_of(store: DemonstrationStore) -> Callable[[np.ndarray], np.ndarray]:
    return lambda query: store.search(query, task_name(0), K).row


def hits_of(store: DemonstrationStore) -> Callable[[np.ndarray], object]:
    return lambda query: store.search(query, task_name(0), K)


def other(name: str, vectors: np.ndarray, setting: Setting, threads: int) -> Engine | None:
    scale, folder = setting.scale, setting.folder
    module = {EDGE: "qdrant_edge", LOCAL: "qdrant_client"}.get(name, name)
    if importlib.util.find_spec(module) is None:
        print(f"{name}: {module} is not installed, left out")
        return None
    if name == "faiss":
        return faiss_hnsw(vectors, folder, threads)
    if name == "hnswlib":
        return hnswlib_hnsw(vectors, folder, threads)
    if name == EDGE:
        counts = [scale.rows_of(task) for task in range(scale.tasks)]
        return qdrant_edge(vectors, np.repeat(np.arange(scale.tasks), counts), folder, 0)
    if scale.rows > LOCAL_ROWS:
        print(f"{name}: copies all rows to float64 in every search; not run at {scale.rows} rows")
        return None
    return qdrant_local(setting.home)


def qdrant_local(home: Path) -> Engine:
    from heisd_ros.demonstrations.qdrant_store import QdrantStore, connect
    from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant

    client = connect(":memory:")

    def open_() -> Callable[[np.ndarray], np.ndarray]:
        export_to_qdrant(MemoryStore.open(home), client, "bench")
        return rows_of(QdrantStore(client, "bench", timeout_s=60.0))

    engine = opened("qdrant-client local", open_, build_s=float("nan"), disk=home)
    engine.draft = hits_of(QdrantStore(client, "bench", timeout_s=60.0))
    engine.build_s, engine.open_s, engine.disk_mb = engine.open_s, float("nan"), float("nan")
    return engine


def lookup(store: MemoryStore) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    action, lookahead = store._column("action"), store._column("lookahead")
    return lambda rows: (action[rows], lookahead[rows])


def table(engines: list[Engine], queries: np.ndarray, lookup: Callable) -> str:
    exact = engines[0].search
    truth = [exact(query) for query in queries]
    head = (
        "| engine | cold p50 / p99 / min ms | warm p50 / p99 / min ms | cold p50 to numpy "
        "| recall@5 | top-1 | build s | open s | anonymous MB | mapped MB | disk MB |\n"
        + "|---" * 11
        + "|"
    )
    cold = measure(engines, queries, lookup, np.ones(FLUSH_BYTES // 8))
    warm = measure(engines, queries, lookup, np.zeros(1))
    lines = [head]
    for engine, a, b in zip(engines, cold, warm, strict=True):
        found = [engine.search(query) for query in queries]
        pairs = list(zip(found, truth, strict=True))
        recall = np.mean([len(np.intersect1d(rows, wanted)) / K for rows, wanted in pairs])
        first = np.mean([len(rows) and rows[0] == wanted[0] for rows, wanted in pairs])
        numbers = (engine.build_s, engine.open_s, engine.anonymous_mb, engine.mapped_mb)
        lines.append(
            f"| {engine.name} | {times(a)} | {times(b)} | 1/{np.median(cold[0]) / np.median(a):.1f}"
            f" | {recall:.4f} | {first:.3f} | "
            + " | ".join(f"{number:.2f}" for number in (*numbers, engine.disk_mb)).replace(
                "nan", "-"
            )
            + " |"
        )
    return "\n".join(lines)


def times(taken: list[float]) -> str:
    p50, p99 = np.percentile(taken, [50, 99])
    return f"{p50:.2f} / {p99:.2f} / {min(taken):.2f}"


def measure(
    engines: list[Engine], queries: np.ndarray, lookup: Callable, flush: np.ndarray
) -> list[list[float]]:
    taken: list[list[float]] = [[] for _ in engines]
    for query in queries:
        for engine, mine in zip(engines, taken, strict=True):
            draft = engine.draft or (lambda query, search=engine.search: lookup(search(query)))
            flush += 1.0
            start = time.perf_counter()
            draft(query)
            mine.append((time.perf_counter() - start) * 1e3)
    return taken


if __name__ == "__main__":
    main()
