"""`heisd train-drafter`: train the draft head of a checkpoint on its own greedy decoding."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.build import build_target
from heisd_ros.config import load_config
from heisd_ros.models.drafter_features import collect_features
from heisd_ros.models.drafter_training import DrafterOptions, train_drafter, training_folder
from heisd_ros.perception.prepare import PreparingEncoder

DEFAULTS = DrafterOptions()


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="heisd train-drafter", description=__doc__)
    add = parser.add_argument
    add("--checkpoint", default="", help="folder of the target; default: the shipped one")
    add("--demos", type=Path, required=True, help="folder of heisd ingest's episodes")
    add("--out", type=Path, required=True, help="folder of the head, e.g. weights/small_drafter")
    add("--config", type=Path, help="configuration that will be served (YAML)")
    add("--minutes", type=float, default=DEFAULTS.minutes, help="wall time (default %(default)s)")
    add("--steps", type=int, default=0, help="optimiser steps instead of a wall time")
    add("--batch", type=int, default=DEFAULTS.batch, help="samples per step (default %(default)s)")
    add("--rate", type=float, default=DEFAULTS.rate, help="peak learning rate; 5e-5 for a 7B [-]")
    add("--token-weight", type=float, default=DEFAULTS.token_weight, help="weight of the tokens")
    add("--every", type=int, default=4, help="use every so many steps (default %(default)s)")
    add("--threads", type=int, default=0, help="torch threads; 0: torch's choice")
    add("--seed", type=int, default=DEFAULTS.seed, help="seed of weights and draws")
    add("--resume", action="store_true", help="continue an interrupted run")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.every < 1 or arguments.batch < 1:
        parser.error("--every and --batch must be at least 1")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    # A stored picture is upright already: the rotation is for live cameras.
    overrides: dict[str, object] = {"model.threads": arguments.threads}
    if arguments.checkpoint:
        overrides["model.checkpoint"] = arguments.checkpoint
    config = load_config(arguments.config, overrides)
    target = build_target(config)
    files = collect_features(
        target,
        PreparingEncoder(target, 0, config.perception.crop_area),
        arguments.demos,
        training_folder(arguments.out) / f"features_{target.info.fingerprint}",
        cameras=config.perception.cameras[: target.info.views],
        every=arguments.every,
    )
    options = DrafterOptions(
        minutes=arguments.minutes,
        steps=arguments.steps,
        batch=arguments.batch,
        rate=arguments.rate,
        token_weight=arguments.token_weight,
        seed=arguments.seed,
    )
    log = train_drafter(target, files, arguments.out, options, resume=arguments.resume)
    last = log["history"][-1] if log["history"] else {}
    sys.stdout.write(json.dumps({"steps": log["steps"], "seconds": log["seconds"], **last}) + "\n")
    sys.stdout.write(f"wrote {arguments.out}; state in {training_folder(arguments.out)}\n")
    return 0
