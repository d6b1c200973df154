"""The configuration refuses what nobody could have meant, and says what it expected."""

import pytest

from heisd_ros.config import (
    HeisdConfig,
    checked_value,
    load_config,
    make_config,
    parameter_names,
    read_values,
    replace,
    to_flat,
)
from heisd_ros.errors import ConfigError


def test_flat_values_are_the_inverse_of_a_configuration():
    config = make_config({"trajectory.window": 9, "command.frame_id": "world"})
    assert make_config(to_flat(config)) == config
    assert set(to_flat(config)) == set(parameter_names())
    assert make_config({}) == HeisdConfig()


def test_replace_changes_one_field_and_checks_it():
    config = replace(HeisdConfig(), trajectory__max_gap_s=3)
    assert config.trajectory.max_gap_s == 3.0
    assert isinstance(config.trajectory.max_gap_s, float)
    with pytest.raises(ConfigError, match=r"trajectory.window must be in \[3, 200\], got 2"):
        replace(config, trajectory__window=2)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("trajectory.windw", 5, "did you mean 'trajectory.window'"),
        ("trajectory.window", 5.5, "whole number"),
        ("trajectory.window", True, "must be a number"),
        ("trajectory.window", "5", "must be a number"),
        ("trajectory.alpha", 1.1, r"in \[0.0, 1.0\]"),
        ("trajectory.alpha", float("nan"), r"in \[0.0, 1.0\]"),
        ("trajectory.radius", "menger", "one of centroid, taubin, lsq"),
        ("trajectory.radius", 3, "must be str"),
        ("draft.recombine", 1, "must be bool"),
        ("perception.cameras", "wrist", "must be a list"),
        ("perception.cameras", [], "list of names"),
        ("perception.cameras", ["wrist", ""], "list of names"),
        ("command.workspace_low", [0.0, 0.0], "must have 3 numbers, got 2"),
        ("command.workspace_low", [0.0, 0.0, float("inf")], "finite"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_expected(name, value, words):
    with pytest.raises(ConfigError, match=words):
        checked_value(name, value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"trajectory.radius_low": 0.04}, r"radius_low \(0.04\) must be below"),
        ({"trajectory.displacement_low": 9.0}, "displacement_low"),
        ({"command.lifetime_s": 0.039}, "at least two command periods"),
        ({"command.workspace_low": [0, 0, 10]}, "below workspace_high on every axis"),
        ({"perception.rotate_deg": 45}, "0, 90, 180 or 270, got 45"),
        ({"command.frame_id": ""}, "name a frame"),
        ({"gripper.open_position": 0.0}, "would never move"),
        ({"draft.drafter_nodes": 97}, r"\(97\) must be at most draft.max_nodes \(96\)"),
    ],
)
def test_values_that_are_wrong_together_are_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        make_config(values)


def test_a_drafters_tree_may_fill_the_largest_tree():
    assert make_config({"draft.drafter_nodes": 96}).draft.drafter_nodes == 96


def test_a_file_holds_sections_or_the_parameters_of_nodes(tmp_path):
    plain, nodes = tmp_path / "plain.yaml", tmp_path / "nodes.yaml"
    plain.write_text("trajectory: {window: 7}\n", encoding="utf-8")
    nodes.write_text(
        "/**:\n  ros__parameters:\n    use_sim_time: true\n    trajectory: {window: 7}\n"
        "/decoder:\n  ros__parameters:\n    decode.method: ar\n",
        encoding="utf-8",
    )
    assert load_config(plain).trajectory.window == 7
    assert read_values(nodes) == {"trajectory.window": 7, "decode.method": "ar"}
    assert load_config(nodes, {"trajectory.window": 8}).trajectory.window == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "mapping of sections, got list"),
        ("trajectory: 7", "'trajectory' must be a section of fields, got 7"),
        ("trajectory: {windw: 7}", "did you mean 'trajectory.window'"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, text, words):
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        load_config(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        load_config(tmp_path / "none.yaml")


def test_every_field_says_what_it_is():
    for kind, item in parameter_names().values():
        assert len(item.metadata["spec"].help) > 10, (kind, item.name)
