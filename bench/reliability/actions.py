"""Random actions, many of them impossible: what a consumer of the commands receives."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
from geometry_msgs.msg import TwistStamped
from ros_fakes import wait_until

from bench.reliability.outcome import Figure, Outcome, Row, Settings, none_of
from bench.reliability.world import AGAIN_S, PATIENCE_S, Operator, World, need
from heisd_ros.config import CommandConfig
from heisd_ros.nodes.conversions import to_ns

LIMITS = CommandConfig()
LINEAR_STEP, ANGULAR_STEP = 0.1, 0.3
SILENCE_S = 0.1
"""Longer than this without a command, and the arm's controller has stopped by itself."""
SLACK = 1.0 + 1e-9
HURRY = 100.0
"""`command.rate_margin`: decisions here come as fast as they can."""


def fuzz(settings: Settings) -> Outcome:
    """Let the model decide odd actions."""
    return watch(settings.logs, settings.runs(300, 10_000))


def watch(logs: Path, wanted: int) -> Outcome:
    """Let the model decide so many odd actions and look at every command on the wire."""
    with World(
        logs,
        command__max_linear_step=LINEAR_STEP,
        command__max_angular_step=ANGULAR_STEP,
        command__rate_margin=HURRY,
    ) as world:
        robot = world.operator
        world.start_all("decoder_node")
        robot.order(fuzz=7)
        while len(robot.reports) < wanted:
            _show_until_decided(robot)
        deaths = world.deaths()
        twists = [message for _, _, message in list(robot.twists)]
        early = sum(at_ns < to_ns(m.header.stamp) for _, at_ns, m in robot.twists)
        reports = [message for _, _, message in robot.reports[:wanted]]
    by_stamp = {to_ns(m.header.stamp): m for m in twists}
    other = sum(_differs(report, by_stamp) for report in reports)
    jumps, after_silence = _jumps(twists)
    refused = [report for report in reports if report.reason]
    return Outcome(
        f"{wanted} actions, {len(twists)} commands",
        (
            none_of("commands with a number that is not finite", sum(map(_odd, twists))),
            none_of("above the limits", sum(map(_fast, twists))),
            none_of("with a larger change than allowed", jumps),
            Figure(f"such changes after a silence of {SILENCE_S} s", after_silence),
            none_of("in another frame", sum(m.header.frame_id != LIMITS.frame_id for m in twists)),
            none_of("with a stamp of the future", early),
            none_of("other than decided, where the guard changed nothing", other),
            none_of("processes that ended", deaths),
            Figure("decisions refused, each with a reason", len(refused)),
        ),
        "A stop to zero may be a larger change.",
    )


def _show_until_decided(robot: Operator) -> None:
    """Show one picture, and again if it was lost: a node that was not found yet misses it."""
    seen = len(robot.reports)
    for _ in range(round(PATIENCE_S / AGAIN_S)):
        robot.publish_picture()
        if wait_until(lambda: len(robot.reports) > seen, AGAIN_S):
            return
        robot.say_again()
    need(happened=False, what="a decision")


def _numbers(message: TwistStamped) -> tuple[np.ndarray, np.ndarray]:
    linear, angular = message.twist.linear, message.twist.angular
    return (
        np.array([linear.x, linear.y, linear.z]),
        np.array([angular.x, angular.y, angular.z]),
    )


def _odd(message: TwistStamped) -> bool:
    return not np.isfinite(np.concatenate(_numbers(message))).all()


def _fast(message: TwistStamped) -> bool:
    linear, angular = (math.hypot(*part) for part in _numbers(message))
    return linear > LIMITS.max_linear * SLACK or angular > LIMITS.max_angular * SLACK


def _jumps(messages: list[TwistStamped]) -> tuple[int, int]:
    """Return larger changes than allowed: between commands in time, and after a silence.

    The guard takes the arm for standing once a decision has outlived its lifetime.
    """
    counts = [0, 0]
    for before, after in pairwise(messages):
        old, new = _numbers(before), _numbers(after)
        steps = [math.hypot(*(b - a)) for a, b in zip(old, new, strict=True)]
        moves = np.concatenate(new).any()
        if moves and (steps[0] > LINEAR_STEP * SLACK or steps[1] > ANGULAR_STEP * SLACK):
            silence_ns = to_ns(after.header.stamp) - to_ns(before.header.stamp)
            counts[silence_ns > SILENCE_S * 1e9] += 1
    return counts[0], counts[1]


def _differs(report, by_stamp: dict[int, TwistStamped]) -> bool:
    """Whether a decision that passed as it was arrived with other numbers, or not at all."""
    if report.guard or report.reason or not report.decided:
        return False
    twist = by_stamp.get(to_ns(report.header.stamp))
    if twist is None:
        return True
    wanted = np.array(report.action[:6]) * LIMITS.control_hz
    return not np.allclose(np.concatenate(_numbers(twist)), wanted, rtol=1e-12, atol=0.0)


ROWS = (
    Row(
        "action_fuzz",
        "Random actions with NaN, infinities, huge and tiny numbers, wrong lengths",
        "no unsafe command: finite, within norm and change limits, right frame, as decided",
        fuzz,
    ),
)
