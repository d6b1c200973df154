"""A run record survives the disk, and says plainly when it cannot be read."""

import json
import math

import numpy as np
import pytest
from offline.synthetic_run import some_run

from heisd_ros.errors import DataError
from heisd_ros.offline import run_record
from heisd_ros.offline.moments import gripper_changes, key_moments
from heisd_ros.offline.run_record import StepRow, is_record, load_record, save_record


def test_a_record_reads_back_as_it_was_written(tmp_path):
    run = some_run(steps=12, counts={"/odd: unknown type": 3}, notes=("a remark",))
    back = load_record(save_record(run, tmp_path / "run"))
    assert back.rows == run.rows
    assert (back.instruction, back.method, back.success) == (run.instruction, "heisd", True)
    assert (back.config, back.counts, back.notes) == (run.config, run.counts, run.notes)
    for frame, was in zip(back.frames, run.frames, strict=True):
        assert np.array_equal(frame.image, was.image)
        assert (frame.moment, frame.step, frame.camera) == (was.moment, was.step, was.camera)


def test_what_is_not_a_number_survives_as_such_and_the_file_stays_json(tmp_path):
    run = some_run("ar", steps=2, frames=())
    folder = save_record(run, tmp_path)
    json.loads((folder / "run.json").read_text(), parse_constant=pytest.fail)
    row = load_record(folder).rows[0]
    assert math.isnan(row.threshold)
    assert math.isnan(row.top_score)
    assert all(math.isnan(value) for value in row.twist)


def test_saving_again_leaves_no_old_pictures(tmp_path):
    save_record(some_run(steps=30), tmp_path)
    save_record(some_run(steps=30, frames=()), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "damaged"), ('{"format": 99}', "format 99, expected 1"), ('{"format": 1}', "damaged")],
)
def test_a_broken_record_is_refused(tmp_path, text, words):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DataError, match=words):
        load_record(tmp_path)


def test_a_folder_without_a_record_is_refused(tmp_path):
    assert not is_record(tmp_path)
    with pytest.raises(DataError, match=r"holds no run\.json"):
        load_record(tmp_path)


def test_a_crash_is_not_a_failure():
    assert some_run(success=False).outcome == "failure"
    assert some_run(success=False, crash="RuntimeError: no").outcome == "crash"
    assert some_run(success=None).outcome == "not judged"


def path_row(height, opening):
    return StepRow(0.0, position=(0.0, 0.0, height), gripper_command=opening)


def test_moments_are_start_grasp_lift_placement_and_end():
    heights = [0.20, 0.10, 0.10, 0.12, 0.14, 0.11, 0.11, 0.15]
    openings = [1, 1, 0, 0, 0, 0, 1, 1]
    rows = [path_row(z, float(o)) for z, o in zip(heights, openings, strict=True)]
    # Closes at step 2 (z 0.10); 3 cm higher for the first time at step 4 (z 0.14).
    assert [(m.name, m.step) for m in key_moments(rows)] == [
        ("start", 0),
        ("gripper closes", 2),
        ("lift", 4),
        ("gripper opens", 6),
        ("end", 7),
    ]


def test_a_run_that_never_grasps_has_a_start_and_an_end():
    rows = [path_row(0.2, 1.0)] * 3
    assert [m.name for m in key_moments(rows)] == ["start", "end"]
    assert [m.name for m in key_moments(rows[:1])] == ["start"]
    assert key_moments([]) == ()


def test_an_unknown_gripper_command_changes_nothing():
    rows = [path_row(0.2, o) for o in (1.0, math.nan, 0.0, math.nan, 0.0, 1.0)]
    assert gripper_changes(rows) == ((2, False), (5, True))


@pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png", "sub/frame.png"])
def test_a_record_that_names_pictures_outside_its_folder_is_refused(tmp_path, name):
    folder = save_record(some_run(), tmp_path / "run")
    content = json.loads((folder / "run.json").read_text())
    (tmp_path / "secret.png").write_bytes((folder / content["frames"][0]["file"]).read_bytes())
    content["frames"][0]["file"] = name
    (folder / "run.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="outside"):
        load_record(folder)


def test_a_picture_of_a_record_is_bounded_and_must_be_a_png(tmp_path, monkeypatch):
    folder = save_record(some_run(), tmp_path / "run")
    monkeypatch.setattr(run_record, "MAX_PIXELS", 1)
    with pytest.raises(DataError, match="more than 1 pixels"):
        load_record(folder)
    monkeypatch.undo()
    (folder / "frame_00.png").write_bytes(b"GIF89a" + bytes(20))
    with pytest.raises(DataError, match="damaged"):
        load_record(folder)
