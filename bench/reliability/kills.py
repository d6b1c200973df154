"""Processes that are killed without warning, and what comes after a restart."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from bench.reliability.outcome import Figure, Outcome, Row, Settings, milliseconds, none_of
from bench.reliability.world import LIFETIME_S, World, pause

HZ = 10.0
RESTART_S = 5.0


def decoder(settings: Settings) -> Outcome:
    """Kill the decoder in the middle of a motion."""
    return kill_decoder(settings.logs, settings.runs(3, 50))


def kill_decoder(logs: Path, runs: int) -> Outcome:
    """Kill and restart it so many times."""
    lasts, restarts, moved = [], [], 0
    with World(logs) as world:
        robot = world.operator
        world.start_all("decoder_node")
        end = robot.stream(HZ)
        for run in range(runs):
            asked = robot.order(run=run)
            robot.wait_for_motion(asked)
            pause(0.3)
            killed = world.kill("decoder_node")
            pause(1.0)
            lasts.append(max([*robot.moving(killed), killed]) - killed)
            started = robot.now()
            world.start("decoder_node")
            restarts.append(robot.wait_for_zero(started) - started)
            world.find_peers()
            pause(1.0)  # pictures come, the old task is not known any more
            moved += len(robot.moving(killed + 1.0))
        end()
    late = sum(seconds > LIFETIME_S for seconds in lasts)
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("kill to last motion", lasts, None),
            none_of("kills with motion later than the lifetime", late),
            none_of("commands that moved after the restart without an instruction", moved),
            Figure("start to first command, worst", max(restarts), "s", high=RESTART_S),
        ),
        "A killed decoder is silent: the arm's controller must stop by its own time-out "
        "(MoveIt Servo: 0.1 s), or the Servo adapter says zeros.",
    )


def perception(settings: Settings) -> Outcome:
    """Kill the perception node in the middle of a motion."""
    runs, stops, resumes, moved = settings.runs(3, 50), [], [], 0
    with World(settings.logs, cameras=True) as world:
        robot = world.operator
        world.start_all("perception_node", "decoder_node")
        robot.order()
        end = robot.stream(HZ)
        for _ in range(runs):
            robot.wait_for_motion(robot.now())
            pause(0.3)
            killed = world.kill("perception_node")
            zero = robot.wait_for_zero(killed)
            stops.append(zero - killed)
            pause(0.6)
            moved += len(robot.moving(zero))
            started = robot.now()
            world.start("perception_node")
            resumes.append(robot.wait_for_motion(started) - started)
        end()
        decoder_died = int(world.processes["decoder_node"].poll() is not None)
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("kill to first zero", stops, LIFETIME_S + 0.05),
            none_of("commands that moved after it", moved),
            Figure("restart to motion, worst", max(resumes), "s", high=RESTART_S),
            none_of("decoders that ended with it", decoder_died),
        ),
        "Ended by the decoder: a decision outlives its lifetime.",
    )


def trajectory(settings: Settings) -> Outcome:
    """Kill the trajectory node: the decoder goes on without its metric."""
    runs, gaps = settings.runs(3, 50), []
    with World(settings.logs, cameras=True) as world:
        robot = world.operator
        world.start_all("perception_node", "trajectory_node", "decoder_node")
        robot.order()
        end = robot.stream(HZ)
        for _ in range(runs):
            robot.wait_for_motion(robot.now())
            pause(1.0)
            killed = world.kill("trajectory_node")
            pause(1.0)
            times = [at for at, _, _ in robot.twists if at >= killed]
            gaps.append(max(b - a for a, b in pairwise(times)))
            robot.wait_for_motion(robot.now())
            world.start("trajectory_node")
            pause(2.0)
        end()
        others = sum(world.processes[n].poll() is not None for n in ("decoder_node",))
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("longest gap between commands in the second after", gaps, 0.06),
            none_of("decoders that ended with it", others),
        ),
        "The decoder waits up to 50 ms for the metric at each decision, then decides without it.",
    )


ROWS = (
    Row(
        "kill_decoder",
        "Decoder killed in a motion",
        "no motion later than the lifetime of a command; restarted within 5 s and at rest until "
        "told again",
        decoder,
    ),
    Row(
        "kill_perception",
        "Perception killed in a motion",
        "zero within the lifetime + 50 ms; motion within 5 s of the restart",
        perception,
    ),
    Row(
        "kill_trajectory",
        "Trajectory node killed in a motion",
        "commands and decisions go on",
        trajectory,
    ),
)
