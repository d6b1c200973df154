"""Draft quality, and whether more demonstrations help: leave one episode out, in tokens.

    OMP_NUM_THREADS=1 python bench/draft_quality.py STORE [--episodes 5 10 20 0]

Every step asked is looked up, exactly, in other episodes of its task: in so many of them, drawn at
random with `--seed`, 0 meaning all. The reference is the demonstrated action of the step and, if
the store was built with `heisd build-db --target-answers`, what the target itself decodes there.
`itself` compares the demonstrated action of the step with the target: drafts from demonstrations
can hardly come nearer than the demonstration.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.config import VerifyConfig
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.offline.draft_quality import DraftJudge, K

DEMONSTRATED, TARGET = "demonstrated", "target"


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
        "| reference | other episodes | queries | top-1 cosine | top-1 bins | best-of-5 bins "
        "| top-1 passes 30/15 | one of 5 passes | sequences of 5 pass | top-1 gripper "
        "| majority gripper |\n" + "|---" * 11 + "|"
    )
    with MemoryStore.open(arguments.store) as store:
        references = (DEMONSTRATED, TARGET) if store.manifest.target_tokens else (DEMONSTRATED,)
        for count in arguments.episodes:
            for reference in references:
                rng = np.random.default_rng(arguments.seed)
                asked = [
                    row
                    for task in store.tasks
                    for row in one_task(
                        store, judge, task, reference, count, arguments.per_task, rng
                    )
                ]
                print(line(f"{reference} | {count or 'all'}", asked), flush=True)
        if TARGET in references:
            print(line(f"{TARGET} | itself", itself(store, judge, arguments.per_task)))


def line(name: str, results: list[tuple[float, ...]]) -> str:
    numbers = np.mean(results, axis=0)
    shown = [f"{numbers[0]:.4f}", *(f"{n:.1f}" for n in numbers[1:3])]
    shown += [f"{100 * n:.1f} %" for n in numbers[3:]]
    return f"| {name} | {len(results)} | " + " | ".join(shown) + " |"


def asked_rows(steps: int, queries: int) -> list[int]:
    return np.unique(np.linspace(0, steps - 1, queries).round().astype(int)).tolist()


def itself(store: MemoryStore, judge: DraftJudge, queries: int) -> list[tuple[float, ...]]:
    """Return the judge's numbers of the demonstrated actions against the target's tokens."""
    rows = [
        row
        for task in store.tasks
        for row in store.rows_of(task).row[asked_rows(len(store.rows_of(task)), queries)].tolist()
    ]
    return [
        (1.0, *judge.judge(store.steps_at(np.array([row])), target_of(store, np.array([row]))[0]))
        for row in rows
    ]


def target_of(store: MemoryStore, rows: np.ndarray) -> np.ndarray:
    tokens = store.target_tokens(rows)
    assert tokens is not None
    return tokens


def one_task(  # noqa: PLR0917
    store: MemoryStore,
    judge: DraftJudge,
    task: str,
    reference: str,
    count: int,
    queries: int,
    rng: np.random.Generator,
) -> list[tuple[float, ...]]:
    """Return cosine and the judge's numbers of every step asked."""
    steps = store.rows_of(task)
    vectors = store.vectors(steps.row)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # float16 rows are not quite unit
    demonstrated = reference == DEMONSTRATED
    tokens = judge.tokens(steps.action) if demonstrated else target_of(store, steps.row)
    episodes = np.unique(steps.episode)
    results = []
    for row in asked_rows(len(steps), queries):
        others = episodes[episodes != steps.episode[row]]
        known = rng.choice(others, min(count, len(others)), replace=False) if count else others
        scores = np.where(np.isin(steps.episode, known), vectors @ vectors[row], -np.inf)
        best = np.argsort(-scores, kind="stable")[:K]
        hits = store.steps_at(steps.row[best])
        results.append((float(scores[best[0]]), *judge.judge(hits, tokens[row])))
    return results


if __name__ == "__main__":
    main()
