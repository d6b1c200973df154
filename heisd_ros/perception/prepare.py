"""Rotation and crop in front of any vision encoder: what the checkpoint was trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from heisd_ros.errors import DataError, ShapeError
from heisd_ros.perception.transforms import centre_crop, rotate
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Frame, VisualFeatures


class PreparingEncoder:
    """Rotates and crops every frame, then encodes (OpenVLA's LIBERO checkpoints: 180, 0.9)."""

    def __init__(self, encoder: VisionEncoder, rotate_deg: int, crop_area: float) -> None:
        """Wrap an encoder.

        Args:
            encoder: What sees the prepared frames.
            rotate_deg: 0, 90, 180 or 270.
            crop_area: Share of the area that is kept around the centre, (0, 1].
        """
        self._encoder = encoder
        self._rotate_deg = rotate_deg
        self._crop_area = crop_area

    def encode(self, frames: Sequence[Frame]) -> VisualFeatures:
        """Prepare and encode.

        Raises:
            DataError: If a frame is not uint8 (H, W, 3).
        """
        return self._encoder.encode([self._prepared(frame) for frame in frames])

    def _prepared(self, frame: Frame) -> Frame:
        try:
            image = centre_crop(rotate(frame.image, self._rotate_deg), self._crop_area)
        except ShapeError as error:
            raise DataError(f"camera {frame.camera!r}: {error}") from error
        return dataclasses.replace(frame, image=image)
