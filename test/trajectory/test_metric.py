import math

import numpy as np
import pytest

from heisd_ros.config import TrajectoryConfig
from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.trajectory import (
    PercentileNormaliser,
    TrajectoryMeter,
    cumulative_displacement,
    fused_metric,
)

MS = 1_000_000
PERIOD = 100 * MS
CONFIG = TrajectoryConfig(radius_high=0.04, displacement_high=0.14)
DISPLACEMENTS = [
    # window, path, last_to_all
    ("straight", 0.1400, 1.050),
    ("straight_w5", 0.0400, 0.100),
    ("full_turn", 0.2911, 0.9514),
    ("arc_180", 0.1568, 0.9403),
    ("arc_90", 0.0785, 0.5573),
    ("arc_30", 0.0262, 0.1952),
    ("wide_arc_90", 0.3140, 2.2292),
    ("stationary", 0.0, 0.0),
    ("round_trip", 0.1400, 0.490),
    ("corner", 0.1400, 0.8575),
    ("helix", 0.3272, 1.2549),
]


@pytest.mark.parametrize(("name", "path", "last_to_all"), DISPLACEMENTS)
def test_worked_displacements(windows, rotation, name, path, last_to_all):
    for positions in (windows[name], windows[name] @ rotation.T + 3.0):
        assert cumulative_displacement(positions) == pytest.approx(path, abs=1e-4)
        got = cumulative_displacement(positions, "last_to_all")
        assert got == pytest.approx(last_to_all, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "chord"), [("straight", 0.14), ("round_trip", 0.0), ("corner", 0.07 * math.sqrt(2))]
)
def test_chord_joins_the_ends(windows, name, chord):
    assert cumulative_displacement(windows[name], "chord") == pytest.approx(chord)


@pytest.mark.parametrize("kind", ["path", "last_to_all", "chord"])
def test_one_position_has_gone_nowhere(kind):
    assert cumulative_displacement(np.ones((1, 3)), kind) == 0.0
    assert cumulative_displacement(np.ones((0, 3)), kind) == 0.0


def test_bad_displacement_input_is_refused(windows):
    with pytest.raises(ConfigError, match="path, last_to_all, chord"):
        cumulative_displacement(windows["corner"], "sum")
    with pytest.raises(ShapeError, match=r"\(w, 3\)"):
        cumulative_displacement(np.zeros((15, 2)))


def test_fused_metric_weighs_radius_and_displacement():
    unit = PercentileNormaliser(0.0, 1.0, 0.0, 1.0)
    assert fused_metric(0.8, 0.2, 0.25, unit) == pytest.approx(0.25 * 0.8 + 0.75 * 0.2)
    assert fused_metric(math.inf, 0.0, 0.5, unit) == 0.5
    assert math.isnan(fused_metric(math.nan, 0.0, 0.5, unit))


@pytest.mark.parametrize(
    ("displacement_high", "radius_high", "threshold", "slow", "fast"),
    [
        # goal, spatial, object, long: speeds of a straight run at the boundary, mm per step, with
        # the window of the ranges (5) and with 15.
        (0.139051, 0.016873, 0.143210, 2.00, 0.29),
        (0.128629, 0.015654, 0.217119, 2.81, 0.41),
        (0.116458, 0.014151, 0.188199, 2.21, 0.32),
        (0.102298, 0.012479, 0.4, 4.13, 0.60),
    ],
)
def test_speed_at_the_published_boundaries(displacement_high, radius_high, threshold, slow, fast):
    for window, speed in ((5, slow), (15, fast)):
        config = TrajectoryConfig(
            window=window,
            displacement="last_to_all",
            radius_high=radius_high,
            displacement_high=displacement_high,
        )
        meter = TrajectoryMeter(config)
        for step in range(window):
            metric = meter.update([1e-3 * speed * step, 0.0, 0.0], step * PERIOD)
        # F is linear in the speed, and the speeds are rounded to 0.01 mm.
        assert metric.fused == pytest.approx(threshold, rel=0.006 / speed)


def feed(meter, positions, *, start=0, frame_id="base"):
    for step, position in enumerate(positions):
        metric = meter.update(position, start + step * PERIOD, frame_id)
        assert_is_clean(metric)
    return metric


def assert_is_clean(metric):
    numbers = (metric.curvature_radius, metric.displacement, metric.straightness, metric.speed)
    assert np.isfinite(numbers).all()
    assert math.isnan(metric.fused) if metric.samples < 3 else 0.0 <= metric.fused <= 1.0
    assert 0.0 <= metric.straightness <= 1.0


def test_a_straight_run(windows):
    metric = feed(TrajectoryMeter(CONFIG), windows["straight"])
    assert metric.samples == 15
    assert metric.displacement == pytest.approx(0.14)
    assert metric.curvature_radius == pytest.approx(0.56 / 15)
    assert metric.fused == pytest.approx(0.5 * (0.56 / 15) / 0.04 + 0.5)
    assert metric.straightness == pytest.approx(1.0)
    assert metric.speed == pytest.approx(0.1)  # 1 cm per 0.1 s
    assert metric.stamp_ns == 14 * PERIOD


def test_a_window_that_just_slid_gives_the_same_as_a_fresh_one(windows):
    slid = feed(
        TrajectoryMeter(CONFIG), np.concatenate([windows["arc_30"] - 0.01, windows["helix"]])
    )
    fresh = feed(TrajectoryMeter(CONFIG), windows["helix"])
    assert slid.fused == pytest.approx(fresh.fused)
    assert slid.displacement == pytest.approx(fresh.displacement)


@pytest.mark.parametrize("radius", ["centroid", "taubin", "lsq"])
def test_standing_still_is_fine_motion(windows, radius):
    metric = feed(TrajectoryMeter(TrajectoryConfig(radius=radius)), windows["stationary"] + 0.3)
    assert (metric.curvature_radius, metric.displacement, metric.fused) == (0.0, 0.0, 0.0)
    assert (metric.straightness, metric.speed) == (0.0, 0.0)


@pytest.mark.parametrize("radius", ["centroid", "taubin", "lsq"])
def test_tiny_noise_is_fine_motion(radius):
    noise = np.random.default_rng(9).normal(0.3, 1e-9, (40, 3))
    assert feed(TrajectoryMeter(TrajectoryConfig(radius=radius)), noise).fused < 1e-3


@pytest.mark.parametrize("radius", ["taubin", "lsq"])
def test_a_fitted_radius_is_capped_on_a_straight_run(windows, radius):
    meter = TrajectoryMeter(TrajectoryConfig(radius=radius, max_radius=7.0))
    metric = feed(meter, windows["straight"][:3])
    assert metric.curvature_radius == 7.0
    assert metric.fused >= 0.5


def test_fewer_than_three_samples_have_no_fused_metric(windows):
    meter = TrajectoryMeter(CONFIG)
    assert math.isnan(meter.metric.fused)
    for samples in (1, 2):
        metric = meter.update(windows["straight"][samples], samples * PERIOD)
        assert metric.samples == samples
        assert math.isnan(metric.fused)
    assert not math.isnan(meter.update(windows["straight"][3], 3 * PERIOD).fused)


@pytest.mark.parametrize(
    ("position", "offset_ms", "reason"),
    [
        ([0.05, 0.0, 0.0], 0, "equal_stamp"),
        ([0.05, 0.0, 0.0], -50, "late"),
        ([math.nan, 0.0, 0.0], 100, "non_finite"),
        ([0.0, math.inf, 0.0], 100, "non_finite"),
        ([1e300, 0.0, 0.0], 100, "out_of_range"),
        ([1.05, 0.0, 0.0], 100, "jump"),
    ],
)
def test_bad_samples_are_dropped_and_counted(windows, position, offset_ms, reason):
    meter = TrajectoryMeter(CONFIG)
    before = feed(meter, windows["straight"][:6])
    after = meter.update(position, before.stamp_ns + offset_ms * MS, "base")
    assert after == before
    assert meter.drops == {reason: 1}
    # The next good sample counts as if nothing had been between.
    good = meter.update([0.07, 0.0, 0.0], before.stamp_ns + 2 * PERIOD, "base")
    assert good.samples == 7
    assert good.displacement == pytest.approx(0.07)


@pytest.mark.parametrize(
    ("offset_s", "frame_id", "reason"),
    [
        (0.1, "world", "frame_changed"),
        (-5.0, "base", "time_jumped_back"),
        (60.0, "base", "gap"),
    ],
)
def test_a_new_start_empties_the_window(windows, offset_s, frame_id, reason):
    meter = TrajectoryMeter(CONFIG)
    last = feed(meter, windows["straight"])
    start = last.stamp_ns + round(offset_s * 1e9)
    metric = meter.update([5.0, 0.0, 0.0], start, frame_id)
    assert metric.samples == 1
    assert metric.displacement == 0.0
    assert math.isnan(metric.fused)
    assert meter.drops == {reason: 1}


def test_a_confirmed_jump_starts_a_new_trajectory(windows):
    meter = TrajectoryMeter(CONFIG)
    last = feed(meter, windows["straight"])
    moved = windows["straight"][:4] + 1.0
    metric = feed(meter, moved, start=last.stamp_ns + PERIOD)
    assert metric.samples == 4
    assert metric.displacement == pytest.approx(0.03)  # nothing across the jump
    assert meter.drops == {"jump": 1, "moved_by_jump": 1}


def test_a_second_publisher_far_away_is_ignored(windows):
    meter = TrajectoryMeter(CONFIG)
    for step, position in enumerate(windows["straight"]):
        meter.update(position, 2 * step * PERIOD)
        metric = meter.update(position + 2.0, (2 * step + 1) * PERIOD)
    assert metric.displacement == pytest.approx(0.14)
    assert meter.drops == {"jump": 15}


def test_a_bag_played_again_gives_the_same_numbers(windows):
    meter = TrajectoryMeter(CONFIG)
    path = np.concatenate([windows["helix"], windows["helix"][::-1]])
    loops = [
        [meter.update(position, 10**11 + step * PERIOD).fused for step, position in enumerate(path)]
        for _ in range(3)
    ]
    assert np.array_equal(loops[0], loops[1], equal_nan=True)
    assert np.array_equal(loops[0], loops[2], equal_nan=True)
    assert meter.drops == {"time_jumped_back": 2}


def test_reset_forgets_the_trajectory_and_keeps_the_counts(windows):
    meter = TrajectoryMeter(CONFIG)
    feed(meter, windows["straight"])
    meter.update([math.nan] * 3, 15 * PERIOD)
    meter.reset()
    assert meter.metric.samples == 0
    assert meter.drops == {"non_finite": 1}
    # Another place right after a reset is no jump.
    assert meter.update([3.0, 3.0, 3.0], 16 * PERIOD).samples == 1
    assert meter.drops == {"non_finite": 1}


def test_random_garbage_never_gets_out():
    rng = np.random.default_rng(19)
    for radius in ("centroid", "taubin", "lsq"):
        meter = TrajectoryMeter(TrajectoryConfig(window=5, radius=radius))
        stamp = 10**12
        for _ in range(300):
            position = rng.normal(0.0, 10.0 ** rng.integers(-12, 3), 3)
            position[rng.random(3) < 0.05] = rng.choice([math.nan, math.inf, 1e300, -1e6])
            stamp += int(rng.choice([0, 1, -50 * MS, PERIOD, PERIOD, PERIOD, 10**10, -(10**10)]))
            assert_is_clean(
                meter.update(position, stamp, str(rng.choice(["base"] * 9 + ["world"])))
            )


def test_a_pose_is_no_position():
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        TrajectoryMeter(CONFIG).update([0.0] * 7, 0)
