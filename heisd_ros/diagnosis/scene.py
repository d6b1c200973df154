"""What is drawn around the arm: where it went, coloured by mode, and where drafts would lead it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from heisd_ros.diagnosis.palette import AT_REST, Look
from heisd_ros.types import Float32Array, FloatArray, Hits, ImageArray

TRAIL_POINTS = 2000
BORDER = 4
"""Width of the coloured frame, pixels."""
LINE_HEIGHT = 12
CANDIDATE = (0.35, 0.71, 0.91)
SAME_PLACE_M = 1e-4


@dataclass(frozen=True, slots=True)
class Line:
    """A line in space.

    Attributes:
        points: float64 (N, 3), metres.
        colours: float64 (N, 4), red green blue alpha, [0, 1], point by point.
    """

    points: FloatArray
    colours: FloatArray


class Trail:
    """Positions of the end effector with the look of the decision that led from each of them."""

    def __init__(self, size: int = TRAIL_POINTS) -> None:
        """Keep at most `size` points."""
        self._points: deque[FloatArray] = deque(maxlen=size)
        self._colours: deque[tuple[float, ...]] = deque(maxlen=size)

    def add(self, position: FloatArray, look: Look) -> None:
        """Take a position (3,), metres; not finite or where the arm already is: ignored."""
        point = np.asarray(position, dtype=np.float64)
        if not np.isfinite(point).all():
            return
        if self._points and np.linalg.norm(point - self._points[-1]) < SAME_PLACE_M:
            return
        self._points.append(point)
        self._colours.append((*look.rgb(), 1.0))

    def clear(self) -> None:
        """Forget the way, e.g. at the end of an episode."""
        self._points.clear()
        self._colours.clear()

    def line(self) -> Line:
        """Return the way so far."""
        points = np.array(self._points, dtype=np.float64).reshape(-1, 3)
        return Line(points, np.array(self._colours, dtype=np.float64).reshape(-1, 4))


def candidate_lines(position: FloatArray, hits: Hits, metres_per_unit: float) -> list[Line]:
    """Return where each neighbour's actions would lead from here, the best first.

    Args:
        position: Of the end effector (3,), metres, in the frame of the commands.
        hits: Neighbours in the demonstration store; their actions are pose deltas per step.
        metres_per_unit: Metres per action unit (`command.translation_scale`).

    Returns:
        One line per neighbour; the less similar, the more transparent.
    """
    start = np.asarray(position, dtype=np.float64)
    if not np.isfinite(start).all():
        return []
    lines = []
    for place, score in enumerate(hits.score):
        valid = int(hits.valid_length[place])
        deltas = np.concatenate([hits.action[place : place + 1], hits.lookahead[place, :valid]])
        steps = np.cumsum(deltas[:, :3], axis=0) * metres_per_unit
        points = np.concatenate([start[None], start + steps])
        alpha = alpha_of(float(score), hits.score)
        lines.append(Line(points, np.tile([*CANDIDATE, alpha], (len(points), 1))))
    return lines


def alpha_of(score: float, scores: Float32Array | Sequence[float]) -> float:
    """Return 1 for the best of the scores and 0.25 for the worst."""
    low, high = float(np.min(scores)), float(np.max(scores))
    return 1.0 if high <= low else 0.25 + 0.75 * (score - low) / (high - low)


def annotate(image: ImageArray, look: Look, lines: Sequence[str]) -> ImageArray:
    """Return a copy of a picture with a frame in the colour of the mode and text below it.

    Args:
        image: uint8 (H, W, 3), RGB.
        look: Of the last decision.
        lines: Short lines of text; what does not fit is cut off.

    Returns:
        uint8 (H + 2 borders + lines, W + 2 borders, 3), RGB.
    """
    height, width = image.shape[:2]
    size = (width + 2 * BORDER, height + 2 * BORDER + LINE_HEIGHT * len(lines))
    canvas = Image.new("RGB", size, look.colour)
    canvas.paste(Image.fromarray(image), (BORDER, BORDER))
    draw = ImageDraw.Draw(canvas)
    if lines:
        below = (BORDER, height + BORDER, size[0] - BORDER - 1, size[1] - BORDER - 1)
        draw.rectangle(below, fill=AT_REST.colour)
    for number, line in enumerate(lines):
        top = height + BORDER + 1 + number * LINE_HEIGHT
        draw.text((BORDER, top), line.encode("ascii", "replace").decode(), fill="white")
    pixels: NDArray[np.uint8] = np.array(canvas, dtype=np.uint8)
    return pixels
