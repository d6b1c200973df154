import pytest

from heisd_ros.command import ZeroTail, to_command, zero_command
from heisd_ros.errors import ConfigError

MOTION = to_command([0.01, 0, 0, 0, 0, 0, 1.0], 5.0, "base")
TURN = to_command([0, 0, 0, 0, 0, 0.01, 1.0], 5.0, "base")
ZERO = zero_command("base", 1.0)


def sent(tail, commands, *, silent):
    return [tail.passes(command, silent=silent) for command in commands]


def test_four_zeros_follow_the_last_motion_and_then_nothing():
    tail = ZeroTail(4)
    assert sent(tail, [MOTION] * 2 + [ZERO] * 6, silent=True) == [True] * 6 + [False] * 2


def test_turning_is_motion_too():
    assert sent(ZeroTail(1), [TURN, ZERO, ZERO], silent=True) == [True, True, False]


def test_without_silence_zeros_never_end():
    assert all(sent(ZeroTail(1), [MOTION] + [ZERO] * 50, silent=False))


def test_before_the_first_motion_nothing_is_said():
    assert sent(ZeroTail(4), [ZERO] * 3, silent=True) == [False] * 3


def test_motion_in_between_starts_the_zeros_again():
    tail = ZeroTail(2)
    assert sent(tail, [MOTION, ZERO, MOTION, ZERO, ZERO, ZERO], silent=True) == [True] * 5 + [False]


def test_a_stop_says_the_zeros_once_more():
    tail = ZeroTail(2)
    tail.restart()
    assert sent(tail, [ZERO] * 3, silent=True) == [True, True, False]


def test_a_motion_that_no_zero_follows_is_refused():
    with pytest.raises(ConfigError, match="at least one zero"):
        ZeroTail(0)
