"""Pictures of what is retrieved: a sheet of queries and their neighbours for every task."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from heisd_ros.demonstrations.episode import load_episode
from heisd_ros.demonstrations.explanation import Explanation, explain
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.errors import DataError
from heisd_ros.types import ImageArray

K = 5
TILE = 112
"""Side of one picture, px; the views of a step stand side by side."""
CAPTION = 30
GAP = 8
INK, PAPER, GOOD, BAD = (20, 20, 20), (255, 255, 255), (0, 110, 60), (190, 40, 30)
LIKELY_WRONG = 0.1
"""A pose delta further from the query's than this (action units) is marked."""


@dataclass(frozen=True, slots=True)
class Case:
    """One query and what was found for it.

    Attributes:
        source: Episode of the query.
        step: Step of the query in it.
        action: (7,), the demonstrated action of the query.
        found: The search.
    """

    source: str
    step: int
    action: np.ndarray
    found: Explanation


class Pictures:
    """The camera pictures of stored steps, read from the episodes the store was built from."""

    def __init__(self, folder: Path) -> None:
        """Read below a folder."""
        if not folder.is_dir():
            raise DataError(f"{folder} is no folder; give the episodes the store was built from")
        self._folder = folder
        self._images = lru_cache(maxsize=16)(self._read)

    def at(self, source: str, step: int) -> ImageArray | None:
        """Return uint8 (V, H, W, 3); None if the episode or the step is not there."""
        images = self._images(source)
        return images[step] if images is not None and step < len(images) else None

    def _read(self, source: str) -> ImageArray | None:
        path = self._folder / source
        if not path.is_file():
            return None
        return load_episode(path, privileged=False).images


def cases_of(store: MemoryStore, task: str, count: int) -> list[Case]:
    """Return `count` steps from start to end of the task, each looked up in other episodes."""
    steps = store.rows_of(task)
    episodes = np.unique(steps.episode)
    cases = []
    for i in range(count):
        rows = steps.row[steps.episode == episodes[i * len(episodes) // count]]
        cases.append(case_of(store, task, int(rows[(2 * i + 1) * len(rows) // (2 * count)])))
    return cases


def case_of(store: MemoryStore, task: str, row: int) -> Case:
    """Return one stored step, looked up in the other episodes of its task."""
    step = store.steps_at(np.array([row]))
    episode = int(step.episode[0])
    query = store.vectors(step.row)[0]
    query /= np.linalg.norm(query)  # float16 rows are not exactly of unit norm
    found = explain(store, query, task, K, without=episode)
    return Case(store.source_of(episode), int(step.step[0]), step.action[0], found)


def write_gallery(store: MemoryStore, pictures: Pictures, out: Path, *, per_task: int = 6) -> int:
    """Write one sheet (PNG) per task and a page that shows them all.

    Args:
        store: Searched.
        pictures: Of its episodes.
        out: Folder; made if missing.
        per_task: Queries of one task.

    Returns:
        How many pictures were not found.

    Raises:
        DataError: If not a single picture was found.
    """
    out.mkdir(parents=True, exist_ok=True)
    parts, missing, shown = [], 0, 0
    for number, task in enumerate(store.tasks):
        cases = cases_of(store, task, per_task)
        sheet, lost = draw_sheet(cases, pictures)
        missing += lost
        shown += sum(1 + len(case.found.hits) for case in cases)
        name = f"task_{number:02d}.png"
        sheet.save(out / name)
        parts.append(f"<h2>{html.escape(task)}</h2>\n<img src='{name}' alt='{html.escape(task)}'>")
    if missing == shown:
        raise DataError(
            "none of the pictures was found: give the folder of episodes the store was built "
            f"from, the first one is {store.manifest.sources[0]}"
        )
    legend = (
        "Left: a stored step. Right: its five nearest steps in the other episodes, with cosine, "
        "episode and step. Red: the pose delta is more than "
        f"{LIKELY_WRONG} action units away, or the gripper is in the other state."
    )
    page = (
        "<!DOCTYPE html><meta charset='utf-8'><title>Nearest neighbours</title>"
        "<style>body{font-family:sans-serif;margin:2em}img{max-width:100%}</style>"
        f"<h1>Nearest neighbours</h1>\n<p>{html.escape(legend)}</p>\n" + "\n".join(parts) + "\n"
    )
    (out / "index.html").write_text(page, encoding="utf-8")
    return missing


def draw_sheet(cases: Sequence[Case], pictures: Pictures) -> tuple[Image.Image, int]:
    """Return one row per case, and how many pictures were not found."""
    views = len(cases[0].found.blocks) and _views(cases, pictures)
    width, height = views * TILE, TILE + CAPTION
    size = ((width + GAP) * (K + 1) + 2 * GAP, (height + GAP) * len(cases) + GAP)
    sheet = Image.new("RGB", size, PAPER)
    missing = 0
    for line, case in enumerate(cases):
        top = GAP + line * (height + GAP)
        missing += _draw_step(sheet, (GAP, top), pictures, _caption_of_query(case))
        for place in range(len(case.found.hits)):
            left = 2 * GAP + (place + 1) * (width + GAP)
            missing += _draw_step(sheet, (left, top), pictures, _caption_of_hit(case, place))
    return sheet, missing


@dataclass(frozen=True, slots=True)
class _Caption:
    source: str
    step: int
    text: str
    colour: tuple[int, int, int]


def _caption_of_query(case: Case) -> _Caption:
    text = f"query {_short(case.source)}:{case.step}\n{_grip(case.action)}"
    return _Caption(case.source, case.step, text, INK)


def _caption_of_hit(case: Case, place: int) -> _Caption:
    hits, source = case.found.hits, case.found.sources[place]
    apart = float(np.linalg.norm(hits.action[place, :6] - case.action[:6]))
    agrees = _grip(hits.action[place]) == _grip(case.action)
    step = int(hits.step[place])
    text = (
        f"{hits.score[place]:.4f} {_short(source)}:{step}\n{_grip(hits.action[place])}, "
        f"pose {apart:.2f} away"
    )
    return _Caption(source, step, text, GOOD if agrees and apart <= LIKELY_WRONG else BAD)


def _draw_step(
    sheet: Image.Image, corner: tuple[int, int], pictures: Pictures, caption: _Caption
) -> int:
    """Draw the views of a step and a caption; return 1 if there was no picture."""
    left, top = corner
    images = pictures.at(caption.source, caption.step)
    for view, image in enumerate(images if images is not None else []):
        sheet.paste(Image.fromarray(image).resize((TILE, TILE)), (left + view * TILE, top))
    draw = ImageDraw.Draw(sheet)
    draw.text((left, top + TILE + 2), caption.text, fill=caption.colour, font=_font())
    return int(images is None)


def _views(cases: Sequence[Case], pictures: Pictures) -> int:
    for case in cases:
        images = pictures.at(case.source, case.step)
        if images is not None:
            return len(images)
    return 1


def _short(source: str) -> str:
    return Path(source).stem


def _grip(action: np.ndarray) -> str:
    return "open" if action[6] >= 0.5 else "closed"


@lru_cache(maxsize=1)
def _font() -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size=11)
