import dataclasses

import numpy as np
import pytest

from heisd_ros.config import TrajectoryConfig, load_config
from heisd_ros.demonstrations.episode import Episode, save_episode
from heisd_ros.errors import DataError
from heisd_ros.offline.calibrate import main
from heisd_ros.offline.kinematic_calibration import (
    Track,
    calibrate_trajectory,
    metrics_of,
    rank_correlation,
)

HZ = 20.0
W5 = TrajectoryConfig(window=5)


def straight(speed_m, steps=5):
    """Steps of `speed_m` metres along x."""
    positions = np.zeros((steps, 3))
    positions[:, 0] = speed_m * np.arange(steps)
    return Track(positions, HZ)


def test_every_step_from_the_third_on_is_a_window():
    metrics = metrics_of(straight(0.01), W5)
    assert [metric.samples for metric in metrics] == [3, 4, 5]
    # A full window of a straight line with step s: R = 1.2 s, D = 4 s.
    assert metrics[-1].curvature_radius == pytest.approx(0.012)
    assert metrics[-1].displacement == pytest.approx(0.04)
    # 0.01 m every 1/20 s
    assert metrics[-1].speed == pytest.approx(0.2)


def test_ranges_and_threshold_are_percentiles_of_what_the_meter_says():
    tracks = [straight(0.001 * speed) for speed in range(1, 11)]
    found = calibrate_trajectory(tracks, W5)
    metrics = [metric for track in tracks for metric in metrics_of(track, W5)]
    radii = [metric.curvature_radius for metric in metrics]
    displacements = [metric.displacement for metric in metrics]
    assert (found.episodes, found.windows) == (10, 30)
    assert found.config.radius_low == pytest.approx(min(radii))
    assert found.config.radius_high == pytest.approx(np.percentile(radii, 95))
    assert found.config.displacement_high == pytest.approx(np.percentile(displacements, 95))
    # The calibrated meter puts a quarter of the demonstrated steps below the threshold: at most
    # 30 / 4 rounded either way.
    fused = [m.fused for track in tracks for m in metrics_of(track, found.config)]
    below = sum(value <= found.config.threshold for value in fused)
    assert 7 <= below <= 8


def test_window_is_taken_from_the_configuration():
    tracks = [straight(0.001 * speed, steps=40) for speed in range(1, 11)]
    short = calibrate_trajectory(tracks, W5).config
    long = calibrate_trajectory(tracks, dataclasses.replace(W5, window=15)).config
    # Full windows: D = 4 s against 14 s
    assert long.displacement_high / short.displacement_high == pytest.approx(3.5, rel=0.1)


def test_arm_that_never_moves_cannot_calibrate():
    with pytest.raises(DataError, match="vary"):
        calibrate_trajectory([straight(0.0)], W5)
    with pytest.raises(DataError, match="without one window"):
        calibrate_trajectory([straight(0.01, steps=2)], W5)


def test_rank_correlation_by_hand():
    rising = np.array([1.0, 2.0, 3.0])
    assert rank_correlation(rising, rising**3) == pytest.approx(1.0)
    assert rank_correlation(rising, -rising) == pytest.approx(-1.0)
    # Ranks 1 2 3 and 1 3 2: 1 - 6 * (0 + 1 + 1) / (3 * 8) = 0.5
    assert rank_correlation(rising, np.array([1.0, 3.0, 2.0])) == pytest.approx(0.5)


def save_demo(path, speed_m, *, suite="libero_spatial", success=True, steps=20):
    state = np.zeros((steps, 8), dtype=np.float32)
    state[:, 0] = speed_m * np.arange(steps)
    state[:, 6] = 1.0
    images = np.zeros((steps, 1, 4, 4, 3), dtype=np.uint8)
    actions = np.zeros((steps, 7), dtype=np.float32)
    episode = Episode(
        images, actions, state, "pick", ("third_person",), HZ, suite, 0, success=success
    )
    save_episode(path, episode)


def test_written_file_is_a_configuration_that_names_its_origin(tmp_path):
    for number in range(1, 6):
        save_demo(tmp_path / f"demos/{number}.npz", 0.002 * number)
    save_demo(tmp_path / "demos/failed.npz", 1.0, success=False)
    save_demo(tmp_path / "demos/other.npz", 1.0, suite="libero_goal")
    out = tmp_path / "deep/spatial.yaml"
    command = ["--demos", str(tmp_path / "demos"), "--suite", "libero_spatial"]
    assert main([*command, "--window", "5", "--out", str(out)]) == 0
    config = load_config(out).trajectory
    assert config.window == 5
    # Fastest demonstration: 0.01 m per step, D = 0.04 m over five positions
    assert 0.03 < config.displacement_high <= 0.04 + 1e-6
    text = out.read_text(encoding="utf-8")
    for word in ("5 episodes", "commit:", "date:", "heisd calibrate --demos", "--window 5"):
        assert word in text


def test_suite_without_demonstrations_is_named(tmp_path):
    save_demo(tmp_path / "1.npz", 0.01)
    command = ["--demos", str(tmp_path), "--suite", "libero_goal", "--out", str(tmp_path / "x")]
    with pytest.raises(DataError, match="libero_goal"):
        main(command)
