"""How much later commands come when other programs keep every core busy."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
from ros_fakes import wait_until

from bench.reliability.outcome import Figure, Outcome, Row, Settings, none_of
from bench.reliability.world import Operator, World, pause
from heisd_ros.nodes.conversions import to_ns

HZ = 10.0
RATIO = 2.0
SETTLE_S = 1.0
LOST_S = 2.0
"""A picture without a command after this time is counted as lost."""


def busy_cores(settings: Settings) -> Outcome:
    """Show pictures on a quiet machine, then beside one spinning process per core."""
    runs = settings.runs(60, 1000)
    with World(settings.logs, cameras=True, size=(480, 640)) as world:
        robot = world.operator
        world.start_all("perception_node", "decoder_node")
        robot.order()
        robot.publish_picture()
        end = robot.stream(HZ)
        robot.wait_for_motion(0.0)
        end()
        idle, lost = _latencies(robot, runs)
        spinners = _spinners()
        try:
            pause(SETTLE_S)
            busy, lost_busy = _latencies(robot, runs)
        finally:
            for process in spinners:
                process.kill()
                process.wait()
        deaths = world.deaths()
    p50, p99 = (_percentile_ms(idle, q) for q in (50, 99))
    busy_p50, busy_p99 = (_percentile_ms(busy, q) for q in (50, 99))
    return Outcome(
        f"{runs} pictures each",
        (
            Figure("idle, p50", p50, "ms"),
            Figure("idle, p99", p99, "ms"),
            Figure("all cores busy, p50", busy_p50, "ms"),
            Figure("all cores busy, p99", busy_p99, "ms"),
            Figure("p99 busy to idle", busy_p99 / p99, "times", high=RATIO),
            Figure("pictures without a command, idle", lost),
            Figure("pictures without a command, busy", lost_busy),
            none_of("processes that ended", deaths),
        ),
        f"Picture out to command in at the observer, which shares the cores; two pictures of "
        f"640x480, the model is a script; {len(spinners)} spinning processes of equal priority.",
    )


def _latencies(robot: Operator, runs: int) -> tuple[list[float], int]:
    """Show pictures one by one; return seconds to the command of each, and how many had none."""
    found, lost = [], 0
    for _ in range(runs):
        stamp_ns = robot.time_ns()
        robot.publish_picture(stamp_ns)
        shown = robot.shown
        if wait_until(lambda ns=stamp_ns: arrival(robot, ns) is not None, LOST_S):
            at = arrival(robot, stamp_ns)
            assert at is not None
            found.append(at - shown)
        else:
            lost += 1
        pause(max(0.0, shown + 1.0 / HZ - robot.now()))
    return found, lost


def arrival(robot: Operator, image_ns: int) -> float | None:
    """Return when the command decided from the picture of this stamp arrived; None if not yet."""
    sent = {
        to_ns(m.header.stamp) for _, _, m in robot.reports[-20:] if to_ns(m.image_stamp) == image_ns
    }
    times = [at for at, _, m in robot.twists[-200:] if to_ns(m.header.stamp) in sent]
    return min(times, default=None)


def _percentile_ms(seconds: list[float], q: float) -> float:
    return 1e3 * float(np.percentile(seconds, q)) if seconds else float("nan")


def _spinners() -> list[subprocess.Popen[bytes]]:
    spin = [sys.executable, "-c", "while True: pass"]
    return [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]


ROWS = (
    Row(
        "busy_cores",
        "Decisions while other programs keep every core busy",
        "p99 from picture to command at most twice the idle one",
        busy_cores,
    ),
)
