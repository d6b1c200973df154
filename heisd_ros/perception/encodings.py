"""The colour encodings of sensor_msgs/Image and the arithmetic behind each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from heisd_ros.errors import DataError
from heisd_ros.perception.bayer import demosaic
from heisd_ros.types import ImageArray

BAND = 64
"""Rows converted at a time: what lies between stays in the cache."""

DEPTH = frozenset({"16UC1", "16SC1", "32FC1", "64FC1"})
"""Single-channel encodings that depth cameras publish."""


class ImageError(DataError):
    """A picture that cannot be used.

    Attributes:
        reason: A short machine word for counters and diagnostics.
    """

    def __init__(self, reason: str, message: str) -> None:
        """Keep the reason beside the message."""
        super().__init__(f"{message} [{reason}]")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """How the rows of one encoding are laid out.

    Attributes:
        to_rgb: Turns uint8 rows (R, row bytes) without padding and the byte order into RGB.
        pixel_bytes: Bytes per pixel in a row.
        multiple_of: Width and height must be multiples of these.
        rows_per_two: Rows of data per two rows of picture: 3 when chroma planes follow.
    """

    to_rgb: Callable[[ImageArray, bool], ImageArray]
    pixel_bytes: int
    multiple_of: tuple[int, int] = (1, 1)
    rows_per_two: int = 2


def _as_channels(rows: ImageArray, is_bigendian: bool, depth: int) -> NDArray[np.uint8]:
    """Return the upper eight bits of every sample, (H, samples)."""
    if depth == 1:
        return rows
    return rows[:, 0::2] if is_bigendian else rows[:, 1::2]


def _packed(
    rows: ImageArray,
    is_bigendian: bool,
    *,
    order: tuple[int, ...],
    channels: int,
    depth: int,
) -> ImageArray:
    samples = _as_channels(rows, is_bigendian, depth)
    pixels = samples.reshape(len(rows), -1, channels)
    if order == (0, 1, 2) and channels == 3:
        return np.array(pixels)
    picture = np.empty((*pixels.shape[:2], 3), dtype=np.uint8)
    for target, source in enumerate(order):
        picture[..., target] = pixels[..., source]
    return picture


def _bayer(rows: ImageArray, is_bigendian: bool, *, pattern: str, depth: int) -> ImageArray:
    return demosaic(_as_channels(rows, is_bigendian, depth), pattern)


def _from_yuv(luma: ImageArray, u: ImageArray, v: ImageArray) -> ImageArray:
    """Return RGB of luma (H, W) and chroma (H, W/2), each chroma sample serving two columns.

    BT.601 with luma 16..235, in 16-bit fixed point: within two levels of the exact matrix
    r = 1.1644 y + 1.5960 v, g = 1.1644 y - 0.3918 u - 0.8130 v, b = 1.1644 y + 2.0172 u.
    """
    picture = np.empty((*luma.shape, 3), dtype=np.uint8)
    for top in range(0, len(luma), BAND):
        band = slice(top, top + BAND)
        _fill_from_yuv(picture[band], luma[band], u[band], v[band])
    return picture


def _fill_from_yuv(picture: ImageArray, luma: ImageArray, u: ImageArray, v: ImageArray) -> None:
    bright = luma.astype(np.int16) - np.int16(16)
    bright += (bright * np.int16(21) + np.int16(64)) >> 7
    red, blue = v.astype(np.int16) - np.int16(128), u.astype(np.int16) - np.int16(128)
    tints = (
        (red * np.int16(102) + np.int16(32)) >> 6,
        -((blue * np.int16(50) + red * np.int16(104) + np.int16(64)) >> 7),
        (blue * np.int16(129) + np.int16(32)) >> 6,
    )
    # Even and odd columns apart: long inner loops are several times faster than pairs.
    for column in (0, 1):
        half = np.ascontiguousarray(bright[:, column::2])
        for channel, tint in enumerate(tints):
            colour = half + tint
            np.clip(colour, 0, 255, out=colour)
            picture[:, column::2, channel] = colour


def _yuv422(rows: ImageArray, is_bigendian: bool, *, luma_first: bool) -> ImageArray:  # noqa: ARG001
    luma, chroma = (rows[:, 0::2], rows[:, 1::2]) if luma_first else (rows[:, 1::2], rows[:, 0::2])
    return _from_yuv(luma, chroma[:, 0::2], chroma[:, 1::2])


def _yuv420(rows: ImageArray, is_bigendian: bool, *, u_first: bool) -> ImageArray:  # noqa: ARG001
    height = len(rows) * 2 // 3
    chroma = np.repeat(rows[height:], 2, axis=0)
    first, second = chroma[:, 0::2], chroma[:, 1::2]
    u, v = (first, second) if u_first else (second, first)
    return _from_yuv(rows[:height], u, v)


def _packed_format(order: tuple[int, ...], channels: int, depth: int = 1) -> PixelFormat:
    convert = partial(_packed, order=order, channels=channels, depth=depth)
    return PixelFormat(convert, channels * depth)


def _bayer_formats() -> dict[str, PixelFormat]:
    # Two rows and columns are the smallest mosaic that holds all three colours.
    return {
        f"bayer_{pattern}{8 * depth}": PixelFormat(
            partial(_bayer, pattern=pattern, depth=depth), depth, (2, 2)
        )
        for depth in (1, 2)
        for pattern in ("rggb", "bggr", "gbrg", "grbg")
    }


_YUYV = PixelFormat(partial(_yuv422, luma_first=True), 2, (2, 1))
_UYVY = PixelFormat(partial(_yuv422, luma_first=False), 2, (2, 1))

FORMATS: dict[str, PixelFormat] = {
    "rgb8": _packed_format((0, 1, 2), 3),
    "bgr8": _packed_format((2, 1, 0), 3),
    "rgba8": _packed_format((0, 1, 2), 4),
    "bgra8": _packed_format((2, 1, 0), 4),
    "mono8": _packed_format((0, 0, 0), 1),
    "8UC1": _packed_format((0, 0, 0), 1),
    "8UC3": _packed_format((2, 1, 0), 3),
    "8UC4": _packed_format((2, 1, 0), 4),
    "rgb16": _packed_format((0, 1, 2), 3, 2),
    "bgr16": _packed_format((2, 1, 0), 3, 2),
    "rgba16": _packed_format((0, 1, 2), 4, 2),
    "bgra16": _packed_format((2, 1, 0), 4, 2),
    "mono16": _packed_format((0, 0, 0), 1, 2),
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "nv12": PixelFormat(partial(_yuv420, u_first=True), 1, (2, 2), 3),
    "nv21": PixelFormat(partial(_yuv420, u_first=False), 1, (2, 2), 3),
    **_bayer_formats(),
}
"""Encoding -> layout. `yuv422` is UYVY and `yuv422_yuy2` is YUYV, as ROS defines them."""
