"""What more demonstrations did to a store: recall and draft quality before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from heisd_ros.config import HeisdConfig
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.offline.draft_quality import (
    HEADER,
    DraftJudge,
    DraftQuality,
    measure_drafts,
    spread_queries,
)

if TYPE_CHECKING:
    from heisd_ros.build import Components

Query = tuple[MemoryStore, int]


def judge_of(config: HeisdConfig, parts: Components) -> DraftJudge:
    """Return the judge of drafts for the model and the rule that will be served."""
    return DraftJudge(parts.tokenizer, parts.statistics, config.verify)


def growth_report(
    before: MemoryStore, after: MemoryStore, judge: DraftJudge, *, per_task: int = 60
) -> str:
    """Return a table: the same steps looked up in both stores, each without its own episode.

    Args:
        before: The store as it was.
        after: The store as it is.
        judge: Of the model that will verify.
        per_task: Steps of each task, evenly spread; new and old episodes are told apart.
    """
    groups: dict[str, list[Query]] = {"steps stored before": [], "steps added": []}
    for place, row in spread_queries(after, per_task):
        episode = int(place.steps_at(np.array([row])).episode[0])
        known = before.episode_named(place.task_at(row), place.source_of(episode)) is not None
        groups["steps stored before" if known else "steps added"].append((place, row))
    lines = [
        "the same steps looked up before and after, each without its own episode "
        f"({before.manifest.episodes} -> {after.manifest.episodes} episodes):",
        f"{HEADER}  compared with the demonstrated action",
    ]
    for name, queries in groups.items():
        for store, when in ((before, "before"), (after, "after")):
            quality: DraftQuality = measure_drafts(store, judge, queries=queries)
            lines.append(f"{quality.line()}  {name}, {when}")
    return "\n".join(lines)
