"""A node process of the experiments: the real `main` of a node with a scripted model behind it.

    python bench/reliability/serve.py decoder_node --load-s 2 --ros-args ...

The decoder does what the instruction says, as JSON:

    move      seven numbers of an action, default 0.01 forward
    delay_s   how long every decision takes
    block     [n, seconds]: the n-th decision takes this long
    fail      every so many-th decision raises
    fuzz      seed of random actions, one kind of trouble after the other
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

import numpy as np  # noqa: E402
from ros_fakes import FakeEncoder, result_of  # noqa: E402

from heisd_ros.nodes import decoder_node, perception_node, trajectory_node  # noqa: E402
from heisd_ros.types import DecodeResult, Observation  # noqa: E402

MOVE = [0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
ODD = [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, 5e-324, -0.0, 1e308, 1e6, -1e6, 0.5, 1.0]


class InstructedPolicy:
    """Does what the instruction says; the count of decisions begins anew with each instruction."""

    def __init__(self) -> None:
        self._instruction: str | None = None
        self._count = 0

    def reset(self, instruction: str) -> None:
        """Start an episode."""
        self._instruction = instruction
        self._count = 0

    def act(self, observation: Observation) -> DecodeResult:
        """Wait, fail or answer as told."""
        if observation.instruction != self._instruction:
            self.reset(observation.instruction)
        orders = json.loads(observation.instruction)
        count, self._count = self._count, self._count + 1
        time.sleep(wait_of(orders, count))
        every = orders.get("fail", 0)
        if every and count % every == every - 1:
            raise RuntimeError("out of memory")
        if "fuzz" in orders:
            return result_of(odd_action(orders["fuzz"], count))
        return result_of(orders.get("move", MOVE))

    def end_episode(self, success: bool) -> None:  # noqa: ARG002
        """Forget the instruction."""
        self._instruction = None


def wait_of(orders: dict[str, Any], count: int) -> float:
    """Return how long a decision takes, seconds."""
    number, seconds = orders.get("block", (-1, 0.0))
    return float(seconds if count == number else orders.get("delay_s", 0.0))


def odd_action(seed: int, count: int) -> np.ndarray:
    """Return the count-th action: odd numbers, odd lengths, and plain ones between."""
    rng = np.random.default_rng((seed, count))
    kind = count % 6
    if kind == 0:
        return np.array([*rng.uniform(-0.02, 0.02, 6), rng.integers(0, 2)], dtype=np.float64)
    if kind == 1:
        return rng.choice(ODD, 7)
    if kind == 2:  # one odd number among plain ones
        values = rng.uniform(-0.05, 0.05, 7)
        values[rng.integers(0, 7)] = rng.choice(ODD)
        return values
    if kind == 3:
        return rng.uniform(-1.0, 1.0, int(rng.choice([0, 1, 6, 8, 14])))
    if kind == 4:
        return rng.normal(0.0, 10.0 ** rng.uniform(-320, 308), 7)
    return rng.uniform(-1.0, 1.0, 7)  # a hundred times too fast


def main() -> int:
    """Run one node until a signal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("node", choices=("decoder_node", "perception_node", "trajectory_node"))
    parser.add_argument("--load-s", type=float, default=0.0, help="how long loading takes")
    options, arguments = parser.parse_known_args()

    def load(config: object) -> InstructedPolicy:  # noqa: ARG001
        print("loading", flush=True)
        time.sleep(options.load_s)
        return InstructedPolicy()

    decoder_node.build_policy = load
    perception_node.build_encoder = lambda config: FakeEncoder()  # noqa: ARG005
    mains = {
        "decoder_node": decoder_node.main,
        "perception_node": perception_node.main,
        "trajectory_node": trajectory_node.main,
    }
    return mains[options.node]([sys.argv[0], *arguments])


if __name__ == "__main__":
    sys.exit(main())
