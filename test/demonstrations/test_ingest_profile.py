"""The profile: what nobody said is asked for by the name of its option."""

import sys

import pytest
from demonstrations import data_sets as ds

from heisd_ros.demonstrations.ingest_profile import (
    PRESETS,
    IngestProfile,
    profile_from_text,
    resolve_profile,
)
from heisd_ros.demonstrations.readers.catalogue import FORMATS, open_source
from heisd_ros.demonstrations.source import SourceOptions
from heisd_ros.errors import ConfigError, MissingDependencyError

COMPLETE = {
    "flip": "none",
    "observation": "before",
    "gripper": "open_is_one",
    "action": "delta",
    "control_hz": 20.0,
}


@pytest.mark.parametrize(
    ("missing", "option"),
    [
        ("flip", r"--flip none\|v\|180"),
        ("observation", r"--observation before\|after"),
        (
            "gripper",
            r"--gripper open_is_one\|closed_is_one\|minus_one_open\|plus_one_open\|position_m",
        ),
        ("action", r"--action delta\|absolute\|twist"),
        ("control_hz", r"--rate NUMBER"),
    ],
)
def test_a_missing_answer_is_asked_for_by_its_option(missing, option):
    given = {name: value for name, value in COMPLETE.items() if name != missing}
    with pytest.raises(ConfigError, match=rf"data/x is ambiguous\. Give {option} "):
        resolve_profile(given, {}, source="data/x")


def test_all_missing_answers_are_asked_for_at_once():
    with pytest.raises(ConfigError) as caught:
        resolve_profile({}, {"control_hz": 20.0})
    for option in ("--flip", "--observation", "--gripper", "--action", "--preset"):
        assert option in str(caught.value)
    assert "--rate" not in str(caught.value)


def test_the_user_wins_over_the_preset_and_the_preset_over_the_file():
    profile = resolve_profile(
        {"flip": "v", "gripper": None}, {"control_hz": 10.0}, preset="libero_rlds"
    )
    assert (profile.flip, profile.control_hz, profile.gripper) == ("v", 20.0, "minus_one_open")


def test_velocities_need_scales_and_poses_need_a_spelling_and_a_state():
    with pytest.raises(ConfigError, match=r"--translation-scale NUMBER.*--rotation-scale NUMBER"):
        resolve_profile({**COMPLETE, "action": "twist"}, {})
    scales = {"translation_scale": 0.05, "rotation_scale": 0.5}
    with pytest.raises(ConfigError, match=r"--rotation axis_angle\|euler_xyz"):
        resolve_profile({**COMPLETE, "action": "absolute", **scales}, {})
    with pytest.raises(ConfigError, match="--state none"):
        resolve_profile({**COMPLETE, "action": "absolute", "rotation": "euler_xyz", **scales}, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flip": "90"}, "--flip must be one of none, v, 180; got '90'"),
        ({"control_hz": 0.0}, "--rate must be positive"),
        ({"control_hz": float("nan")}, "--rate must be positive"),
        ({"image_size": -1}, "--image-size"),
        ({"action": "twist", "translation_scale": -1.0}, "--translation-scale must be positive"),
    ],
)
def test_impossible_values_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        IngestProfile(**{**COMPLETE, **change})


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(ConfigError, match="libero_original"):
        resolve_profile({}, {}, preset="libro")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_complete_but_for_the_rate(name):
    profile = resolve_profile({}, {"control_hz": 5.0}, preset=name)
    assert profile_from_text(profile.to_text()) == profile


def test_raw_libero_is_upside_down_and_sees_after_the_action():
    profile = resolve_profile({}, {}, preset="libero_original")
    assert (profile.flip, profile.observation) == ("180", "after")
    assert resolve_profile({}, {}, preset="libero_rlds").flip == "none"


def test_other_text_is_no_profile():
    with pytest.raises(ConfigError, match="expected an ingest profile"):
        profile_from_text("{}")


# --- the catalogue -------------------------------------------------------------------------------


def read_everything(name, path):
    source = open_source(name, [path], SourceOptions())
    return [raw for piece in source.pieces() for raw in source.read(piece)]


@pytest.mark.parametrize(
    ("name", "library"),
    [("libero_hdf5", "h5py"), ("rlds", "google_crc32c"), ("lerobot", "av"), ("rosbag2", "rosbags")],
)
def test_a_missing_library_names_the_extra(tmp_path, monkeypatch, name, library):
    pytest.importorskip(library)
    if name == "libero_hdf5":
        ds.write_hdf5(tmp_path / "set/a.hdf5", 1)
    elif name == "rlds":
        ds.write_rlds(tmp_path / "set", [[ds.rlds_episode()]])
    elif name == "lerobot":
        pytest.importorskip("pyarrow")
        ds.write_lerobot_v2(tmp_path / "set", (3,))
    else:
        (tmp_path / "set").mkdir()
        (tmp_path / "set/a.mcap").write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        read_everything(name, tmp_path / "set")


def test_unknown_formats_name_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=", ".join(FORMATS)):
        open_source("zarr", [tmp_path], SourceOptions())
