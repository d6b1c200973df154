import numpy as np
import pytest

from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.trajectory import TrajectoryWindow


def test_positions_come_oldest_first_and_the_oldest_leaves():
    window = TrajectoryWindow(3)
    for step in range(5):
        assert window.is_full == (step >= 3)
        window.push([step, 0.0, 0.0], step * 10)
    assert window.positions[:, 0].tolist() == [2.0, 3.0, 4.0]
    assert window.stamps_ns.tolist() == [20, 30, 40]
    assert len(window) == 3


def test_an_empty_window_has_no_rows():
    window = TrajectoryWindow(3)
    assert window.positions.shape == (0, 3)
    window.push([1, 2, 3], 0)
    window.clear()
    assert len(window) == 0
    assert window.stamps_ns.shape == (0,)


def test_what_is_pushed_is_copied():
    window, position = TrajectoryWindow(3), np.zeros(3)
    window.push(position, 0)
    position[0] = 9.0
    assert window.positions[0, 0] == 0.0


@pytest.mark.parametrize("position", [[0.0] * 2, [0.0] * 7, 1.0])
def test_a_pose_is_no_position(position):
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        TrajectoryWindow(3).push(position, 0)


def test_a_window_of_two_is_too_short_for_a_circle():
    with pytest.raises(ConfigError, match="at least 3"):
        TrajectoryWindow(2)
