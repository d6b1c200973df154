"""How long a camera message takes to become an RGB picture, in this process, without DDS."""

from __future__ import annotations

import time
from array import array

import numpy as np
from sensor_msgs.msg import Image

from bench.reliability.outcome import Figure, Outcome, Row, Settings
from heisd_ros.nodes.conversions import image_to_frame

HEIGHT, WIDTH = 480, 640
WARM_UP = 10
BOUNDS_MS = {"rgb8": (3, 1.0), "yuv422_yuy2": (2, 5.0), "bayer_rggb8": (1, 5.0)}
"""Bytes per pixel and the largest p99 of each encoding."""


def conversion(settings: Settings) -> Outcome:
    """Convert random pictures of each encoding."""
    runs = settings.runs(200, 5000)
    figures = [
        Figure(f"{encoding}, p99", _p99_ms(encoding, size, runs), "ms", high=bound)
        for encoding, (size, bound) in BOUNDS_MS.items()
    ]
    return Outcome(f"{runs} x", tuple(figures), f"Pictures of {WIDTH}x{HEIGHT}, one thread.")


def _p99_ms(encoding: str, pixel_bytes: int, runs: int) -> float:
    step = WIDTH * pixel_bytes
    message = Image(height=HEIGHT, width=WIDTH, encoding=encoding, step=step)
    noise = np.random.default_rng(0).integers(0, 256, HEIGHT * step, dtype=np.uint8)
    message.data = array("B", noise.tobytes())
    times = []
    for _ in range(WARM_UP + runs):
        began = time.perf_counter()
        image_to_frame(message, "camera")
        times.append(time.perf_counter() - began)
    return float(np.percentile(1e3 * np.array(times[WARM_UP:]), 99))


ROWS = (
    Row(
        "conversion",
        "Camera messages to RGB pictures",
        "p99 at most 1 ms for rgb8, 5 ms for yuv422_yuy2 and bayer",
        conversion,
    ),
)
