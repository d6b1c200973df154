"""The search prefix: few numbers per row that rank neighbours nearly as the whole vector does.

For unit vectors and a mean m, q.x = const(q) + (q-m).(x-m) - |x-m|^2 / 2. The last term is stored
exactly as one column; the product is approximated by the leading principal components of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heisd_ros.types import Float32Array, IntArray

Matrix = NDArray[Any]
BLOCK_BYTES = 1 << 22
"""Memory of one block of rows; keeps what a search allocates independent of the store's size."""
BLOCK_ROWS = 8192
OVERSAMPLING = 10
"""Extra random directions of the range finder (Halko et al. 2011 recommend 5 to 10)."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A fitted prefix of d columns: d-1 principal components and the exact norm term.

    Attributes:
        basis: float32 (d, E); the last row is zero.
        offset: float32 (d,), what is subtracted from `basis @ q`; the last number is -1.
        codes: float32 (n, d), one row per vector.
    """

    basis: Float32Array
    offset: Float32Array
    codes: Float32Array

    def project(self, query: Float32Array) -> Float32Array:
        """Return the float32 (d,) coefficients whose product with `codes` ranks the rows."""
        coefficients: Float32Array = self.basis @ query - self.offset
        return coefficients

    def flat(self) -> Float32Array:
        """Return all numbers in one row: basis, offset, codes; the layout of the prefix file."""
        return np.concatenate([self.basis.ravel(), self.offset, self.codes.ravel()])

    def leading(self, size: int) -> Prefix:
        """Return the prefix with `size` columns: fewer components, the same norm term."""
        keep = [*range(size - 1), self.basis.shape[0] - 1]
        return Prefix(
            np.ascontiguousarray(self.basis[keep]),
            self.offset[keep],
            np.ascontiguousarray(self.codes[:, keep]),
        )


def fit_prefix(vectors: Matrix, size: int, *, seed: int = 0) -> Prefix:
    """Fit a prefix to the vectors of one task.

    Args:
        vectors: (n, E) unit rows, float32 or float16; may be a memory map, read block by block.
        size: Columns d, 2 <= d <= min(n, E).
        seed: Of the random range finder; the same seed gives the same prefix.
    """
    n, length = vectors.shape
    mean = sum(block.sum(axis=0, dtype=np.float64) for _, block in _blocks(vectors)) / n
    mean32 = np.asarray(mean, dtype=np.float32)
    components = _principal_components(vectors, mean32, size - 1, np.random.default_rng(seed))
    basis = np.zeros((size, length), dtype=np.float32)
    basis[:-1] = components
    offset = basis @ mean32
    offset[-1] = -1.0
    codes = np.empty((n, size), dtype=np.float32)
    for first, block in _blocks(vectors):
        centred = block - mean32
        codes[first : first + len(block)] = centred @ basis.T
        codes[first : first + len(block), -1] = -0.5 * np.einsum("ij,ij->i", centred, centred)
    return Prefix(basis, offset, codes)


def best_rows(
    matrix: Matrix, query: Float32Array, count: int, *, skip: tuple[int, int] = (0, 0)
) -> IntArray:
    """Return the rows with the `count` largest products with the query, in row order.

    Args:
        matrix: (n, d), float32 or float16.
        query: float32 (d,).
        count: Rows wanted; fewer are returned if fewer exist.
        skip: Half-open range of rows that must not be returned.
    """
    rows, scores = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
    for first, block in _blocks(matrix):
        products = block @ query
        low, high = (min(max(edge - first, 0), len(block)) for edge in skip)
        products[low:high] = -np.inf
        best = _largest(products, count)
        if not first:  # most tasks are one block: nothing to merge
            rows, scores = best, products[best]
            continue
        rows = np.concatenate([rows, best + first])
        scores = np.concatenate([scores, products[best]])
        keep = _largest(scores, count)
        rows, scores = rows[keep], scores[keep]
    if skip[0] < skip[1]:
        rows = rows[np.isfinite(scores)]
    return np.sort(rows)


def _largest(scores: Float32Array, count: int) -> IntArray:
    if len(scores) <= count:
        return np.arange(len(scores))
    return np.argpartition(scores, len(scores) - count)[len(scores) - count :]


def _blocks(matrix: Matrix) -> Any:  # noqa: ANN401
    """Yield (first row, float32 block) over a matrix."""
    step = BLOCK_ROWS
    if matrix.dtype != np.float32:
        # Conversion copies the block; BLAS has no float16.
        step = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (4 * matrix.shape[1])))
    for first in range(0, matrix.shape[0], step):
        yield first, np.asarray(matrix[first : first + step], dtype=np.float32)


def _principal_components(
    vectors: Matrix, mean: Float32Array, count: int, rng: np.random.Generator
) -> Float32Array:
    """Return float32 (count, E) by a randomised range finder with two power iterations."""
    n, length = vectors.shape
    width = min(count + OVERSAMPLING, n, length)
    directions = rng.standard_normal((length, width)).astype(np.float32)
    for _ in range(3):
        directions = np.linalg.qr(_covariance_product(vectors, mean, directions))[0]
    image = _covariance_product(vectors, mean, directions)
    _, rotation = np.linalg.eigh(directions.T @ image)
    components = directions @ rotation[:, ::-1][:, :count]  # (E, count), largest variance first
    return np.ascontiguousarray(components.T)


def _covariance_product(
    vectors: Matrix, mean: Float32Array, directions: Float32Array
) -> Float32Array:
    """Return (X-m)^T (X-m) directions, never holding a centred copy of all rows."""
    product = np.zeros_like(directions)
    shift = mean @ directions
    for _, block in _blocks(vectors):
        image = block @ directions - shift
        product += block.T @ image - np.outer(mean, image.sum(axis=0))
    return product
