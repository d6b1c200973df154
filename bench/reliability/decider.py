"""Slow, blocked and failing models, stops and new tasks: what a decoder process sends meanwhile."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from heisd_ros.msg import DecodeReport
from ros.robot import speed_of
from ros_fakes import wait_until

from bench.reliability.outcome import (
    Figure,
    Outcome,
    Row,
    Settings,
    all_of,
    milliseconds,
    none_of,
)
from bench.reliability.world import LIFETIME_S, PATIENCE_S, Operator, World, need, pause
from heisd_ros.nodes.conversions import to_ns

Record = tuple[float, int, DecodeReport]

HZ = 20.0
PERIOD_S = 0.02
STOP_S = 0.05
INFERENCE_S = 0.2


def blocked(settings: Settings) -> Outcome:
    """One decision in between takes a second."""
    runs, stops, late = settings.runs(5, 50), [], 0
    with World(settings.logs) as world:
        robot = world.operator
        world.start_all("decoder_node")
        end = robot.stream(HZ)
        for run in range(runs):
            asked = robot.order(block=[8, 1.0], run=run)
            robot.wait_for_motion(asked)
            count = len(robot.reports)
            need(wait_until(lambda n=count: len(robot.reports) > n, PATIENCE_S), "a decision")
            moved = robot.moving(asked)[0]
            need(
                wait_until(lambda t=moved: _reason_since(robot, t, "late_result"), PATIENCE_S),
                "the end of the long decision",
            )
            good = [e for e in robot.reports if e[0] > asked and e[2].decided and not e[2].reason]
            last, fresh = max(pairwise([*good, robot.reports[-1]]), key=_distance)
            zero = robot.zeros(last[0])[0]
            stops.append(zero - last[0])
            late += _moved_between(robot, zero, to_ns(fresh[2].header.stamp))
        end()
        deaths = world.deaths()
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("last decision to first zero", stops, LIFETIME_S + STOP_S),
            none_of("commands that moved before a fresh decision", late),
            none_of("processes that ended", deaths),
        ),
        f"A decision lives {LIFETIME_S} s; the late one is refused because of its old picture.",
    )


def _reason_since(robot: Operator, since: float, reason: str) -> bool:
    return any(at > since and m.reason == reason for at, _, m in list(robot.reports))


def _distance(pair: tuple[Record, Record]) -> float:
    """Return the time between two reports."""
    return pair[1][0] - pair[0][0]


def _moved_between(robot: Operator, zero: float, fresh_ns: int) -> int:
    """Count motion after a zero that is older than a decision: its own twist comes before it."""
    return sum(
        at > zero and speed_of(m) > 0.0 and to_ns(m.header.stamp) < fresh_ns
        for at, _, m in robot.twists
    )


def timing(settings: Settings) -> Outcome:
    """Commands on the wire while every decision takes 200 ms."""
    seconds = settings.runs(10, 120)
    with World(settings.logs) as world:
        robot = world.operator
        world.start_all("decoder_node")
        robot.order(delay_s=INFERENCE_S)
        end = robot.stream(HZ)
        start = robot.wait_for_motion(0.0)
        pause(seconds)
        end()
        decisions = {to_ns(m.header.stamp) for _, _, m in robot.reports}
        # A decision is sent at once, between two commands of the fixed rate: left out here.
        times = [
            at
            for at, _, m in robot.twists
            if start <= at <= start + seconds and to_ns(m.header.stamp) not in decisions
        ]
        ages = [(at_ns - to_ns(m.header.stamp)) * 1e-9 for _, at_ns, m in robot.twists]
    ms = 1e3 * np.diff(times)
    return Outcome(
        f"{len(ms)} commands",
        (
            Figure("p50", float(np.percentile(ms, 50)), "ms", low=19.0, high=21.0),
            Figure("p99", float(np.percentile(ms, 99)), "ms", high=30.0),
            Figure("worst", float(ms.max()), "ms", high=60.0),
            Figure("oldest stamp on arrival", 1e3 * max(ages), "ms", high=1e3 * STOP_S),
            none_of("stamps of the future", sum(age < 0 for age in ages)),
        ),
        f"Period at the consumer of 50 commands per second; a decision takes {INFERENCE_S} s.",
    )


def failing(settings: Settings) -> Outcome:
    """Decisions that raise, single ones and then three in a row."""
    wanted = settings.runs(10, 100)
    with World(settings.logs) as world:
        robot = world.operator
        world.start_all("decoder_node")
        robot.order(fail=4)
        end = robot.stream(HZ)
        need(wait_until(lambda: len(_failed(robot)) > wanted, 10 * PATIENCE_S), "failures")
        failed = _failed(robot)[:wanted]
        zero_stamps = {to_ns(m.header.stamp) for _, _, m in robot.twists if speed_of(m) == 0.0}
        at_once = sum(to_ns(m.header.stamp) in zero_stamps for _, m in failed)
        after = [_next_report(robot, m.sequence) for _, m in failed]
        resumed = sum(report.decided for report in after)
        robot.order(fail=1)
        told = wait_until(lambda: "too_many_failures" in robot.diagnosis("decisions"), PATIENCE_S)
        end()
        at_rest = robot.last_speed() == 0.0
        inactive = robot.state("decoder_node") == "inactive"
        deaths = world.deaths()
    return Outcome(
        f"{wanted} x",
        (
            all_of("failed decisions with a zero command of the same stamp", at_once, wanted),
            all_of("decided again in the next step", resumed, wanted),
            all_of("inactive after three in a row, told and at rest", told + inactive + at_rest, 3),
            none_of("processes that ended", deaths),
        ),
    )


def _failed(robot: Operator) -> list[tuple[float, DecodeReport]]:
    return [(at, m) for at, _, m in list(robot.reports) if m.reason == "decoder_failed"]


def _next_report(robot: Operator, sequence: int) -> DecodeReport:
    return next(m for _, _, m in robot.reports if m.sequence == sequence + 1)


def stop_service(settings: Settings) -> Outcome:
    """The stop service, called during decisions of 200 ms."""
    return _stops(settings, _call_stop, _call_start)


def estop_topic(settings: Settings) -> Outcome:
    """The emergency stop topic, during decisions of 200 ms."""
    return _stops(settings, lambda robot: robot.press(True), _release)


def _call_stop(robot: Operator) -> float:
    robot.client("decoder_node/stop")  # its discovery is not part of the time
    at = robot.now()
    robot.ask("decoder_node/stop")
    return at


def _call_start(robot: Operator) -> None:
    robot.ask("decoder_node/start")


def _release(robot: Operator) -> None:
    robot.press(False)
    need(wait_until(lambda: robot.ask("decoder_node/arm").success, PATIENCE_S), "arming")


def _stops(settings: Settings, stop, start) -> Outcome:
    runs, zeros, ends, back = settings.runs(10, 100), [], [], 0
    with World(settings.logs) as world:
        robot = world.operator
        world.start_all("decoder_node")
        robot.order(delay_s=INFERENCE_S)
        end = robot.stream(HZ)
        for run in range(runs):
            robot.wait_for_motion(robot.now())
            pause(0.05 + 0.2 * (run % 10) / 10)  # at another moment of the decision each time
            since = stop(robot)
            zero = robot.wait_for_zero(since)
            zeros.append(zero - since)
            pause(2 * INFERENCE_S)
            back += len(robot.moving(zero))
            ends.append(max([*robot.moving(since), since]) - since)
            start(robot)
        end()
        deaths = world.deaths()
    late = sum(seconds > STOP_S for seconds in ends)
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("request to first zero", zeros, None),
            *milliseconds("request to last motion", ends, None),
            none_of("stops after which something moved later than 50 ms", late),
            none_of("commands that moved after the first zero", back),
            none_of("processes that ended", deaths),
        ),
    )


def new_instruction(settings: Settings) -> Outcome:
    """Two tasks in turn, one moves along x, the other along y."""
    runs, ends, moved_late, mixed = settings.runs(10, 100), [], 0, 0
    with World(settings.logs) as world:
        robot = world.operator
        world.start_all("decoder_node")
        end = robot.stream(HZ)
        for run in range(runs):
            move = [0.0] * 6 + [1.0]
            move[run % 2] = 0.01
            asked = robot.order(move=move, delay_s=0.1, run=run)
            need(wait_until(lambda t=asked, a=run % 2: _along(robot, t, a), PATIENCE_S), "motion")
            pause(0.3)
            if run:
                old = _along(robot, asked, 1 - run % 2)
                ends.append(max([*old, asked]) - asked)
                moved_late += sum(at > asked + STOP_S for at in old)
                mixed += sum(at > _along(robot, asked, run % 2)[0] for at in old)
        end()
        old_reports = sum("old_instruction" in m.guard for _, _, m in robot.reports)
    return Outcome(
        f"{runs} x",
        (
            *milliseconds("new task to last motion of the old one", ends, None),
            none_of("commands for the old task later than 50 ms", moved_late),
            none_of("commands for the old task after one for the new", mixed),
            Figure("decisions refused because their task was over", old_reports),
        ),
    )


def _along(robot: Operator, since: float, axis: int) -> list[float]:
    """Return when twists along x (0) or y (1) came."""
    return [
        at
        for at, _, m in list(robot.twists)
        if at >= since and (m.twist.linear.x, m.twist.linear.y)[axis] != 0.0
    ]


ROWS = (
    Row(
        "blocked_model",
        "A decision that takes a second",
        "zero within the lifetime of a command + 50 ms; the late decision does not move",
        blocked,
    ),
    Row(
        "command_timing",
        "Commands at 50 Hz while decisions take 200 ms",
        "period p50 20 ± 1 ms, p99 30 ms, worst 60 ms; stamps fresh",
        timing,
    ),
    Row(
        "failing_model",
        "Decisions that raise",
        "zero at once, next step decides again; three in a row: inactive, told, alive",
        failing,
    ),
    Row(
        "stop_service",
        "Stop service while decisions take 200 ms",
        "nothing moves later than 50 ms after the request",
        stop_service,
    ),
    Row(
        "estop",
        "Emergency stop topic while decisions take 200 ms",
        "nothing moves later than 50 ms after it",
        estop_topic,
    ),
    Row(
        "new_task",
        "Another instruction during the motion",
        "nothing decided for the old one later than 50 ms",
        new_instruction,
    ),
)
