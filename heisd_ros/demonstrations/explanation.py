"""Why a step was retrieved: its score part by part, its margin, and its way through the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.demonstrations.prefix import Matrix
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.types import Float32Array, FloatArray, Hits

BORDER_TOLERANCE = 2e-4
"""Float16 storage moves the squared norm of a block by at most this."""
TOWERS = {1: ("",), 2: ("/dino", "/siglip")}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of an embedding: what one tower made of one view.

    Attributes:
        name: Camera and tower.
        first: Its first number.
        stop: The number after its last.
    """

    name: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """One search, taken apart.

    Attributes:
        hits: What was found, best first.
        sources: Where the episode of each hit came from.
        blocks: Parts of the embedding.
        cosines: (K, B), cosine of query and hit within each block, [-1, 1].
        margins: (K,), score of each hit minus the next row's, the first row that was not returned
            standing behind the last; 0 means a tie.
        places: (K,), place of each hit in the prefix scan, from 0; -1 if the task is searched
            exactly.
        rerank_rows: How many places of the prefix scan were scored exactly.
    """

    hits: Hits
    sources: tuple[str, ...]
    blocks: tuple[Block, ...]
    cosines: FloatArray
    margins: FloatArray
    places: tuple[int, ...]
    rerank_rows: int


def explain(
    store: MemoryStore, query: Float32Array, task: str, k: int, *, without: int | None = None
) -> Explanation:
    """Search as always and keep what the search saw.

    Args:
        store: Searched.
        query: float32 (E,), unit norm.
        task: Instruction.
        k: Neighbours.
        without: Episode that must not be found.

    Raises:
        StoreError: As `MemoryStore.search`.
    """
    hits = store.search(query, task, k + 1, exclude_episode=without)
    margins = -np.diff(hits.score.astype(np.float64), append=hits.score[-1:])[:k]
    kept = store.search(query, task, k, exclude_episode=without)
    profile = store.manifest.profile
    sample = store.vectors(store.rows_of(task).row[:64])
    blocks = find_blocks(sample, profile.cameras)
    vectors = store.vectors(kept.row)
    cosines = np.array([[_cosine(query, row, block) for block in blocks] for row in vectors])
    return Explanation(
        kept,
        tuple(store.source_of(int(episode)) for episode in kept.episode),
        blocks,
        cosines.reshape(len(kept), len(blocks)),
        margins,
        store.prefix_places(query, task, kept.row),
        store.rerank_rows(task),
    )


def find_blocks(vectors: Matrix, cameras: Sequence[str]) -> tuple[Block, ...]:
    """Return the parts of embeddings: two towers a view where they can be told apart, else views.

    Blocks of equal weight have the same norm in every row, so their border is where the running
    sum of squares stands at the same share in all rows.

    Args:
        vectors: (n, E), some unit rows.
        cameras: Cameras in view order.
    """
    length = vectors.shape[1] // max(1, len(cameras))
    running = np.cumsum(np.asarray(vectors, dtype=np.float64) ** 2, axis=1)
    found: list[Block] = []
    for view, camera in enumerate(cameras):
        first, stop = view * length, (view + 1) * length
        share = (view + 0.5) / len(cameras)
        apart = np.abs(running[:, first : stop - 1] - share).max(axis=0, initial=0.0)
        border = (
            first + 1 + int(np.argmin(apart)) if apart.min(initial=1.0) < BORDER_TOLERANCE else 0
        )
        edges = [first, border, stop] if border else [first, stop]
        names = TOWERS[len(edges) - 1]
        found += [
            Block(camera + name, a, b)
            for name, a, b in zip(names, edges[:-1], edges[1:], strict=True)
        ]
    return tuple(found)


def _cosine(query: Float32Array, row: Float32Array, block: Block) -> float:
    mine, other = query[block.first : block.stop], row[block.first : block.stop]
    return float(mine @ other / max(np.linalg.norm(mine) * np.linalg.norm(other), 1e-12))
