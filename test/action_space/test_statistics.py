import json

import numpy as np
import pytest

from heisd_ros.action_space import (
    ActionStatistics,
    ActionTokenizer,
    ProprioStatistics,
    statistics_keys,
)
from heisd_ros.errors import ConfigError, DataError, ShapeError

GOOD = {"q01": [-0.05] * 7, "q99": [0.05] * 7, "mask": [True] * 6 + [False]}


def entry(**changes):
    return {"action": {**GOOD, **changes}}


def test_worked_numbers():
    statistics = ActionStatistics.from_dict({"arm": entry()})
    values = statistics.denormalize([0.0, 0.99608, -1.0, 0.0, 0.0, 0.0, 0.996])
    assert values == pytest.approx([0.0, 0.049804, -0.05, 0.0, 0.0, 0.0, 0.996], abs=1e-9)


def test_normalize_undoes_denormalize_inside_the_quantiles():
    statistics = ActionStatistics.from_dict(entry(q01=[-0.1, 0, -1, -2, -3, -4, 0]))
    values = np.random.default_rng(1).uniform(-1.0, 1.0, (50, 7))
    assert statistics.normalize(statistics.denormalize(values)) == pytest.approx(values, abs=1e-12)


def test_normalize_clips_scaled_axes_only():
    statistics = ActionStatistics.from_dict(entry())
    assert statistics.normalize([1.0, -1.0, 0, 0, 0, 0, 5.0]).tolist() == [1, -1, 0, 0, 0, 0, 5]


def test_without_a_mask_every_axis_is_scaled():
    part = {"q01": [0.0] * 7, "q99": [2.0] * 7}
    assert ActionStatistics.from_dict(part).denormalize([0.5] * 7).tolist() == [1.5] * 7


def test_a_masked_axis_may_be_constant():
    still = entry(q01=[-0.05] * 6 + [0.0], q99=[0.05] * 6 + [0.0])
    assert ActionStatistics.from_dict(still).size == 7


def test_eight_axes_are_allowed():
    part = {"q01": [-1.0] * 8, "q99": [1.0] * 8}
    assert ActionStatistics.from_dict(part).size == 8


@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        ({}, ConfigError, "no entry"),
        ({"goal": entry(), "long": entry(), "bridge": entry()}, ConfigError, "bridge, goal, long"),
        ({"goal": entry(q01=[-0.05] * 6)}, DataError, "'goal'.*6 and 7"),
        ({"goal": entry(q01=[-0.05] * 6, q99=[0.05] * 6)}, DataError, "at least 7"),
        ({"goal": entry(q01=[0.05] + [-0.05] * 6)}, DataError, r"'goal'.*axis 0 \(x\)"),
        ({"goal": entry(q99=[0.05, -0.06] + [0.05] * 5)}, DataError, r"axis 1 \(y\)"),
        ({"goal": entry(q99=[0.05] * 5 + [np.nan, 0.05])}, DataError, r"axis 5 \(rz\)"),
        ({"goal": entry(q99=[0.05] * 6 + [np.nan])}, DataError, r"axis 6 \(gripper\)"),
        ({"goal": entry(mask=[True] * 6)}, DataError, "mask"),
        ({"goal": entry(q01="abc")}, DataError, "q01 must be a list"),
        ({"goal": {"action": {"q01": [0.0] * 7}}}, DataError, "q99 is missing"),
        ({"goal": {"proprio": GOOD}}, DataError, "'goal' has no 'action'"),
    ],
)
def test_bad_statistics_are_refused_with_key_and_axis(table, error, words):
    with pytest.raises(error, match=words):
        ActionStatistics.from_dict(table)


def test_an_absent_key_is_refused_with_the_list():
    with pytest.raises(ConfigError, match=r"'spatial'.*goal, long"):
        ActionStatistics.from_dict({"goal": entry(), "long": entry()}, "spatial")


@pytest.mark.parametrize("values", [[0.0] * 6, [0.0] * 8, 0.0])
def test_wrong_length_is_refused(values):
    with pytest.raises(ShapeError, match="7 long"):
        ActionStatistics.from_dict(entry()).denormalize(values)


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match="finite"):
        ActionStatistics.from_dict(entry()).normalize([np.inf] + [0.0] * 6)


def write(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_statistics_file_wins_over_the_configuration_in_a_folder(tmp_path):
    write(tmp_path / "dataset_statistics.json", {"goal": entry()})
    other = entry(q99=[0.1] * 7)
    write(tmp_path / "config.json", {"norm_stats": {"goal": other, "bridge": other}})
    assert ActionStatistics.load(tmp_path).q99[0] == 0.05
    assert ActionStatistics.load(tmp_path, "bridge").q99[0] == 0.1
    assert statistics_keys(tmp_path) == ("bridge", "goal")
    with pytest.raises(ConfigError, match="bridge, goal"):
        ActionStatistics.load(tmp_path, "long")


def test_a_configuration_without_statistics_is_refused(tmp_path):
    write(tmp_path / "config.json", {"model_type": "openvla"})
    with pytest.raises(ConfigError, match="no action statistics"):
        ActionStatistics.load(tmp_path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no action statistics"):
        ActionStatistics.load(tmp_path / "dataset_statistics.json")


@pytest.mark.parametrize("text", ["{", "[1, 2]", ""])
def test_a_damaged_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "dataset_statistics.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"dataset_statistics\.json"):
        ActionStatistics.load(path)


def test_proprioception_has_its_own_section():
    table = {"goal": {"action": GOOD, "proprio": {"q01": [0.0] * 8, "q99": [2.0] * 8}}}
    assert ProprioStatistics.from_dict(table).normalize([1.0] * 8).tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("key", "recorded"),
    [("libero_goal", "case0_action"), ("bridge_orig", "case0_action_bridge_orig")],
)
def test_actions_of_the_reference_implementation(golden_folder, key, recorded):
    statistics = ActionStatistics.load(golden_folder / "tiny-openvla", key)
    with np.load(golden_folder / "golden_openvla_tiny.npz") as golden:
        values = statistics.denormalize(ActionTokenizer().decode(golden["case0_tokens"]))
        assert values == pytest.approx(golden[recorded], abs=1e-12)
