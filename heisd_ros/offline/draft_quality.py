"""How good a store's drafts are, in the target's own tokens: deviation, acceptance, gripper.

A step of one episode is looked up in the other episodes of its task. The tokens of what is found
are compared with a reference: the demonstrated action of the step, or what the target itself
decodes there, where the store holds that. The demonstrated action is not what a verification
compares with, but close to it for a model that learned from such demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.config import VerifyConfig
from heisd_ros.demonstrations.calibration import SCORE_TOLERANCE
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.offline.gate_study import acceptable
from heisd_ros.types import ACTION_DIM, FloatArray, Hits, IntArray

K = 5
POSE = ACTION_DIM - 1
GRIPPER_OPEN = 0.5
HEADER = (
    f"{'queries':>7} {'cosine':>7} {'top-1':>6} {'best-5':>6} {'pass-1':>6} {'pass-5':>6} "
    f"{'tree':>6} {'grip':>6} {'grip-5':>6} {'recall@5':>8}"
)


@dataclass(frozen=True, slots=True)
class DraftQuality:
    """Means over the queries.

    Attributes:
        queries: Steps looked up.
        cosine: Of the best hit.
        top1_bins: |token - reference|, mean of the six pose tokens of the best hit, bins.
        best_bins: The same of the best of five hits.
        top1_pass: Share of best hits that the sequence-wise rule accepts whole.
        best_pass: Share of steps at which one of five hits passes.
        tree_pass: The same if position and rotation may come from different hits.
        gripper: Share of best hits with the reference's gripper state.
        gripper_majority: Share of steps at which most of five hits have it.
        recall: Share of the true five best that the store's own search found.
    """

    queries: int
    cosine: float
    top1_bins: float
    best_bins: float
    top1_pass: float
    best_pass: float
    tree_pass: float
    gripper: float
    gripper_majority: float
    recall: float

    def line(self) -> str:
        """Return the figures as a line below `HEADER`."""
        return (
            f"{self.queries:>7} {self.cosine:>7.4f} {self.top1_bins:>6.1f} {self.best_bins:>6.1f} "
            f"{self.top1_pass:>6.3f} {self.best_pass:>6.3f} {self.tree_pass:>6.3f} "
            f"{self.gripper:>6.3f} {self.gripper_majority:>6.3f} {self.recall:>8.4f}"
        )


class DraftJudge:
    """Compares hits with a reference in the target's tokens."""

    def __init__(
        self, tokenizer: ActionTokenizer, statistics: ActionStatistics, rule: VerifyConfig
    ) -> None:
        """Use the target's tokenizer and statistics, and the budgets of a rule."""
        self._tokenizer, self._statistics, self._rule = tokenizer, statistics, rule

    def tokens(self, actions: FloatArray) -> IntArray:
        """Return the tokens (n, 7) of stored actions (n, 7)."""
        return self._tokenizer.encode(self._statistics.normalize(actions))

    def judge(self, hits: Hits, reference: IntArray) -> tuple[float, ...]:
        """Return the seven numbers of one step, in the order of `DraftQuality` from `top1_bins`."""
        bias = np.abs(self.tokens(hits.action) - reference)  # (K, 7)
        pose = bias[:, :POSE].mean(axis=1)
        passed = acceptable(bias.astype(np.float64), self._rule)
        wanted = self._opens(reference[-1:])[0]
        agree = self._opens(self.tokens(hits.action)[:, -1]) == wanted
        return (
            float(pose[0]),
            float(pose.min()),
            float(passed[0]),
            float(passed.any()),
            float(self._tree_passes(bias)),
            float(agree[0]),
            float(agree.mean() > GRIPPER_OPEN),
        )

    def _tree_passes(self, bias: IntArray) -> bool:
        """Return whether some position, some rotation and some gripper of the hits pass."""
        empty = np.zeros_like(bias, dtype=np.float64)
        passes = []
        for part in (slice(0, 3), slice(3, POSE), slice(POSE, ACTION_DIM)):
            alone = empty.copy()
            alone[:, part] = bias[:, part]
            passes.append(bool(acceptable(alone, self._rule).any()))
        return all(passes)

    def _opens(self, tokens: IntArray) -> np.ndarray:
        return np.asarray(self._tokenizer.decode(tokens) >= GRIPPER_OPEN)


def measure_drafts(
    store: MemoryStore,
    judge: DraftJudge,
    *,
    queries: Sequence[tuple[MemoryStore, int]] | None = None,
    per_task: int = 60,
    target: bool = False,
) -> DraftQuality:
    """Look steps up in the other episodes of the store.

    Args:
        store: Searched.
        judge: Of the target that will verify.
        queries: (Store, row) of the steps; None spreads `per_task` of every task over this store.
        per_task: See `queries`.
        target: Compare with the target's own tokens, which the queries' store must hold.
    """
    asked = spread_queries(store, per_task) if queries is None else queries
    results = [_one(store, judge, place, row, target=target) for place, row in asked]
    found = np.array([result for result in results if result], dtype=np.float64)
    means = found.mean(axis=0).tolist() if len(found) else [float("nan")] * 9
    return DraftQuality(len(found), *means)


def spread_queries(store: MemoryStore, per_task: int) -> list[tuple[MemoryStore, int]]:
    """Return up to `per_task` steps of every task, evenly spread over its rows."""
    rows: list[int] = []
    for task in store.manifest.tasks:
        count = min(per_task, task.rows)
        spread = np.linspace(task.first_row, task.stop_row - 1, count).round().astype(int)
        rows += np.unique(spread).tolist()
    return [(store, row) for row in rows]


def _one(
    store: MemoryStore, judge: DraftJudge, place: MemoryStore, row: int, *, target: bool
) -> tuple[float, ...] | None:
    step = place.steps_at(np.array([row]))
    task = place.task_at(row)
    query = place.vectors(step.row)[0]
    query /= np.linalg.norm(query)  # float16 rows are not exactly of unit norm
    own = store.episode_named(task, place.source_of(int(step.episode[0])))
    hits = store.search(query, task, K, exclude_episode=own)
    if not len(hits):
        return None
    truth = store.search(query, task, K, exclude_episode=own, exact=True)
    stored = place.target_tokens(step.row) if target else None
    reference = judge.tokens(step.action)[0] if stored is None else stored[0]
    recall = float(np.mean(hits.score >= truth.score[-1] - SCORE_TOLERANCE))
    return (float(hits.score[0]), *judge.judge(hits, reference), recall)
