import numpy as np
import pytest

from heisd_ros.command.limits import limit_change, limit_norm, limit_to_box

BOX = (np.array([-1.0, -1.0, 0.0]), np.array([1.0, 1.0, 1.0]))


def test_a_short_vector_is_untouched():
    vector = np.array([0.1, 0.0, 0.1])
    limited, changed = limit_norm(vector, 0.2)
    assert not changed
    assert (limited == vector).all()


def test_a_long_vector_keeps_its_direction():
    limited, changed = limit_norm(np.array([3.0, 0.0, 4.0]), 0.5)
    assert changed
    assert limited == pytest.approx([0.3, 0.0, 0.4])


@pytest.mark.parametrize("size", [1e30, 1e300, 1.7e308])
def test_squares_of_huge_values_do_not_overflow(size):
    limited, changed = limit_norm(np.array([size, -size, 0.0]), 1.0)
    assert changed
    assert limited == pytest.approx([0.70710678, -0.70710678, 0.0])
    assert np.linalg.norm(limited) <= 1.0


@pytest.mark.parametrize("size", [0.0, 5e-324])
def test_tiny_values_pass(size):
    assert limit_norm(np.full(3, size), 1.0)[1] is False


def test_a_small_change_is_untouched():
    limited, changed = limit_change(np.array([0.2, 0, 0]), np.array([0.1, 0, 0]), 0.1 + 1e-12)
    assert not changed
    assert limited[0] == 0.2


def test_starting_keeps_the_direction():
    limited, changed = limit_change(np.array([0.3, 0.4, 0.0]), np.zeros(3), 0.1)
    assert changed
    assert limited == pytest.approx([0.06, 0.08, 0.0])


def test_turning_keeps_the_direction_with_the_largest_reachable_length():
    # |s (0, 0.4) - (0.3, 0)| = 0.5 -> s = 1; with 0.34: s 0.4 = sqrt(0.34^2 - 0.3^2) = 0.16
    limited, changed = limit_change(np.array([0, 0.4, 0]), np.array([0.3, 0, 0]), 0.34)
    assert changed
    assert limited == pytest.approx([0.0, 0.16, 0.0], abs=1e-8)


def test_a_reversal_out_of_reach_brakes_first():
    limited, changed = limit_change(np.array([-0.3, 0, 0]), np.array([0.3, 0, 0]), 0.1)
    assert changed
    assert limited == pytest.approx([0.2, 0.0, 0.0])


def test_stopping_is_limited_too():
    assert limit_change(np.zeros(3), np.array([0.3, 0, 0]), 0.1)[0] == pytest.approx([0.2, 0, 0])


def test_no_random_pair_ends_above_its_limits():
    rng = np.random.default_rng(3)
    for _ in range(2000):
        last, wanted = (limit_norm(rng.normal(0, 1, 3), 0.5)[0] for _ in range(2))
        step = rng.uniform(0.01, 1.0)
        limited, _ = limit_change(wanted, last, step)
        assert np.linalg.norm(limited - last) <= step
        assert np.linalg.norm(limited) <= 0.5


def test_inside_the_box_motion_is_free():
    velocity = np.array([0.1, 0.2, -0.3])
    limited, changed = limit_to_box(velocity, np.array([0.0, 0.0, 0.5]), BOX, 0.3)
    assert not changed
    assert (limited == velocity).all()


def test_only_the_outward_component_stops_at_the_border():
    limited, changed = limit_to_box(np.array([0.1, 0.2, -0.3]), np.array([0, 0, 0.0]), BOX, 0.3)
    assert changed
    assert limited.tolist() == [0.1, 0.2, 0.0]


def test_the_border_is_not_crossed_within_the_horizon():
    # 3 cm above the floor, 0.3 s: at most 0.1 m/s down.
    limited, _ = limit_to_box(np.array([0, 0, -0.3]), np.array([0, 0, 0.03]), BOX, 0.3)
    assert limited[2] == pytest.approx(-0.1)


def test_outside_the_box_only_motion_back_is_left():
    below = np.array([0.0, 0.0, -0.05])
    assert limit_to_box(np.array([0, 0, -0.1]), below, BOX, 0.3)[0][2] == 0.0
    assert limit_to_box(np.array([0, 0, 0.1]), below, BOX, 0.3)[0][2] == 0.1
