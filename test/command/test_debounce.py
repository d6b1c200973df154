import pytest

from heisd_ros.command import GripperDebounce
from heisd_ros.errors import ConfigError


def run(steps, values):
    debounce = GripperDebounce(steps)
    return [debounce.update(value) for value in values], debounce.changes


def test_flicker_changes_nothing():
    assert run(2, [1, 0, 1, 0, 1, 0]) == ([1.0] * 6, 0)


def test_two_equal_decisions_change_once():
    assert run(2, [1, 1, 0, 0]) == ([1.0, 1.0, 1.0, 0.0], 1)


def test_one_step_switches_at_once():
    assert run(1, [1, 0, 1]) == ([1.0, 0.0, 1.0], 2)


def test_the_first_decision_is_taken_at_once_and_is_no_change():
    assert run(3, [0.004]) == ([0.0], 0)


def test_exactly_one_half_keeps_the_state():
    assert run(1, [0.004, 0.5, 0.5]) == ([0.0, 0.0, 0.0], 0)


def test_exactly_one_half_interrupts_a_row():
    assert run(2, [1, 0, 0.5, 0, 1]) == ([1.0] * 5, 0)


def test_before_any_decision_the_measured_opening_is_kept():
    debounce = GripperDebounce(2, opening=0.3)
    assert debounce.update(0.5) == 0.3
    assert debounce.update(float("nan")) == 0.3


def test_nan_decides_nothing():
    assert run(1, [0.0, float("nan")]) == ([0.0, 0.0], 0)


def test_reset_forgets():
    debounce = GripperDebounce(2)
    debounce.update(0.0)
    debounce.reset(opening=1.0)
    assert debounce.opening == 1.0
    assert debounce.update(0.0) == 0.0


@pytest.mark.parametrize(("steps", "opening"), [(0, 1.0), (1, 2.0), (1, float("nan"))])
def test_impossible_settings_are_refused(steps, opening):
    with pytest.raises(ConfigError, match="debounce"):
        GripperDebounce(steps, opening=opening)
