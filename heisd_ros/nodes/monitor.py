"""`heisd monitor`: a live view of a running robot in the terminal. Publishes nothing."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.config import HeisdConfig, make_config, read_values
from heisd_ros.diagnosis.live import LiveState
from heisd_ros.errors import MissingDependencyError
from heisd_ros.nodes.doctor import split_arguments

REFRESH_HZ = 4.0


def main(argv: Sequence[str]) -> int:
    """Show the view until Ctrl-C, or for a number of seconds.

    Raises:
        MissingDependencyError: If rich or rclpy is not installed.
    """
    own, ros = split_arguments(argv)
    options = _parser().parse_args(own)
    values: dict[str, object] = {}
    for file in options.params:
        values.update(read_values(file))
    try:
        show(make_config(values), ros, options.seconds)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    return 0


def show(config: HeisdConfig, ros: Sequence[str], seconds: float) -> None:
    """Listen and draw.

    Args:
        config: Its boundary on F is drawn.
        ros: Command line from `--ros-args` on: remappings and namespace.
        seconds: How long; 0: without end.
    """
    from heisd_ros.diagnosis.live_view import view  # says how to install rich

    try:
        from heisd_ros.nodes.live_node import listening
    except ImportError as error:
        raise MissingDependencyError(
            f"the live view listens to ROS topics: {error}; install ROS 2, or "
            "pip install 'heisd_ros[jazzy]'"
        ) from error
    from rich.live import Live

    state = LiveState(config.trajectory.threshold)
    with (
        listening(state, ros) as spin,
        Live(screen=sys.stdout.isatty(), auto_refresh=False) as live,
    ):
        end = time.monotonic() + seconds if seconds else float("inf")
        while time.monotonic() < end:
            spin(1.0 / REFRESH_HZ)
            live.update(view(state, time.monotonic_ns()), refresh=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heisd monitor", description=__doc__)
    add = parser.add_argument
    add("--params", type=Path, action="append", default=[], help="YAML file; may be repeated")
    add("--seconds", type=float, default=0.0, help="end after this time [no end]")
    return parser
