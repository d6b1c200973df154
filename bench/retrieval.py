"""Compare search engines on demonstrations of one task, or of forty: speed, recall, memory, time.

    python bench/retrieval.py                                        # one task, 6,825 rows
    python bench/retrieval.py --tasks 40 --rows 273465 --keep DIR --others faiss

Every query is answered by every engine in turn, in one process, so that the ratios hold on a busy
machine; "cold" means that 96 MB were touched before each search. Every engine is timed from the
same float32 query to the same answer: rows, scores and the rows' payload, looked up by the same
code (qdrant-client has it from its own database). Graph searches are as wide as recall@5 >= 0.99
needs. Run it with OMP_NUM_THREADS=1, and at 273k rows with one other engine at a time.
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
    EF_SEARCH,
    Engine,
    Found,
    K,
    Plan,
    StoppedError,
    exact_numpy,
    faiss_hnsw,
    hnswlib_hnsw,
    opened,
    qdrant_edge,
    try_qdrant_local,
)

from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.protocols import DemonstrationStore
from heisd_ros.types import Hits

FLUSH_BYTES = 96 << 20
HELD_OUT = 4
OURS, EXACT, ONE_TASK = "MemoryStore", "numpy float32, exact", "MemoryStore of that task alone"
EDGE, LOCAL = "qdrant-edge", "qdrant-local"
OTHERS = ("faiss", "hnswlib", EDGE, LOCAL)
LOCAL_ROWS = 20_000
MIN_RECALL = 0.99


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
    parser.add_argument("--minutes", type=float, default=20.0, help="limit of each build")
    parser.add_argument("--memory-gb", type=float, default=16.0, help="limit of each build")
    arguments = parser.parse_args()
    scale = Scale(arguments.tasks, arguments.rows, embedding_size=arguments.embedding_size)
    real = RealPaths(arguments.like)
    with tempfile.TemporaryDirectory(dir=arguments.keep and arguments.keep.parent) as folder:
        bench(arguments, scale, real, Path(folder))


def bench(arguments: argparse.Namespace, scale: Scale, real: RealPaths, folder: Path) -> None:
    kept = arguments.keep or folder
    home = kept / f"store_{scale.rows}"
    build_s = float("nan") if home.exists() else build(home, real, scale)
    queries = np.concatenate([e.vectors for e in episodes(real, scale, held_out=HELD_OUT)])
    queries = queries[:: max(1, len(queries) // arguments.queries)][: arguments.queries]
    indexes = kept / f"indexes_{scale.rows}"
    indexes.mkdir(exist_ok=True)
    plan = Plan(indexes, arguments.threads, arguments.minutes, arguments.memory_gb)
    engines = make_engines(arguments.others, Setting(scale, real, home, plan, build_s))
    store = MemoryStore.open(home)
    record = store.manifest.tasks[0]
    sample = np.array(store._column("vectors")[: record.rows])
    truth = [engines[0].search(query)[0] for query in queries]
    for engine in engines:
        widen(engine, queries, truth)
    print(
        f"{len(store)} rows x {scale.embedding_size} float32 in {scale.tasks} tasks, searched in "
        f"{record.rows}; {len(queries)} held-out queries, K={K}, prefix {record.prefix_size}, "
        f"re-rank {record.rerank_rows}\nvariance in the leading components: {spectrum(sample)}\n"
    )
    print(table(engines, queries, truth, store))


def widen(engine: Engine, queries: np.ndarray, truth: list[np.ndarray]) -> None:
    """Make a graph search as wide as the recall needs, and say so in the name."""
    if engine.widen is None:
        return
    for width in EF_SEARCH:
        engine.widen(width)
        if recall(engine, queries, truth) >= MIN_RECALL:
            break
    engine.name += f", ef {width}"


def recall(engine: Engine, queries: np.ndarray, truth: list[np.ndarray]) -> float:
    pairs = zip(queries, truth, strict=True)
    return float(np.mean([len(np.intersect1d(engine.search(q)[0], t)) / K for q, t in pairs]))


def build(home: Path, real: RealPaths, scale: Scale) -> float:
    """Build the store; return the seconds of processor time that did not go into its data."""
    needed = 2.2 * scale.rows * scale.embedding_size * 4
    home.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home.parent).free
    if free < needed:
        raise SystemExit(f"expected {needed / 1e9:.0f} GB of free disk in {home}, got {free / 1e9}")
    start, making = time.process_time(), 0.0
    profile = StoreProfile("bench", scale.embedding_size, created_by="bench/retrieval.py")
    with StoreWriter(home, profile) as writer:
        before = time.process_time()
        for rows in episodes(real, scale):
            making += time.process_time() - before
            writer.add_episode(rows)
            before = time.process_time()
        writer.finish()
    return time.process_time() - start - making


@dataclass(frozen=True)
class Setting:
    """The data and where it lies."""

    scale: Scale
    real: RealPaths
    home: Path
    plan: Plan
    build_s: float


def make_engines(others: list[str], setting: Setting) -> list[Engine]:
    scale, home = setting.scale, setting.home
    first = opened(
        OURS, lambda: found_by(MemoryStore.open(home)), build_s=setting.build_s, disk=home
    )
    store = MemoryStore.open(home)
    first.answer = hits_of(store)
    vectors = store._column("vectors")
    engines = [Engine(EXACT, exact_numpy(vectors[: scale.rows_of(0)])), first]
    if scale.tasks > 1:
        alone = setting.plan.folder / "alone"
        if not alone.exists():
            one = Scale(1, scale.rows_of(0), embedding_size=scale.embedding_size)
            build(alone, setting.real, one)
        single = MemoryStore.open(alone)
        engines.append(Engine(ONE_TASK, found_by(single), hits_of(single)))
    found = (other(name, vectors, setting) for name in others)
    return engines + [engine for engine in found if engine]


def found_by(store: DemonstrationStore) -> Callable[[np.ndarray], Found]:
    def search(query: np.ndarray) -> Found:
        hits = store.search(query, task_name(0), K)
        return hits.row, hits.score

    return search


def hits_of(store: DemonstrationStore) -> Callable[[np.ndarray], Hits]:
    return lambda query: store.search(query, task_name(0), K)


def other(name: str, vectors: np.ndarray, setting: Setting) -> Engine | None:
    try:
        return made(name, vectors, setting)
    except StoppedError as error:
        print(f"{name}: {error}")
        return None


def made(name: str, vectors: np.ndarray, setting: Setting) -> Engine:
    scale, plan = setting.scale, setting.plan
    module = {EDGE: "qdrant_edge", LOCAL: "qdrant_client"}.get(name, name)
    if importlib.util.find_spec(module) is None:
        raise StoppedError(f"{module} is not installed, left out")
    if name == "faiss":
        return faiss_hnsw(vectors, plan)
    if name == "hnswlib":
        return hnswlib_hnsw(vectors, plan)
    if name == EDGE:
        counts = [scale.rows_of(task) for task in range(scale.tasks)]
        return qdrant_edge(vectors, np.repeat(np.arange(scale.tasks), counts), plan, 0)
    if scale.rows > LOCAL_ROWS:
        try_qdrant_local(vectors, plan)
    return qdrant_local(setting.home)


def qdrant_local(home: Path) -> Engine:
    from heisd_ros.demonstrations.qdrant_store import QdrantStore, connect
    from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant

    client = connect(":memory:")
    spent = time.process_time()

    def open_() -> Callable[[np.ndarray], Found]:
        export_to_qdrant(MemoryStore.open(home), client, "bench")
        return found_by(QdrantStore(client, "bench", timeout_s=60.0))

    engine = opened("qdrant-client local", open_, build_s=float("nan"), disk=home)
    engine.answer = hits_of(QdrantStore(client, "bench", timeout_s=60.0))
    engine.build_s, engine.open_s = time.process_time() - spent, float("nan")
    engine.disk_mb = float("nan")
    return engine


def table(
    engines: list[Engine], queries: np.ndarray, truth: list[np.ndarray], store: MemoryStore
) -> str:
    head = (
        "| engine | cold p50 / p99 / min ms | warm p50 / p99 / min ms | cold p50 to numpy "
        "| recall@5 | top-1 | build CPU s | open s | anonymous MB | mapped MB | disk MB |\n"
        + "|---" * 11
        + "|"
    )
    cold = measure(engines, queries, store, np.ones(FLUSH_BYTES // 8))
    warm = measure(engines, queries, store, np.zeros(1))
    lines = [head]
    for engine, a, b in zip(engines, cold, warm, strict=True):
        pairs = [(engine.search(q)[0], t) for q, t in zip(queries, truth, strict=True)]
        first = np.mean([len(rows) and rows[0] == wanted[0] for rows, wanted in pairs])
        numbers = (engine.build_s, engine.open_s, engine.anonymous_mb, engine.mapped_mb)
        lines.append(
            f"| {engine.name} | {times(a)} | {times(b)} | 1/{np.median(cold[0]) / np.median(a):.1f}"
            f" | {recall(engine, queries, truth):.4f} | {first:.3f} | "
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
    engines: list[Engine], queries: np.ndarray, store: MemoryStore, flush: np.ndarray
) -> list[list[float]]:
    taken: list[list[float]] = [[] for _ in engines]
    answers = [engine.answer or looked_up(engine.search, store) for engine in engines]
    for query in queries:
        for answer, mine in zip(answers, taken, strict=True):
            flush += 1.0
            start = time.perf_counter()
            answer(query)
            mine.append((time.perf_counter() - start) * 1e3)
    return taken


def looked_up(search: Callable[[np.ndarray], Found], store: MemoryStore) -> Callable:
    """Return a search whose rows become the store's hits, as its own rows do."""
    return lambda query: store._hits(*search(query))


if __name__ == "__main__":
    main()
