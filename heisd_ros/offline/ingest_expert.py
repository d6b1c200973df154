"""`heisd ingest --source expert`: collect demonstrations of the scripted expert in LIBERO."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from heisd_ros.build import build_policy
from heisd_ros.config import HeisdConfig, replace
from heisd_ros.simulation.collect import (
    IMAGE_SIZE,
    MAX_STEPS,
    NOISE,
    CollectionPlan,
    CollectionReport,
    collect,
)
from heisd_ros.simulation.rollout import Policy


@dataclass(frozen=True)
class Share:
    """What one process collects; crosses a process border."""

    plan: CollectionPlan
    tasks: tuple[int, ...]
    numbers: tuple[int, ...]
    out: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("--source", choices=["expert"], default="expert", help="LIBERO's scripted expert")
    add("--expert", action="store_true", help="the same as --source expert")
    add("--suite", default="libero_spatial", help="LIBERO suite (default %(default)s)")
    add("--tasks", default="0,1,2,3,8", help="task numbers, e.g. 0,1,8 (default %(default)s)")
    add("--episodes", type=int, default=30, help="episodes per task (default %(default)s)")
    add("--first", type=int, default=0, help="number of the first episode (default %(default)s)")
    add("--out", type=Path, required=True, help="folder; what is there already is kept")
    add("--seed", type=int, default=1000, help="seed of the set (default %(default)s)")
    add("--noise", type=float, default=NOISE, help="disturbance [action units]")
    add("--image-size", type=int, default=IMAGE_SIZE, help="side of the pictures [px]")
    add("--max-steps", type=int, default=MAX_STEPS, help="longest episode [steps]")
    add("--processes", type=int, default=1, help="simulators at a time, 2 GB each")
    add("--dagger", default="", metavar="CHECKPOINT", help="this policy acts, the expert labels")


def main(argv: Sequence[str] | None = None) -> int:
    """Collect what is missing and print what was made."""
    parser = argparse.ArgumentParser(prog="heisd ingest", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    if arguments.processes < 1 or arguments.episodes < 1 or arguments.first < 0:
        parser.error("--processes and --episodes must be at least 1, --first at least 0")
    try:
        tasks = tuple(int(task) for task in arguments.tasks.split(","))
    except ValueError:
        parser.error(f"--tasks must be numbers with commas, got {arguments.tasks!r}")
    total = run_shares(make_shares(arguments, tasks))
    sys.stdout.write(
        f"collected {total.solved} solved and {total.failed} failed episodes, "
        f"{total.frames} frames, in {arguments.out}\n"
    )
    return 0


def make_shares(arguments: argparse.Namespace, tasks: tuple[int, ...]) -> list[Share]:
    """Split the episodes over the processes, so that every task grows at the same pace."""
    plan = CollectionPlan(
        suite=arguments.suite,
        seed=arguments.seed,
        image_size=arguments.image_size,
        noise=arguments.noise,
        max_steps=arguments.max_steps,
        policy_name=arguments.dagger,
    )
    numbers = tuple(range(arguments.first, arguments.first + arguments.episodes))
    shares = [numbers[part :: arguments.processes] for part in range(arguments.processes)]
    return [Share(plan, tasks, share, arguments.out) for share in shares if share]


def run_shares(shares: Sequence[Share]) -> CollectionReport:
    """Collect all shares, each in a process of its own if there are several."""
    if len(shares) == 1:
        return collect_share(shares[0])
    # OpenGL contexts do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(shares), mp_context=context) as pool:
        reports = list(pool.map(collect_share, shares))
    return CollectionReport(
        solved=sum(report.solved for report in reports),
        failed=sum(report.failed for report in reports),
        frames=sum(report.frames for report in reports),
    )


def collect_share(share: Share) -> CollectionReport:
    """Collect one share in this process."""
    policy = dagger_policy(share.plan.policy_name) if share.plan.policy_name else None
    return collect(share.plan, share.tasks, share.numbers, share.out, policy=policy)


def dagger_policy(checkpoint: str) -> Policy:
    """Return the policy of a checkpoint, decoded autoregressively on one thread.

    Raises:
        ModelError: If the checkpoint cannot be loaded.
    """
    config = replace(
        HeisdConfig(), model__checkpoint=checkpoint, model__threads=1, decode__method="ar"
    )
    return build_policy(config)
