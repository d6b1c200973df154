"""Episodes to LeRobot v3 and back."""

import json

import numpy as np
import pytest
from demonstrations import data_sets as ds

pytest.importorskip("pyarrow")
pytest.importorskip("av")

import pyarrow.parquet as pq

from heisd_ros import cli
from heisd_ros.demonstrations.episode import Episode, read_episodes, save_episode
from heisd_ros.demonstrations.lerobot_writer import LerobotWriter
from heisd_ros.errors import DataError


def episode(steps=ds.STEPS, number=0, side=ds.SIDE, **changes):
    actions = ds.deltas(steps).astype(np.float32)
    actions[:, 1] = 0.001 * number
    state = np.zeros((steps, 8), dtype=np.float32)
    state[:, :3] = ds.positions(steps)
    state[:, 6], state[:, 7] = 1.0, 2 * ds.fingers(steps)[:, 0]
    fields = {
        "images": np.stack([ds.pictures(steps, view, side) for view in (0, 1)], axis=1),
        "actions": actions,
        "state": state,
        "instruction": ds.TASK if number % 2 == 0 else "pull it",
        "cameras": ("third_person", "wrist"),
        "control_hz": 20.0,
        "success": number != 2,
        "source": {"number": str(number)},
    }
    return Episode(**{**fields, **changes})


NOTHING = Episode(
    np.zeros((0, 2, 16, 16, 3), np.uint8), np.zeros((0, 7)), np.zeros((0, 8)), "", ("a", "b"), 20.0
)
EPISODES = [episode(8), episode(7, 1), episode(6, 2)]


def written(out, **options):
    with LerobotWriter(out, **options) as writer:
        for one in EPISODES:
            writer.add_episode(one)
        return writer.finish()


def read_back(folder, out):
    assert (
        cli.main(
            ["ingest", "--source", "lerobot", str(folder), "--preset", "heisd", "--out", str(out)]
        )
        == 0
    )
    found = list(read_episodes(out, failed=True))
    return sorted(found, key=lambda one: -len(one))


def test_png_data_set_comes_back_equal(tmp_path, capsys):
    folder = written(tmp_path / "set", pictures="png")
    for one, back in zip(EPISODES, read_back(folder, tmp_path / "out"), strict=True):
        for name in ("images", "actions", "state"):
            assert np.array_equal(getattr(back, name), getattr(one, name)), name
        for name in ("instruction", "cameras", "control_hz", "success"):
            assert getattr(back, name) == getattr(one, name)
    assert "written   3 episodes (2 solved)" in capsys.readouterr().out


@pytest.mark.parametrize("frames_per_file", [5, 1000])
def test_video_data_set_comes_back_with_equal_numbers_and_near_pictures(tmp_path, frames_per_file):
    folder = written(tmp_path / "set", frames_per_file=frames_per_file)
    back = read_back(folder, tmp_path / "out")
    for one, found in zip(EPISODES, back, strict=True):
        assert np.array_equal(found.actions, one.actions)
        # The corner's red 10, 11, 12 ... tells the step; chroma is stored at half the size.
        difference = found.images.astype(int)[:, :, 2:6, 2:6] - one.images[:, :, 2:6, 2:6]
        assert np.abs(difference).max() < 12
    # Red rises by 1 per step: a shift by one frame would show in the mean over all pictures.
    red = back[0].images[:, 0, 2:6, 2:6, 0].mean(axis=(1, 2))
    assert red[-1] - red[0] == pytest.approx(7.0, abs=3.0)
    files = len(list((folder / "data/chunk-000").iterdir()))
    assert files == (3 if frames_per_file == 5 else 1)


def test_the_description_is_that_of_the_format(tmp_path):
    folder = written(tmp_path / "set")
    info = json.loads((folder / "meta/info.json").read_text())
    assert (info["codebase_version"], info["fps"]) == ("v3.0", 20)
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (3, 21, 2)
    assert info["features"]["observation.images.wrist"]["shape"] == [16, 16, 3]
    rows = pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    second = rows[1]
    assert (second["dataset_from_index"], second["dataset_to_index"]) == (8, 15)
    assert second["videos/observation.images.wrist/from_timestamp"] == pytest.approx(0.4)
    assert second["stats/action/max"][0] == pytest.approx(0.07)
    table = pq.read_table(folder / "data/chunk-000/file-000.parquet")
    assert table["index"].to_pylist() == list(range(21))
    assert table["task_index"].to_pylist() == [0] * 8 + [1] * 7 + [0] * 6
    tasks = pq.read_table(folder / "meta/tasks.parquet")
    assert tasks["task"].to_pylist() == [ds.TASK, "pull it"]
    origins = json.loads((folder / "meta/heisd.json").read_text())["episodes"]
    assert [origin["number"] for origin in origins] == ["0", "1", "2"]


def test_statistics_of_all_episodes_are_those_of_all_rows(tmp_path):
    folder = written(tmp_path / "set", pictures="png")
    stats = json.loads((folder / "meta/stats.json").read_text())["action"]
    every = np.concatenate([one.actions for one in EPISODES]).astype(np.float64)
    assert stats["mean"] == pytest.approx(every.mean(axis=0).tolist())
    assert stats["std"] == pytest.approx(every.std(axis=0).tolist(), abs=1e-9)
    assert stats["max"] == pytest.approx(every.max(axis=0).tolist())
    assert stats["count"] == [21]


def test_pandas_finds_the_tasks_by_their_index(tmp_path):
    pandas = pytest.importorskip("pandas")
    tasks = pandas.read_parquet(written(tmp_path / "set") / "meta/tasks.parquet")
    assert tasks.loc["pull it"].task_index == 1


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (episode(control_hz=10.0), "expected rate 20.0 like the first episode, got 10.0"),
        (episode(side=32), "expected picture size"),
        (episode(control_hz=7.5), "whole frames per second"),
        (episode(side=15), "even sides, got 15x15; use --pictures png"),
        (NOTHING, "without steps"),
    ],
)
def test_episodes_that_do_not_fit_are_refused_and_nothing_is_left(tmp_path, second, message):
    with LerobotWriter(tmp_path / "set") as writer:
        writer.add_episode(EPISODES[0])
        with pytest.raises(DataError, match=message):
            writer.add_episode(second)
    assert list(tmp_path.iterdir()) == []


def test_the_verb_exports_solved_episodes(tmp_path, capsys):
    for number, one in enumerate(EPISODES):
        save_episode(tmp_path / f"demos/{number}.npz", one)
    arguments = ["export", "--demos", str(tmp_path / "demos"), "--out", str(tmp_path / "set")]
    assert cli.main(arguments) == 0
    assert "wrote 2 episodes, 15 steps" in capsys.readouterr().out
    assert cli.main(arguments) == 2
    assert "is not empty" in capsys.readouterr().err
    assert cli.main([*arguments[:-1], str(tmp_path / "all"), "--failed"]) == 0
    assert "wrote 3 episodes, 21 steps" in capsys.readouterr().out
