import threading

import numpy as np
import pytest

pytest.importorskip("rclpy")

from heisd_ros.msg import DecodeReport

from heisd_ros.config import CommandConfig
from heisd_ros.nodes.conversions import command_to_gripper, command_to_twist, to_stamp
from heisd_ros.nodes.lockstep import CommandMatcher, EpisodeClock
from heisd_ros.nodes.records import EPISODE_END
from heisd_ros.types import EndEffectorCommand


def report(image_ns, stamp_ns, reason=""):
    message = DecodeReport(reason=reason)
    message.image_stamp, message.header.stamp = to_stamp(image_ns), to_stamp(stamp_ns)
    return message


def offer_command(matcher, stamp_ns, x):
    command = EndEffectorCommand(np.array([x, 0.0, 0.0]), np.zeros(3), 1.0, "base", stamp_ns)
    matcher.offer_twist(command_to_twist(command))
    matcher.offer_gripper(command_to_gripper(command, CommandConfig()))


def test_the_command_is_the_one_stamped_like_the_report_whatever_came_before_and_after():
    matcher = CommandMatcher()
    offer_command(matcher, 1000, 0.1)  # still the last decision
    matcher.offer_report(report(500, 1001))
    offer_command(matcher, 1002, 0.3)  # a repetition, overtaking
    assert matcher.wait_for_answer(500, 0.0) is None
    offer_command(matcher, 1001, 0.2)
    assert matcher.wait_for_answer(500, 0.0).command.linear[0] == 0.2


def test_waiting_ends_when_the_last_part_arrives():
    matcher = CommandMatcher()
    offer_command(matcher, 1001, 0.2)
    threading.Timer(0.05, lambda: matcher.offer_report(report(500, 1001))).start()
    assert matcher.wait_for_answer(500, 10.0) is not None


def test_an_arm_ignores_commands_that_are_too_old():
    matcher = CommandMatcher()
    assert matcher.newest(0, 10) is None
    offer_command(matcher, 1000, 0.2)
    assert matcher.newest(1010, 10).linear[0] == 0.2
    assert matcher.newest(1011, 10) is None


def test_reports_are_drained_once_and_acknowledgements_left_out():
    matcher = CommandMatcher()
    matcher.offer_report(report(1, 2))
    matcher.offer_report(report(3, 4, EPISODE_END))
    assert len(matcher.drain_reports()) == 1
    assert matcher.drain_reports() == ()
    assert matcher.wait_for_report(3, 0.0).reason == EPISODE_END


def test_simulated_time_never_goes_back_and_pauses_between_episodes():
    clock = EpisodeClock(20.0)
    start = clock.now_ns
    assert start == 1_000_000_000
    clock.tick()
    assert clock.now_ns - start == 50_000_000
    clock.next_episode()
    assert clock.now_ns - start == 60_050_000_000
