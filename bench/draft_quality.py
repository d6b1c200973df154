"""Draft quality, and whether more demonstrations help: leave one episode out, in tokens.

    OMP_NUM_THREADS=1 python bench/draft_quality.py STORE [--episodes 5 10 20 0]

Every step asked is looked up, exactly, in other episodes of its task: in so many of them, drawn at
random with `--seed`, 0 meaning all. The reference is the demonstrated action of the step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.config import VerifyConfig
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.offline.draft_quality import DraftJudge, K


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--checkpoint", type=Path, default=Path("weights/small_vla"))
    parser.add_argument("--episodes", type=int, nargs="+", default=[5, 10, 20, 0])
    parser.add_argument("--per-task", type=int, default=300, help="steps asked of each task")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    statistics = ActionStatistics.load(str(arguments.checkpoint), "")
    judge = DraftJudge(ActionTokenizer(), statistics, VerifyConfig())
    print(
        "| other episodes | queries | top-1 cosine | top-1 bins | best-of-5 bins "
        "| top-1 passes 30/15 | one of 5 passes | sequences of 5 pass | top-1 gripper "
        "| majority gripper |\n" + "|---" * 10 + "|"
    )
    with MemoryStore.open(arguments.store) as store:
        for count in arguments.episodes:
            rng = np.random.default_rng(arguments.seed)
            results = [
                row
                for task in store.tasks
                for row in one_task(store, judge, task, count, arguments.per_task, rng)
            ]
            numbers = np.mean(results, axis=0)
            shown = [f"{numbers[0]:.4f}", *(f"{n:.1f}" for n in numbers[1:3])]
            shown += [f"{100 * n:.1f} %" for n in numbers[3:]]
            print(f"| {count or 'all'} | {len(results)} | " + " | ".join(shown) + " |", flush=True)


def one_task(  # noqa: PLR0917
    store: MemoryStore,
    judge: DraftJudge,
    task: str,
    count: int,
    queries: int,
    rng: np.random.Generator,
) -> list[tuple[float, ...]]:
    """Return cosine and the judge's numbers of every step asked."""
    steps = store.rows_of(task)
    vectors = store.vectors(steps.row)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # float16 rows are not quite unit
    tokens = judge.tokens(steps.action)
    episodes = np.unique(steps.episode)
    asked = np.unique(np.linspace(0, len(steps) - 1, queries).round().astype(int))
    results = []
    for row in asked.tolist():
        others = episodes[episodes != steps.episode[row]]
        known = rng.choice(others, min(count, len(others)), replace=False) if count else others
        scores = np.where(np.isin(steps.episode, known), vectors @ vectors[row], -np.inf)
        best = np.argsort(-scores, kind="stable")[:K]
        hits = store.steps_at(steps.row[best])
        results.append((float(scores[best[0]]), *judge.judge(hits, tokens[row])))
    return results


if __name__ == "__main__":
    main()
