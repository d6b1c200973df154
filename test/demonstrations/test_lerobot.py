"""LeRobot v2.1 and v3 trees with real parquet files and videos."""

import json

import numpy as np
import pytest
from demonstrations import data_sets as ds

pytest.importorskip("pyarrow")
pytest.importorskip("av")

from heisd_ros.demonstrations.readers.lerobot import BEYOND, Lerobot
from heisd_ros.demonstrations.readers.lerobot_meta import inside, read_meta
from heisd_ros.demonstrations.source import SourceOptions
from heisd_ros.errors import ConfigError, DataError

WRITERS = {"v2": ds.write_lerobot_v2, "v3": ds.write_lerobot_v3}


def source(path, **options):
    return Lerobot([path], SourceOptions(**{"state": "axis_angle_fingers", **options}))


def read_all(opened):
    return [raw for piece in opened.pieces() for raw in opened.read(piece)]


@pytest.mark.parametrize("version", WRITERS)
def test_episodes_are_read_exactly(tmp_path, version):
    opened = source(WRITERS[version](tmp_path / "set"))
    assert [piece.name for piece in opened.pieces()] == ["episode_000000", "episode_000001"]
    assert opened.settled == {"control_hz": 10.0}
    first, second = read_all(opened)
    assert (len(first.actions), len(second.actions)) == (ds.STEPS, ds.STEPS - 1)
    assert first.actions[:, 6].tolist() == [-1, -1, -1, -1, 1, 1, 1, 1]
    assert second.actions[3, :2] == pytest.approx([0.04, 0.001])
    for view, camera in enumerate(("third_person", "wrist")):
        assert np.array_equal(first.images[camera], ds.pictures(view=view))
        assert np.array_equal(second.images[camera], ds.pictures(ds.STEPS - 1, view))
    assert first.state[2] == pytest.approx([0.43, 0, 0.3, 0, 0, 0, 1, 0.08])
    assert (first.instruction, first.success) == (ds.TASK, None)


def test_an_episode_may_begin_anywhere_in_a_video(tmp_path):
    lengths = (3, 40, 5)
    root = ds.write_lerobot_v3(tmp_path / "set", lengths)
    opened = source(root)
    last = next(opened.read(opened.pieces()[2]))
    assert np.array_equal(last.images["wrist"], ds.pictures(5, 1))


def shorten_video(root, key=ds.CAMERAS[0], episode=1, steps=4):
    path = root / f"videos/chunk-000/{key}/episode_{episode:06d}.mp4"
    ds.write_video(path, ds.pictures(steps))


def test_a_video_with_too_few_pictures_loses_its_episode_only(tmp_path):
    root = ds.write_lerobot_v2(tmp_path / "set")
    shorten_video(root)
    opened = source(root)
    good, bad = opened.pieces()
    with pytest.raises(DataError, match="has 4 of 7 pictures"):
        list(opened.read(bad))
    assert len(list(opened.read(good))) == 1


@pytest.mark.parametrize("share", [0, 3])
def test_a_video_that_was_cut_off_is_named(tmp_path, share):
    root = ds.write_lerobot_v2(tmp_path / "set", (4,))
    path = root / f"videos/chunk-000/{ds.CAMERAS[1]}/episode_000000.mp4"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * share // 4])
    with pytest.raises(DataError, match=r"episode_000000\.mp4"):
        read_all(source(root))


def test_a_video_of_another_rate_is_refused(tmp_path):
    root = ds.write_lerobot_v2(tmp_path / "set", (8,))
    path = root / f"videos/chunk-000/{ds.CAMERAS[0]}/episode_000000.mp4"
    ds.write_video(path, ds.pictures(8), fps=7)
    with pytest.raises(DataError, match="another rate"):
        read_all(source(root))


def test_a_table_that_was_cut_off_is_named(tmp_path):
    root = ds.write_lerobot_v2(tmp_path / "set", (4,))
    path = root / "data/chunk-000/episode_000000.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"episode_000000\.parquet is missing or damaged"):
        read_all(source(root))


def one_row_less(rows):
    return {name: values[:-1] for name, values in rows.items()}


def two_tasks(rows):
    return {**rows, "task_index": np.arange(len(rows["index"])) % 2}


def backwards(rows):
    return {**rows, "timestamp": rows["timestamp"][::-1]}


def no_action(rows):
    return {name: values for name, values in rows.items() if name != "action"}


def ragged(rows):
    return {**rows, "action": [[1.0] * (6 + i % 2) for i in range(len(rows["index"]))]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (one_row_less, r"expected 7 rows .* got 6; it was cut off"),
        (two_tasks, r"mixes tasks \[0, 1\]"),
        (backwards, "timestamps do not ascend"),
        (no_action, "has no column 'action'"),
        (ragged, "several lengths"),
    ],
)
def test_an_unusable_episode_is_refused(tmp_path, change, message):
    opened = source(ds.write_lerobot_v2(tmp_path / "set", change=change))
    good, bad = opened.pieces()
    with pytest.raises(DataError, match=message):
        list(opened.read(bad))
    assert len(list(opened.read(good))) == 1


def test_statistics_that_the_actions_contradict_are_noticed(tmp_path):
    right = {"action": {"min": [-1.0] * 7, "max": [1.0] * 7}}
    root = ds.write_lerobot_v2(tmp_path / "set", (8,), stats=right)
    assert read_all(source(root))[0].notes == {BEYOND: 0}
    wrong = {"action": {"min": [-1.0] * 7, "max": [0.045] + [1.0] * 6}}
    (root / "meta/stats.json").write_text(json.dumps(wrong))
    assert read_all(source(root))[0].notes == {BEYOND: 4}  # 0.05, 0.06, 0.07 and 0.08 m


def test_cameras_of_other_names_must_be_given(tmp_path):
    features = ds._features(cameras=("observation.images.left", "observation.images.right"))
    root = ds.write_lerobot_v2(tmp_path / "set", (4,), features=features)
    with pytest.raises(ConfigError, match=r"observation\.images\.left, .*give --camera third_per"):
        source(root)
    with pytest.raises(ConfigError, match="its cameras are"):
        source(root, cameras={"wrist": "observation.images.top"})


@pytest.mark.parametrize(
    "template",
    [
        "../../etc/{episode_index:06d}.parquet",
        "/etc/passwd",
        "data/../../{episode_index}.parquet",
        "{episode_index.__class__}",
        "{secret}",
    ],
)
def test_paths_out_of_the_data_set_are_refused(tmp_path, template):
    root = ds.write_lerobot_v2(tmp_path / "set", (4,), data_path=template)
    with pytest.raises(DataError, match=r"refused|unknown field"):
        read_meta(root)


def test_templates_fill_plain_fields_only(tmp_path):
    fields = {"chunk_index": 7, "video_key": "observation.images.image"}
    filled = inside(tmp_path, "videos/{video_key}/chunk-{chunk_index:03d}.mp4", fields)
    assert filled == tmp_path / "videos/observation.images.image/chunk-007.mp4"
    with pytest.raises(DataError, match="refused"):
        inside(tmp_path, "videos/{video_key}", {"video_key": "../../x"})


def no_number(entries):
    entries[0]["data/file_index"] = -1


def no_time(entries):
    entries[0][f"videos/{ds.CAMERAS[0]}/from_timestamp"] = float("nan")


@pytest.mark.parametrize("change", [no_number, no_time])
def test_damaged_v3_description_is_refused(tmp_path, change):
    root = ds.write_lerobot_v3(tmp_path / "set", (4,), episodes_change=change)
    with pytest.raises(DataError, match="meta is damaged"):
        read_meta(root)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"codebase_version": "v1.6"}, r"expected codebase_version v2\.x or v3\.x"),
        ({"fps": 0}, "fps is 0"),
        ({"features": None}, "has no features"),
    ],
)
def test_unusable_info_is_refused(tmp_path, info, message):
    root = ds.write_lerobot_v2(tmp_path / "set", (4,))
    content = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps({**content, **info}))
    with pytest.raises(DataError, match=message):
        read_meta(root)


def test_a_folder_that_is_no_data_set_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"info\.json is missing or damaged"):
        source(tmp_path)
    with pytest.raises(ConfigError, match="one folder at a time"):
        Lerobot([tmp_path, tmp_path], SourceOptions())
