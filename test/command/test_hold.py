import dataclasses
import threading

import numpy as np
import pytest

from heisd_ros.command import CommandHold, to_command
from heisd_ros.errors import ConfigError, DataError

MS = 1_000_000
COMMAND = to_command([0.01, 0, 0, 0, 0, 0.02, 0.0], 5.0, "world", stamp_ns=1, instruction="lift")


def moves(command):
    return bool(command.linear.any() or command.angular.any())


def test_an_empty_hold_sends_zero_with_the_starting_gripper():
    hold = CommandHold(300 * MS, frame_id="base", gripper=0.5)
    sent = hold.at(5)
    assert not moves(sent)
    assert (sent.gripper, sent.frame_id, sent.stamp_ns) == (0.5, "base", 5)
    assert hold.reason == "empty"


def test_a_command_is_repeated_with_a_fresh_stamp_until_its_life_ends():
    hold = CommandHold(300 * MS)
    hold.put(COMMAND, 1000 * MS)
    for age in (0, 20, 299, 300):
        sent = hold.at((1000 + age) * MS)
        assert moves(sent)
        assert sent.stamp_ns == (1000 + age) * MS
        assert sent.instruction == "lift"
    assert hold.reason == ""


def test_a_stale_command_becomes_zero_and_keeps_gripper_and_frame():
    hold = CommandHold(300 * MS, gripper=1.0)
    hold.put(COMMAND, 1000 * MS)
    sent = hold.at(1300 * MS + 1)
    assert not moves(sent)
    assert (sent.gripper, sent.frame_id) == (0.0, "world")
    assert hold.reason == "stale"


def test_a_stale_command_never_comes_back():
    hold = CommandHold(300 * MS)
    hold.put(COMMAND, 1000 * MS)
    hold.at(2000 * MS)
    assert not moves(hold.at(1100 * MS))


def test_a_clock_that_goes_back_stops_the_arm():
    hold = CommandHold(300 * MS)
    hold.put(COMMAND, 1000 * MS)
    assert not moves(hold.at(999 * MS))
    assert hold.reason == "clock_back"


def test_a_new_command_starts_a_new_life():
    hold = CommandHold(300 * MS)
    hold.put(COMMAND, 1000 * MS)
    hold.put(COMMAND, 1200 * MS)
    assert moves(hold.at(1500 * MS))


def test_clear_stops_at_once_and_says_why():
    hold = CommandHold(300 * MS)
    hold.put(COMMAND, 1000 * MS)
    hold.clear("stop_requested")
    assert not moves(hold.at(1000 * MS))
    assert hold.reason == "stop_requested"


def test_messages_may_be_stamped_by_another_clock():
    hold = CommandHold(300 * MS)
    hold.put(COMMAND, 1000 * MS)
    assert hold.at(1010 * MS, stamp_ns=77).stamp_ns == 77


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_command_that_is_not_finite_is_refused_and_stops_the_arm(bad):
    hold = CommandHold(300 * MS)
    hold.put(COMMAND, 1000 * MS)
    with pytest.raises(DataError, match="CommandGuard"):
        hold.put(dataclasses.replace(COMMAND, linear=np.array([bad, 0, 0])), 1000 * MS)
    assert not moves(hold.at(1000 * MS))


@pytest.mark.parametrize(("lifetime", "frame"), [(0, "base"), (-1, "base"), (1, "")])
def test_a_hold_without_life_or_frame_refuses_to_start(lifetime, frame):
    with pytest.raises(ConfigError):
        CommandHold(lifetime, frame_id=frame)


def test_decider_and_publisher_may_be_different_threads():
    hold = CommandHold(10 * MS)
    pairs = []

    def decide():
        for step in range(1, 500):
            # All values of one command are equal: a mixture of two would show.
            hold.put(to_command([float(step)] * 6 + [0.0], 1.0, "base"), step)

    def publish():
        for step in range(1, 500):
            sent = hold.at(step + 500)
            pairs.append((sent.linear[0], sent.angular[2]))

    threads = [threading.Thread(target=target) for target in (decide, publish)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(pairs) == 499
    assert all(first == last for first, last in pairs)
