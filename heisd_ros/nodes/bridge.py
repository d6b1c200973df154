"""Uses cv_bridge for the plain encodings where it is installed; the result is the same without."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
from sensor_msgs.msg import Image

from heisd_ros.types import ImageArray

ENCODINGS = frozenset({"rgb8", "bgr8", "mono8"})
"""Where cv_bridge only copies or swaps bytes, so that both ways agree bit for bit."""


def decode_with_cv_bridge(message: Image) -> ImageArray | None:
    """Return the picture, uint8 (H, W, 3), RGB; None to leave it to our own decoder."""
    bridge = _bridge() if message.encoding in ENCODINGS else None
    if bridge is None:
        return None
    try:
        return np.asarray(bridge.imgmsg_to_cv2(message, "rgb8"), dtype=np.uint8)
    except (RuntimeError, TypeError, ValueError):
        return None  # malformed: our decoder says what is wrong with it


@functools.cache
def _bridge() -> Any:  # noqa: ANN401  (cv_bridge.CvBridge)
    """Return a bridge, or None where cv_bridge is missing or does not fit the installed numpy."""
    try:
        return importlib.import_module("cv_bridge").CvBridge()
    except (ImportError, AttributeError):
        return None
