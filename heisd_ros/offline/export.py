"""`heisd export`: episodes as a LeRobot v3 data set."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from heisd_ros.demonstrations.episode import load_episode
from heisd_ros.demonstrations.lerobot_writer import PICTURES, LerobotWriter
from heisd_ros.errors import DataError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("--demos", type=Path, required=True, help="folder of episodes (.npz), from heisd ingest")
    add("--out", type=Path, required=True, help="new folder of the data set")
    add("--pictures", choices=PICTURES, default="video", help="H.264, or exact PNG in the tables")
    add("--failed", action="store_true", help="also export episodes that were not solved")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the data set and print what is in it."""
    parser = argparse.ArgumentParser(prog="heisd export", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    paths = sorted(arguments.demos.rglob("*.npz"))
    if not paths:
        raise DataError(f"no episode (.npz) below {arguments.demos}; make some: heisd ingest")
    written = left_out = steps = 0
    with LerobotWriter(arguments.out, pictures=arguments.pictures) as writer:
        for path in tqdm(paths, unit="episode", disable=None):
            episode = load_episode(path, privileged=False)
            if not (episode.success or arguments.failed):
                left_out += 1
                continue
            writer.add_episode(episode)
            written += 1
            steps += len(episode)
        folder = writer.finish()
    sys.stdout.write(
        f"wrote {written} episodes, {steps} steps to {folder}; left out {left_out} failed ones\n"
        f"read it back: heisd ingest --source lerobot {folder} --preset heisd --out DIR\n"
    )
    return 0
