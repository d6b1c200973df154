"""SIGINT and SIGTERM in every state of a decoder process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

from ros_fakes import wait_until

from bench.reliability.outcome import Outcome, Row, Settings, all_of, milliseconds, none_of
from bench.reliability.world import START_S, Operator, World, need, pause

END_S = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def loading(world: World, robot: Operator) -> None:  # noqa: ARG001
    """A model is being loaded."""
    world.start("decoder_node", load_s=20.0)
    need(wait_until(lambda: "loading" in world.log("decoder_node"), START_S), "loading")


def waiting(world: World, robot: Operator) -> None:
    """Active, without pictures and instruction."""
    world.start("decoder_node")
    robot.wait_for_zero(robot.now())


def moving(world: World, robot: Operator) -> None:
    """In a motion."""
    world.start_all("decoder_node")
    robot.wait_for_motion(robot.order())


def deciding(world: World, robot: Operator) -> None:
    """In a decision that takes ten seconds, the arm still in motion."""
    world.start_all("decoder_node")
    asked = robot.order(block=[3, 10.0])
    robot.wait_telling(lambda: _reports(robot, asked) >= 3, "the long decision")
    pause(0.1)


def dry_run(world: World, robot: Operator) -> None:
    """In a dry run."""
    world.start("decoder_node", "-p", "arming.start:=disarmed")
    world.find_peers()
    asked = robot.order()
    robot.wait_telling(lambda: _reports(robot, asked), "a decision")


def _reports(robot: Operator, since: float) -> int:
    return sum(at > since for at, _, _ in list(robot.reports))


STATES: tuple[Callable[[World, Operator], None], ...] = (
    loading,
    waiting,
    moving,
    deciding,
    dry_run,
)


def signals(settings: Settings) -> Outcome:
    """Bring a fresh process into each state, then end it."""
    runs, durations, codes, traces, unrest = settings.runs(1, 20), [], 0, 0, 0
    total = runs * len(STATES) * len(SIGNALS)
    with World(settings.logs) as world:
        robot = world.operator
        end = robot.stream(10.0)
        for _ in range(runs):
            for reach in STATES:
                for number in SIGNALS:
                    first = len(robot.twists)
                    reach(world, robot)
                    process = world.processes["decoder_node"]
                    durations.append(_end(robot, process, number))
                    pause(0.2)  # what was said last is still on its way
                    codes += process.returncode == 0
                    traces += "Traceback" in world.log("decoder_node")
                    unrest += len(robot.twists) > first and robot.last_speed() > 0.0
        end()
    return Outcome(
        f"{total} x",
        (
            all_of("exit code 0", codes, total),
            none_of("with a traceback", traces),
            none_of("whose last command was not zero", unrest),
            *milliseconds("signal to end", durations, END_S),
        ),
        f"{len(SIGNALS)} signals in {len(STATES)} states: "
        + ", ".join(reach.__name__.replace("_", " ") for reach in STATES)
        + ".",
    )


def _end(robot: Operator, process: subprocess.Popen[bytes], number: signal.Signals) -> float:
    sent = robot.now()
    process.send_signal(number)
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return robot.now() - sent


ROWS = (
    Row(
        "signals",
        "SIGINT and SIGTERM in five states of the decoder",
        "exit code 0, no traceback, last command zero, within 2 s",
        signals,
    ),
)
