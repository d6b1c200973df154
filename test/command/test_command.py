import numpy as np
import pytest

from heisd_ros.command import to_action_values, to_command, zero_command
from heisd_ros.errors import ConfigError, DataError, ShapeError
from heisd_ros.types import Action

VALUES = [0.01, -0.02, 0.0, 0.1, 0.0, -0.2, 1.0]


def test_delta_times_rate_is_velocity():
    command = to_command(VALUES, 5.0, "base", stamp_ns=7, observed_ns=3, instruction="lift")
    assert command.linear == pytest.approx([0.05, -0.1, 0.0])
    assert command.angular == pytest.approx([0.5, 0.0, -1.0])
    assert (command.gripper, command.frame_id) == (1.0, "base")
    assert (command.stamp_ns, command.observed_ns, command.instruction) == (7, 3, "lift")


def test_scales_turn_controller_units_into_metres_and_radians():
    # LIBERO: one unit is 0.05 m and 0.5 rad; at 20 Hz that is 1 m/s and 10 rad/s.
    command = to_command(
        [1, 0, 0, 0, 1, 0, 0], 20.0, "b", translation_scale=0.05, rotation_scale=0.5
    )
    assert command.linear == pytest.approx([1.0, 0.0, 0.0])
    assert command.angular == pytest.approx([0.0, 10.0, 0.0])


def test_action_values_undo_the_conversion():
    scales = {"translation_scale": 0.05, "rotation_scale": 0.5}
    values = np.random.default_rng(0).uniform(0.0, 1.0, 7)
    command = to_command(values, 20.0, "base", **scales)
    assert to_action_values(command, 20.0, **scales) == pytest.approx(values, abs=1e-12)


def test_an_action_object_is_taken_by_its_values():
    action = Action(tokens=np.full(7, 31872), values=np.array(VALUES))
    assert to_command(action, 5.0, "base").linear[0] == pytest.approx(0.05)


@pytest.mark.parametrize(("value", "opening"), [(0.996, 0.996), (-0.996, 0.0), (1.5, 1.0)])
def test_gripper_is_an_opening(value, opening):
    assert to_command([0.0] * 6 + [value], 5.0, "base").gripper == opening


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_left_to_the_guard(bad):
    assert np.isnan(to_command([bad] * 7, 5.0, "base").gripper) == np.isnan(bad)
    assert not np.isfinite(to_command([0.0] * 6 + [bad], 5.0, "base").gripper)


@pytest.mark.parametrize("size", [0, 6, 8])
def test_wrong_length_is_refused(size):
    with pytest.raises(ShapeError, match="7 values"):
        to_command([0.0] * size, 5.0, "base")


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, np.inf])
def test_rate_must_be_positive(rate):
    with pytest.raises(ConfigError, match="control_hz"):
        to_command(VALUES, rate, "base")


def test_zero_command_stops_and_keeps_the_gripper():
    command = zero_command("base", 0.25, stamp_ns=9)
    assert not command.linear.any()
    assert not command.angular.any()
    assert (command.gripper, command.stamp_ns) == (0.25, 9)


@pytest.mark.parametrize("gripper", [np.nan, -0.1, 1.1])
def test_zero_command_needs_a_real_opening(gripper):
    with pytest.raises(DataError, match="gripper"):
        zero_command("base", gripper)
