"""The files of verify-skip: round trips, and every way in which one may be wrong."""

import json

import pytest

from heisd_ros.errors import ConfigError, DataError
from heisd_ros.verify.audit import AuditRecord
from heisd_ros.verify.skip_table import SkipCalibration, SkipState, SkipTable
from heisd_ros.verify.skip_thresholds import SkipThresholds

BOWL = SkipThresholds(0.97, 0.012, pairs=6)
TABLE = SkipTable(SkipThresholds(0.94, 0.021), {"bowl": BOWL, "plate": None})


def calibration():
    return SkipCalibration("spatial", {"paper": TABLE, "calibrated": SkipTable(None)}, {"a": 1})


def edit(path, **changes):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def test_unknown_tasks_get_the_default_and_listed_ones_their_own():
    assert TABLE.of("bowl") == BOWL
    assert TABLE.of("cup").max_distance == 0.021
    assert TABLE.of("plate") is None


def test_feedback_for_an_unknown_task_leaves_the_default_alone():
    moved = TABLE.after_task("cup", success=True)
    assert moved.of("cup").max_distance == pytest.approx(0.02205)
    assert (moved.default, moved.of("bowl")) == (TABLE.default, BOWL)
    assert TABLE.after_task("plate", success=True) == TABLE


def test_a_calibration_survives_its_file(tmp_path):
    calibration().save(tmp_path / "deep/skip.json")
    assert SkipCalibration.load(tmp_path / "deep/skip.json") == calibration()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["skip.json"]


def test_a_state_survives_its_file(tmp_path):
    state = SkipState(TABLE.after_task("bowl", False), AuditRecord(60, 2), TABLE.digest)
    state.save(tmp_path / "state.json")
    assert SkipState.load(tmp_path / "state.json", TABLE.digest) == state


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"format": "something else"}', "\x00"])
def test_a_damaged_or_foreign_file_is_an_error(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"file\.json"):
        SkipCalibration.load(path)
    with pytest.raises(DataError, match="state_fresh"):
        SkipState.load(path, "x")


def test_a_missing_calibration_names_the_command(tmp_path):
    with pytest.raises(DataError, match="heisd calibrate --skip"):
        SkipCalibration.load(tmp_path / "none.json")


def test_a_changed_value_is_noticed(tmp_path):
    path = tmp_path / "skip.json"
    calibration().save(path)
    edit(path, suite="other")
    with pytest.raises(DataError, match="checksum"):
        SkipCalibration.load(path)


def test_one_kind_of_file_is_not_taken_for_the_other(tmp_path):
    calibration().save(tmp_path / "a.json")
    with pytest.raises(DataError, match="heisd skip state"):
        SkipState.load(tmp_path / "a.json", TABLE.digest)


def test_a_state_of_another_calibration_is_refused(tmp_path):
    SkipState.fresh(TABLE).save(tmp_path / "state.json")
    with pytest.raises(DataError, match=f"expected other, got {TABLE.digest}"):
        SkipState.load(tmp_path / "state.json", "other")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_similarity", 1.2),
        ("min_similarity", float("nan")),
        ("max_distance", -0.1),
        ("max_distance", float("inf")),
        ("floor", 2.0),
        ("pairs", -1),
        ("pairs", "many"),
        ("max_distance", None),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    values = {**SkipThresholds(0.94, 0.021).to_dict(), name: value}
    with pytest.raises((DataError, ConfigError)):
        SkipThresholds.from_dict(values)


def test_a_file_with_a_value_out_of_range_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "skip.json"
    monkeypatch.setattr(SkipThresholds, "to_dict", lambda self: {"max_distance": -1, "pairs": 0})
    calibration().save(path)
    with pytest.raises(DataError, match=r"skip\.json"):
        SkipCalibration.load(path)


def test_more_failures_than_audits_are_refused(tmp_path):
    path = tmp_path / "state.json"
    state = SkipState.fresh(TABLE)
    object.__setattr__(state.audits, "failures", 5)
    state.save(path)
    with pytest.raises(DataError, match="5 of 0"):
        SkipState.load(path, TABLE.digest)


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        SkipState.fresh(TABLE).save(tmp_path / "file" / "state.json")
