"""LIBERO HDF5: real tiny files, holes in the ids, damage, links, and limits."""

import numpy as np
import pytest
from demonstrations import data_sets as ds

pytest.importorskip("h5py")

import h5py

from heisd_ros.demonstrations.readers.libero_hdf5 import LiberoHdf5
from heisd_ros.demonstrations.source import SourceOptions
from heisd_ros.errors import DataError


def source(path, **options):
    return LiberoHdf5([path], SourceOptions(**options))


def read_all(path, **options):
    opened = source(path, **options)
    return [raw for piece in opened.pieces() for raw in opened.read(piece)]


def test_demonstrations_are_read_as_recorded(tmp_path):
    ds.write_hdf5(tmp_path / "push_demo.hdf5")
    opened = source(tmp_path)
    assert [p.name for p in opened.pieces()] == ["push_demo.hdf5:demo_0", "push_demo.hdf5:demo_2"]
    assert opened.settled == {"state": "axis_angle_fingers", "control_hz": 20.0}
    raw = read_all(tmp_path)[1]
    assert raw.actions[:, 0] == pytest.approx(ds.deltas()[:, 0])
    assert raw.actions[0, 6] == -1.0  # open, LIBERO's sign
    assert np.array_equal(raw.images["third_person"], ds.pictures(turn=180))
    assert raw.state[2] == pytest.approx([0.43, 0, 0.3, 0, 0, 0, 1, 0.08])
    assert (raw.instruction, raw.suite, raw.success) == (ds.TASK, "libero_goal", True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("KITCHEN_SCENE3_turn_on_the_stove_demo.hdf5", "turn on the stove"),
        ("LIVING_ROOM_SCENE10_put_it_away_demo.hdf5", "put it away"),
        ("open_the_middle_drawer_demo.hdf5", "open the middle drawer"),
    ],
)
def test_without_attributes_the_file_name_is_the_instruction(tmp_path, name, words):
    ds.write_hdf5(tmp_path / name, 1, attributes=False)
    assert read_all(tmp_path)[0].instruction == words
    assert "control_hz" not in source(tmp_path).settled
    assert read_all(tmp_path, instruction="other")[0].instruction == "other"


def test_a_file_that_was_cut_off_is_counted_and_the_others_are_read(tmp_path):
    ds.write_hdf5(tmp_path / "a.hdf5", 1)
    whole = ds.write_hdf5(tmp_path / "b.hdf5", 1).read_bytes()
    (tmp_path / "b.hdf5").write_bytes(whole[: len(whole) // 2])
    opened = source(tmp_path)
    assert [piece.name for piece in opened.pieces()] == ["a.hdf5:demo_0"]
    (reason,) = opened.lost
    assert "b.hdf5 is damaged or cut off" in reason
    (tmp_path / "a.hdf5").unlink()
    with pytest.raises(DataError, match="no demonstration in"):
        source(tmp_path).pieces()


def no_wrist(demo):
    del demo["obs/eye_in_hand_rgb"]


def no_actions(demo):
    del demo["actions"]


def flat_pictures(demo):
    del demo["obs/agentview_rgb"]
    demo["obs/agentview_rgb"] = np.zeros((ds.STEPS, 4, 4), dtype=np.uint8)


def huge_pictures(demo):
    del demo["obs/agentview_rgb"]
    # 100,000 unpacked pictures of 4096 x 4096, in a file of some kilobytes.
    demo["obs"].create_dataset(
        "agentview_rgb", (99_000, 4096, 4096, 3), np.uint8, chunks=(1, 64, 64, 3)
    )


def text_actions(demo):
    del demo["actions"]
    demo["actions"] = [b"left", b"right"]


def link_to_another_file(demo):
    del demo["actions"]
    demo["actions"] = h5py.ExternalLink("/etc/other.hdf5", "/secret")


def soft_link(demo):
    del demo["actions"]
    demo["actions"] = h5py.SoftLink("/data/demo_0/actions")


def numbers_in_another_file(demo):
    del demo["actions"]
    demo.create_dataset("actions", (8, 7), "f8", external=[("/etc/passwd", 0, 448)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_wrist, r"no pictures 'obs/eye_in_hand_rgb'; give --camera NAME=KEY.*agentview_rgb"),
        (no_actions, "has no 'actions'; it holds dones, obs"),
        (flat_pictures, r"must have shape \(T, H, W, 3\)"),
        (huge_pictures, "pictures of 4096x4096 are refused"),
        (text_actions, "must hold numbers"),
        (link_to_another_file, "is a link to elsewhere and is refused"),
        (soft_link, "is a link to elsewhere and is refused"),
        (numbers_in_another_file, "lies in another file and is refused"),
    ],
)
def test_an_unusable_demonstration_is_refused_and_the_others_stay_readable(
    tmp_path, change, message
):
    ds.write_hdf5(tmp_path / "push.hdf5", change=change)
    opened = source(tmp_path)
    good, bad = opened.pieces()
    with pytest.raises(DataError, match=message):
        list(opened.read(bad))
    assert len(list(opened.read(good))) == 1


def test_other_cameras_can_be_named(tmp_path):
    ds.write_hdf5(tmp_path / "push.hdf5", 1)
    (raw,) = read_all(tmp_path, cameras={"front": "agentview_rgb"})
    assert list(raw.images) == ["front"]


def test_a_folder_without_files_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"no file ending in \.hdf5 or \.h5"):
        source(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        source(tmp_path / "nothing")
