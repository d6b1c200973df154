"""Rotation, crop and resize of pictures, as the checkpoint was trained with."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.types import ImageArray


def rotate(image: ImageArray, degrees: int) -> ImageArray:
    """Return the picture turned counter-clockwise by 0, 90, 180 or 270 degrees.

    Raises:
        ConfigError: If the angle is another one.
        ShapeError: If the picture is not uint8 (H, W, 3).
    """
    if degrees not in (0, 90, 180, 270):
        raise ConfigError(f"rotation must be 0, 90, 180 or 270 degrees, got {degrees}")
    return np.ascontiguousarray(np.rot90(_checked(image), degrees // 90))


def centre_crop(image: ImageArray, area: float) -> ImageArray:
    """Return the middle of the picture that has `area` of its area: each side is sqrt(area).

    Args:
        image: uint8 (H, W, 3).
        area: Kept share of the area, (0, 1]; 0.9 keeps 243 of 256 pixels per side.

    Raises:
        ConfigError: If the area is not in (0, 1].
        ShapeError: If the picture is not uint8 (H, W, 3).
    """
    if not 0.0 < area <= 1.0:
        raise ConfigError(f"crop area must be in (0, 1], got {area}")
    height, width = _checked(image).shape[:2]
    side = math.sqrt(area)
    rows, columns = max(1, round(height * side)), max(1, round(width * side))
    top, left = (height - rows) // 2, (width - columns) // 2
    return np.ascontiguousarray(image[top : top + rows, left : left + columns])


def resize(image: ImageArray, height: int, width: int) -> ImageArray:
    """Return the picture in another size, Lanczos-filtered like OpenVLA's training pictures.

    Raises:
        ConfigError: If the size is not positive.
        ShapeError: If the picture is not uint8 (H, W, 3).
    """
    if height < 1 or width < 1:
        raise ConfigError(f"picture size must be positive, got {width}x{height}")
    if _checked(image).shape[:2] == (height, width):
        return np.array(image)
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS)
    return np.array(resized, dtype=np.uint8)


def prepare_image(
    image: ImageArray, *, rotate_deg: int = 0, crop_area: float = 1.0, size: int = 224
) -> ImageArray:
    """Return the picture turned, cropped and resized to a square, in this order.

    Args:
        image: uint8 (H, W, 3), RGB.
        rotate_deg: Counter-clockwise, degrees.
        crop_area: Kept share of the area.
        size: Side of the result, pixels.
    """
    return resize(centre_crop(rotate(image, rotate_deg), crop_area), size, size)


def _checked(image: ImageArray) -> ImageArray:
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
        raise ShapeError(f"picture must be uint8 (H, W, 3), got {image.dtype} {image.shape}")
    return image
