"""The choice of window, weight and threshold: costs by hand, an honest verdict, the file."""

import dataclasses

import numpy as np
import pytest

from heisd_ros.config import TrajectoryConfig, load_config
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.offline import gate_choice, gate_study
from heisd_ros.offline.calibrate import main
from heisd_ros.offline.gate_choice import GateChoice, StepCosts, calibrated, cheapest, choose
from heisd_ros.offline.gate_study import Gate, Study, Track
from heisd_ros.offline.intervals import Interval
from heisd_ros.offline.latency_model import DeviceProfile
from heisd_ros.offline.skip_tracks import SkipTrack, load_tracks, save_tracks
from heisd_ros.share import config_file

COSTS = StepCosts(accepted=100.0, rejected=200.0, below=160.0)


@pytest.fixture(autouse=True)
def small_grid(monkeypatch):
    monkeypatch.setattr(gate_study, "WINDOWS", (5,))
    monkeypatch.setattr(gate_study, "RADII", ("centroid",))
    monkeypatch.setattr(gate_study, "RESAMPLES", 50)


def stop_and_go(*, good_when_fast, factor=1.0):
    steps = factor * np.r_[np.full(12, 0.001), np.full(12, 0.01)]
    positions = np.c_[np.cumsum(steps), np.zeros((24, 2))]
    fast = np.arange(24) >= 12
    return positions, fast if good_when_fast else ~fast


def drafts(*, good_when_fast=True):
    made = [stop_and_go(good_when_fast=good_when_fast, factor=f) for f in (1, 1.1, 0.9, 1.05)]
    return [Track(i, p, good, np.linspace(0, 1, 24)) for i, (p, good) in enumerate(made)]


def test_costs_on_the_published_profile():
    costs = StepCosts.of(DeviceProfile.load(config_file("profiles/a100_paper.json")))
    # 53 + 11 + 5.13 + 25 (1 + 90 / 285), six tokens of 14.67 more, and AR's 174.
    assert costs.accepted == pytest.approx(102.02, abs=0.01)
    assert costs.rejected == pytest.approx(190.04, abs=0.01)
    assert costs.below == pytest.approx(174.02, abs=0.01)


def test_mean_time_by_hand():
    above, good = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool)
    assert COSTS.mean(above, good) == (100 + 200 + 160 + 160) / 4


def test_cheapest_threshold_parts_good_drafts_from_bad_ones():
    fused = np.array([0.1, 0.2, 0.6, 0.7])
    theta = cheapest(fused, np.array([0, 0, 1, 1], bool), COSTS)
    assert 0.2 <= theta < 0.6
    # A draft pays from 40 % acceptance on: all good means always, all bad means never.
    assert cheapest(fused, np.ones(4, bool), COSTS) < 0.1
    assert cheapest(fused, np.zeros(4, bool), COSTS) == 1.0


def test_choice_on_drafts_that_are_good_when_the_arm_is_fast():
    choice = choose(drafts(), TrajectoryConfig(window=5), COSTS)
    assert choice.study.gates[gate_choice.CHOSEN].auc > 0.95
    assert choice.study.gates[gate_choice.SPEED].name == "speed"
    assert choice.time_ms < min(choice.always_ms, choice.never_ms)
    made = calibrated(choice, drafts())
    assert made.config.threshold == choice.threshold
    # Ranges are those of the even episodes: the fastest has D = 4 steps of 0.01 m.
    assert made.config.displacement_high <= 0.04 + 1e-9


def test_choice_never_drafts_where_drafts_cost_more_than_they_save():
    poor = dataclasses.replace(COSTS, below=90.0)
    choice = choose(drafts(), TrajectoryConfig(window=5), poor)
    assert choice.share == 0.0
    assert choice.time_ms == choice.never_ms == 90.0


def gate(auc, low, high, over):
    return Gate("gate", auc, Interval(low, high), Interval(*over))


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (gate(0.9, 0.8, 0.95, (0.1, 0.2)), "better than the speed"),
        (gate(0.7, 0.6, 0.8, (-0.1, 0.2)), "no better than the speed"),
        (gate(0.4, 0.3, 0.45, (-0.2, -0.1)), "worse than the speed"),
        (gate(0.5, 0.4, 0.6, (-0.1, 0.1)), "does not tell good drafts from bad"),
    ],
)
def test_verdict_is_honest(chosen, words):
    speed = gate(0.6, 0.5, 0.7, (0.0, 0.0))
    study = Study((chosen, chosen, speed, speed), 2, 10, 0.5, TrajectoryConfig())
    assert words in GateChoice(study, 0.2, COSTS, 0.5, 1.0, 1.0, 1.0).verdict


def judged(path):
    tracks = [
        SkipTrack(
            "pick",
            track.positions,
            np.ones((24, 3), np.float32),
            track.good,
            track.good,
            np.float32(track.score),
        )
        for track in drafts()
    ]
    save_tracks(path, tracks)
    return tracks


def test_judged_tracks_survive_their_file(tmp_path):
    tracks = judged(tmp_path / "judged.npz")
    for track, again in zip(tracks, load_tracks(tmp_path / "judged.npz"), strict=True):
        assert again.task == "pick"
        assert np.array_equal(again.positions, track.positions)
        assert np.array_equal(again.acceptable, track.acceptable)
    (tmp_path / "bad.npz").write_bytes(b"PK")
    for name in ("bad.npz", "none.npz"):
        with pytest.raises(DataError, match="judged tracks"):
            load_tracks(tmp_path / name)


def test_written_file_carries_verdict_and_choice(tmp_path):
    judged(tmp_path / "judged.npz")
    out = tmp_path / "spatial.yaml"
    command = ["--judged", str(tmp_path / "judged.npz"), "--suite", "s", "--out", str(out)]
    assert main(command) == 0
    text = out.read_text()
    assert load_config(out).trajectory.window == 5
    for words in ("the speed alone", "AUC on the odd episodes", "a draft in every step"):
        assert words in text
    with pytest.raises(ConfigError, match="--window is chosen"):
        main([*command, "--window", "9"])


def test_runs_without_the_targets_tokens_are_refused(tmp_path):
    command = ["--runs", str(tmp_path), "--suite", "s", "--out", str(tmp_path / "x")]
    with pytest.raises(DataError, match="--shadow-ar"):
        main(command)
    with pytest.raises(ConfigError, match="--demos, --runs or --judged"):
        main(["--suite", "s", "--out", str(tmp_path / "x")])
