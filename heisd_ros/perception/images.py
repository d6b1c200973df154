"""Camera messages to upright RGB pictures: every colour encoding, row padding, compressed data."""

from __future__ import annotations

import io
import warnings
from array import array
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from heisd_ros.perception.encodings import DEPTH, FORMATS, ImageError, PixelFormat
from heisd_ros.perception.transforms import centre_crop, prepare_image, resize, rotate
from heisd_ros.types import ImageArray

__all__ = [
    "SUPPORTED_ENCODINGS",
    "ImageError",
    "centre_crop",
    "decode_compressed",
    "decode_image",
    "prepare_image",
    "resize",
    "rotate",
]

SUPPORTED_ENCODINGS: tuple[str, ...] = tuple(FORMATS)
"""Encodings `decode_image` takes, spelled as in sensor_msgs/Image."""

COMPRESSED_FORMATS = ("JPEG", "PNG", "WEBP")

MAX_PIXELS = 50_000_000
"""An 8K picture has 33 million; a small file that unfolds to more is an attack or an error."""


BytesLike: TypeAlias = "bytes | bytearray | memoryview | array[int] | NDArray[np.uint8]"
"""What messages carry; rclpy gives an array.array."""


def decode_image(  # noqa: PLR0917  (the field order of sensor_msgs/Image)
    height: int,
    width: int,
    encoding: str,
    step: int,
    data: BytesLike,
    is_bigendian: bool = False,
) -> ImageArray:
    """Return the picture of a sensor_msgs/Image, given its fields.

    `8UC3` and `8UC4` carry no colour order; they are read as OpenCV's blue, green, red. 16-bit
    colour keeps its upper eight bits. Data beyond the last row is ignored.

    Args:
        height: Rows of the picture.
        width: Columns of the picture.
        encoding: One of `SUPPORTED_ENCODINGS`.
        step: Bytes per row including padding; of the luma plane for nv12 and nv21.
        data: The bytes.
        is_bigendian: Byte order of 16-bit encodings.

    Returns:
        uint8 (height, width, 3), RGB, its own memory.

    Raises:
        ImageError: With `reason` `unknown_encoding`, `depth_on_colour_input`, `bad_size`,
            `too_large`, `bad_step` or `short_data`.
    """
    pixel_format = _format_of(encoding)
    _check_size(height, width, pixel_format, encoding)
    row_bytes = width * pixel_format.pixel_bytes
    if step < row_bytes:
        raise ImageError(
            "bad_step",
            f"{encoding}: step must be at least {row_bytes} for width {width}, got {step}",
        )
    rows = height * pixel_format.rows_per_two // 2
    flat = np.frombuffer(data, dtype=np.uint8)
    # The last row may come without its padding.
    needed = step * (rows - 1) + row_bytes
    if flat.size < needed:
        raise ImageError(
            "short_data",
            f"{encoding} {width}x{height}, step {step}: expected {needed} bytes, "
            f"got {flat.size}; the message was cut off",
        )
    table = np.lib.stride_tricks.as_strided(
        flat,
        shape=(rows, row_bytes),
        strides=(step * flat.strides[0], flat.strides[0]),
        writeable=False,
    )
    return pixel_format.to_rgb(table, is_bigendian)


def decode_compressed(data: BytesLike, max_pixels: int = MAX_PIXELS) -> ImageArray:
    """Return the picture of a sensor_msgs/CompressedImage: JPEG, PNG or WebP.

    The size is read from the header before anything is unpacked.

    Args:
        data: The file's bytes.
        max_pixels: A larger picture is refused.

    Returns:
        uint8 (H, W, 3), RGB.

    Raises:
        ImageError: With `reason` `not_an_image`, `too_large` or `depth_on_colour_input`.
    """
    content = bytes(data)
    try:
        picture = _open_compressed(content)
    except Image.DecompressionBombError as error:
        raise ImageError("too_large", f"compressed picture refused: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise ImageError(
            "not_an_image",
            f"expected {', '.join(COMPRESSED_FORMATS)} data, got {len(content)} other bytes",
        ) from error
    _check_compressed(picture, max_pixels)
    try:
        return np.array(picture.convert("RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError) as error:
        raise ImageError("not_an_image", f"compressed picture is damaged: {error}") from error


def _open_compressed(content: bytes) -> Image.Image:
    """Read the header only."""
    with warnings.catch_warnings():
        # Our own limit, checked next, replaces Pillow's warning.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(content), formats=COMPRESSED_FORMATS)


def _check_compressed(picture: Image.Image, max_pixels: int) -> None:
    width, height = picture.size
    if width * height > max_pixels:
        raise ImageError(
            "too_large", f"compressed picture of {width}x{height} has more than {max_pixels} pixels"
        )
    if picture.mode.startswith(("I", "F")):
        raise ImageError(
            "depth_on_colour_input",
            f"compressed picture has mode {picture.mode}, a depth map; use the colour topic",
        )


def _format_of(encoding: str) -> PixelFormat:
    if encoding in DEPTH:
        raise ImageError(
            "depth_on_colour_input",
            f"encoding {encoding} is depth; remap the input to the camera's colour topic",
        )
    if encoding not in FORMATS:
        raise ImageError(
            "unknown_encoding",
            f"encoding {encoding!r} is not supported; expected one of {', '.join(FORMATS)}",
        )
    return FORMATS[encoding]


def _check_size(height: int, width: int, pixel_format: PixelFormat, encoding: str) -> None:
    columns, rows = pixel_format.multiple_of
    if height <= 0 or width <= 0 or width % columns or height % rows:
        raise ImageError(
            "bad_size",
            f"{encoding}: width must be a positive multiple of {columns} and height of {rows}, "
            f"got {width}x{height}",
        )
    if width * height > MAX_PIXELS:
        raise ImageError(
            "too_large", f"picture of {width}x{height} has more than {MAX_PIXELS} pixels"
        )
