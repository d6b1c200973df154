"""From the start of a process to its first command, with the small model that is shipped."""

from __future__ import annotations

import subprocess
import sys
import time

from ros_fakes import wait_until

from bench.reliability.outcome import Figure, Outcome, Row, Settings, all_of
from bench.reliability.world import START_S, World, need

FIRST_S, REFUSAL_S = 3.0, 5.0
BOOT = "from heisd_ros.nodes.{name} import main; raise SystemExit(main())"


def first_command(settings: Settings) -> Outcome:
    """Start the composed node with cameras and an instruction waiting for it."""
    runs, times = settings.runs(1, 10), []
    for _ in range(runs):
        with World(settings.logs, cameras=True, size=(224, 224), model__threads=1) as world:
            robot = world.operator
            started = time.monotonic()
            world.run("heisd_node", _command(world, "heisd_node"))
            end = robot.stream(10.0)
            try:
                need(wait_until(lambda r=robot: r.twists, 2 * START_S), "a first command")
            finally:
                end()
            times.append(robot.twists[0][0] - started)
    return Outcome(
        f"{runs} x",
        (Figure("start to first command, worst", max(times), "s", high=FIRST_S),),
        "The first command is a zero: nothing moves without an instruction.",
    )


def missing_model(settings: Settings) -> Outcome:
    """Start with a checkpoint that is not there."""
    runs, times, right = settings.runs(1, 10), [], 0
    with World(settings.logs, model__checkpoint="/nowhere", ros__on_failed_start="exit") as world:
        for _ in range(runs):
            started = time.monotonic()
            process = world.run("heisd_node", _command(world, "heisd_node"))
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
            times.append(time.monotonic() - started)
            log = world.log("heisd_node")
            told = "no checkpoint folder at /nowhere" in log and "Traceback" not in log
            right += process.returncode == 2 and told
    return Outcome(
        f"{runs} x",
        (
            all_of("ended with code 2 and the path in one sentence", right, runs),
            Figure("start to end, worst", max(times), "s", high=REFUSAL_S),
        ),
    )


def _command(world: World, name: str) -> list[str]:
    boot = [sys.executable, "-c", BOOT.format(name=name), "--ros-args"]
    return [*boot, "--params-file", str(world.parameters)]


ROWS = (
    Row("first_command", "Start to first command", "3 s with the small model", first_command),
    Row("missing_model", "Start without the model", "a clear end within 5 s", missing_model),
)
