"""Bilinear demosaicing of a Bayer mosaic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heisd_ros.types import ImageArray

RED_SITES = {"rggb": (0, 0), "bggr": (1, 1), "gbrg": (1, 0), "grbg": (0, 1)}
"""Row and column of the red pixel in each 2x2 tile; blue is diagonally opposite."""


def demosaic(mosaic: ImageArray, pattern: str) -> ImageArray:
    """Return RGB, every missing colour being the mean of its nearest two or four neighbours.

    Args:
        mosaic: uint8 (H, W), H and W even.
        pattern: Colours of the first 2x2 tile, e.g. `rggb`.

    Returns:
        uint8 (H, W, 3).
    """
    height, width = mosaic.shape
    # Reflection keeps the parity of rows and columns, so colours stay in place at the border.
    padded = np.pad(mosaic, 1, mode="reflect").astype(np.uint16)
    red_row, red_column = RED_SITES[pattern]
    picture = np.empty((height, width, 3), dtype=np.uint8)
    for row in (0, 1):
        for column in (0, 1):
            own = mosaic[row::2, column::2]
            target = picture[row::2, column::2]
            on_red_row, on_red_column = row == red_row, column == red_column
            if on_red_row != on_red_column:
                beside = _mean(padded, row, column, ((0, -1), (0, 1)))
                above = _mean(padded, row, column, ((-1, 0), (1, 0)))
                target[..., 1] = own
                target[..., 0], target[..., 2] = (beside, above) if on_red_row else (above, beside)
            else:
                target[..., 0 if on_red_row else 2] = own
                target[..., 2 if on_red_row else 0] = _mean(
                    padded, row, column, ((-1, -1), (-1, 1), (1, -1), (1, 1))
                )
                target[..., 1] = _mean(padded, row, column, ((-1, 0), (1, 0), (0, -1), (0, 1)))
    return picture


def _mean(
    padded: NDArray[np.uint16], row: int, column: int, offsets: tuple[tuple[int, int], ...]
) -> NDArray[np.uint16]:
    """Return the rounded mean of the neighbours of every second pixel from (row, column)."""
    height, width = padded.shape[0] - 2, padded.shape[1] - 2
    total = np.full((height // 2, width // 2), len(offsets) // 2, dtype=np.uint16)
    for down, right in offsets:
        top, left = row + 1 + down, column + 1 + right
        total += padded[top : top + height : 2, left : left + width : 2][
            : height // 2, : width // 2
        ]
    return np.asarray(total // np.uint16(len(offsets)))
