"""`heisd train-vla`: train the small VLA on collected demonstrations and export it."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.models.training import TrainingOptions
from heisd_ros.models.training_run import train_small_vla, training_folder

DEFAULTS = TrainingOptions()


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="heisd train-vla", description=__doc__)
    add = parser.add_argument
    add("--demos", type=Path, nargs="+", required=True, help="folders of heisd ingest's episodes")
    add("--out", type=Path, required=True, help="folder of the export, e.g. weights/small_vla")
    add("--minutes", type=float, default=DEFAULTS.minutes, help="wall time (default %(default)s)")
    add("--steps", type=int, default=0, help="optimiser steps instead of a wall time")
    add("--batch", type=int, default=DEFAULTS.batch, help="samples per step (default %(default)s)")
    add("--workers", type=int, default=DEFAULTS.workers, help="processes (default %(default)s)")
    add("--rate", type=float, default=DEFAULTS.rate, help="peak learning rate [-]")
    add("--seed", type=int, default=DEFAULTS.seed, help="seed of weights and draws")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--resume", action="store_true", help="continue an interrupted run")
    start.add_argument("--init", type=Path, help="export of another run to start from")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb."""
    arguments = make_parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    options = TrainingOptions(
        minutes=arguments.minutes,
        steps=arguments.steps,
        batch=arguments.batch,
        workers=arguments.workers,
        rate=arguments.rate,
        seed=arguments.seed,
    )
    log = train_small_vla(
        arguments.demos, arguments.out, options, resume=arguments.resume, init=arguments.init
    )
    short = {name: log[name] for name in ("steps", "seconds", "samples_per_second", "final")}
    sys.stdout.write(json.dumps(short) + "\n")
    sys.stdout.write(f"exported {arguments.out}; state in {training_folder(arguments.out)}\n")
    return 0
