"""Token reuse across the frames of demonstrations: what is reused, changed and saved.

    OMP_NUM_THREADS=1 python bench/token_reuse.py --demos data/demos/libero_spatial --episodes 8

Every variant sees the frames of each episode in order and decodes every step autoregressively; its
tokens are compared with those of the same checkpoint without reuse on the same frame. Prefills of
all variants are timed in turn on every frame, so their ratio is of one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from heisd_ros.demonstrations.episode import load_episode
from heisd_ros.draft.tree import DraftTree
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.token_reuse import ReuseOptions
from heisd_ros.share import weights_dir
from heisd_ros.types import ACTION_DIM

SIMILARITIES = (0.99, 0.98, 0.95)


@dataclass
class Tally:
    """One variant's target and what was seen of it."""

    target: OpenVlaTarget
    reused: list[float] = field(default_factory=list)
    prefill_ms: list[float] = field(default_factory=list)
    bins: list[np.ndarray] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demos", type=Path, required=True, help="folder of episodes (.npz)")
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10**6, help="first steps of each episode")
    parser.add_argument("--checkpoint", type=Path, default=weights_dir() / "small_vla")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tallies = {
        name: Tally(OpenVlaTarget.from_pretrained(arguments.checkpoint, "cpu", reuse=options))
        for name, options in variants()
    }
    paths = sorted(arguments.demos.rglob("*.npz"))
    for path in paths[:: max(1, len(paths) // arguments.episodes)][: arguments.episodes]:
        run(path, tallies, arguments.steps)
    print(table(tallies))


def variants() -> Iterator[tuple[str, ReuseOptions | None]]:
    yield "off", None
    for similarity in SIMILARITIES:
        yield f"cosine {similarity}", ReuseOptions(similarity=similarity, share=1.0, relevant=0.0)
    default = ReuseOptions()
    yield "default", default
    yield "default, refresh 2", ReuseOptions(refresh=2)


def run(path: Path, tallies: dict[str, Tally], steps: int) -> None:
    episode = load_episode(path, privileged=False)
    targets = [tally.target for tally in tallies.values()]
    info, patches = targets[0].info, 0
    prompt = targets[0].prompt(episode.instruction)
    for target in targets:
        target.reset()
    for index in range(min(steps, len(episode))):
        step = episode.step(index)
        state = np.array([*step.state[:3], step.state[7]], np.float32) if info.state_size else None
        seen = targets[0].encode(step.frames).patches
        patches = int(np.prod(seen.shape[:2]))
        expected = None
        for tally in tallies.values():
            start = time.perf_counter()
            answer = tally.target.start(prompt, seen, state=state)
            tally.prefill_ms.append(1e3 * (time.perf_counter() - start))
            tally.reused.append(tally.target.reused / patches)
            tokens = greedy(tally.target, int(answer.target_next[0]))
            expected = tokens if expected is None else expected
            tally.bins.append(np.abs(tokens - expected))


def greedy(target: OpenVlaTarget, first: int) -> np.ndarray:
    tokens = [first]
    while len(tokens) < ACTION_DIM:
        answer = target.verify(DraftTree.chain(tokens[-1:]))
        target.accept([0])
        tokens.append(int(answer.target_next[1]))
    return np.array(tokens)


def table(tallies: dict[str, Tally]) -> str:
    base = np.median(tallies["off"].prefill_ms)
    lines = [
        f"{len(tallies['off'].bins)} steps",
        "| variant | reused | equal actions | mean L1 (bins) | within 15/30 bins | gripper differs "
        "| prefill time |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, tally in tallies.items():
        bins = np.array(tally.bins)
        moved = bins[:, :6]
        within = (moved.max(1) <= 15) & (moved.reshape(-1, 2, 3).sum(2).max(1) <= 30)
        lines.append(
            f"| {name} | {np.mean(tally.reused):.0%} | {np.mean((bins == 0).all(1)):.0%} "
            f"| {moved.sum(1).mean():.1f} | {within.mean():.0%} | {np.mean(bins[:, 6] > 0):.1%} "
            f"| {np.median(tally.prefill_ms) / base:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
