"""From a camera picture to the pixel values of both towers, as the reference does it.

PIL's bicubic filter rounds and clamps between its two passes; torch's resizers do not, and their
pixels are off by up to 12 grey levels on hard edges. Hence PIL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from heisd_ros.errors import DataError, ModelError
from heisd_ros.types import Float32Array, ImageArray

DINO_MEAN, DINO_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIGLIP_MEAN, SIGLIP_STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
}

Colour = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How pictures become pixel values.

    Attributes:
        image_size: Side of the square both towers see, pixels.
        means: RGB mean of each tower, picture values in [0, 1].
        stds: RGB standard deviation of each tower.
        interpolation: Name of the PIL filter.
    """

    image_size: int
    means: tuple[Colour, Colour] = (DINO_MEAN, SIGLIP_MEAN)
    stds: tuple[Colour, Colour] = (DINO_STD, SIGLIP_STD)
    interpolation: str = "bicubic"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Preprocessing:
        """Read `preprocessor_config.json`.

        Raises:
            ModelError: If it asks for something other than a plain resize of both towers.
        """
        strategy = content.get("image_resize_strategy", "resize-naive")
        if strategy != "resize-naive" or content.get("tvf_do_letterbox"):
            raise ModelError(
                f"preprocessor_config.json: only resize-naive is supported, got {strategy!r}"
            )
        try:
            sides = {int(side) for size in content["input_sizes"] for side in size[-2:]}
            filters = set(content.get("interpolations", ["bicubic"]))
            means = tuple(tuple(float(v) for v in row) for row in content["means"])
            stds = tuple(tuple(float(v) for v in row) for row in content["stds"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"preprocessor_config.json: cannot read {error}") from error
        known = filters <= set(FILTERS)
        if len(sides) != 1 or len(filters) != 1 or not known or {len(means), len(stds)} != {2}:
            raise ModelError(
                "preprocessor_config.json: expected one square size, one filter of "
                f"{', '.join(FILTERS)} and means and stds of two towers; "
                f"got sizes {sorted(sides)}, filters {sorted(filters)}, {len(means)} means"
            )
        return cls(sides.pop(), (means[0], means[1]), (stds[0], stds[1]), filters.pop())

    def to_json(self) -> dict[str, Any]:
        """Return the content of a `preprocessor_config.json`."""
        return {
            "image_processor_type": "PrismaticImageProcessor",
            "image_resize_strategy": "resize-naive",
            "input_sizes": [[3, self.image_size, self.image_size]] * 2,
            "interpolations": [self.interpolation] * 2,
            "means": [list(row) for row in self.means],
            "stds": [list(row) for row in self.stds],
            "tvf_do_letterbox": False,
            "use_fused_vision_backbone": True,
        }

    def pixels(self, images: Sequence[ImageArray]) -> Tensor:
        """Return the pixel values of pictures of any size.

        Args:
            images: uint8 (H, W, 3), RGB, upright.

        Returns:
            float32 (len(images), 6, S, S): channels 0-2 for DINOv2, 3-5 for SigLIP.

        Raises:
            DataError: If a picture is not uint8 (H, W, 3).
        """
        return torch.from_numpy(np.stack([self._pixels(image) for image in images]))

    def _pixels(self, image: ImageArray) -> Float32Array:
        check_picture(image)
        side = (self.image_size, self.image_size)
        resized = Image.fromarray(image).resize(side, FILTERS[self.interpolation])
        levels = np.asarray(resized, dtype=np.float32) / np.float32(255.0)
        towers = [
            (levels - np.array(mean, np.float32)) / np.array(std, np.float32)
            for mean, std in zip(self.means, self.stds, strict=True)
        ]
        joined: Float32Array = np.concatenate(towers, axis=2)
        return np.ascontiguousarray(joined.transpose(2, 0, 1))  # (S, S, 6) -> (6, S, S)


def check_picture(image: ImageArray) -> None:
    """Raise DataError unless the picture is uint8 (H, W, 3) and not empty."""
    if (
        not isinstance(image, np.ndarray)
        or image.dtype != np.uint8
        or image.ndim != 3
        or image.shape[2] != 3
        or image.size == 0
    ):
        found = f"{getattr(image, 'dtype', type(image).__name__)} {getattr(image, 'shape', '')}"
        raise DataError(f"a picture must be uint8 (H, W, 3) RGB, got {found}")
