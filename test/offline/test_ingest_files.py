"""`heisd ingest --source ...`: from a user's data set to episodes, and on to a store."""

from __future__ import annotations

import json

import numpy as np
import pytest
from demonstrations import data_sets as ds

pytest.importorskip("h5py")

from heisd_ros import cli
from heisd_ros.demonstrations import ingestion
from heisd_ros.demonstrations.episode import read_episodes
from heisd_ros.demonstrations.ingest_journal import (
    IngestJournal,
    PieceResult,
    WrittenEpisode,
    open_journal,
    read_ingests,
)
from heisd_ros.demonstrations.ingestion import episode_path
from heisd_ros.errors import DataError

PROFILE = [
    *("--flip", "180", "--observation", "before", "--gripper", "minus_one_open"),
    *("--action", "delta"),
]


def ingest(source, *arguments):
    return cli.main(["ingest", "--source", source, *map(str, arguments)])


@pytest.fixture
def data(tmp_path):
    ds.write_hdf5(tmp_path / "data/push_demo.hdf5", 3)
    return tmp_path / "data"


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.npz"))


def test_a_data_set_becomes_episodes_with_its_profile_and_a_report(data, tmp_path, capsys):
    out = tmp_path / "out"
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE) == 0
    episodes = list(read_episodes(out))
    assert len(episodes) == 3
    assert np.array_equal(episodes[0].images[:, 0], ds.pictures())
    assert episodes[0].actions[:, 6].tolist() == ds.openings().tolist()
    profile = json.loads(episodes[0].source["profile"])
    assert (profile["flip"], profile["control_hz"]) == ("180", 20.0)
    report = capsys.readouterr().out
    assert "written   3 episodes (3 solved), 24 of 24 steps" in report
    assert "gripper           minus_one_open" in report
    assert "left out  episodes: none" in report
    assert report.splitlines()[-1].split() == ["3", "24", "24", "push", "the", "plate"]


def test_an_ambiguous_data_set_is_refused_and_nothing_is_written(data, tmp_path, capsys):
    assert ingest("libero_hdf5", data, "--out", tmp_path / "out", "--flip", "180") == 2
    error = capsys.readouterr().err
    for option in ("--observation", "--gripper", "--action", "--preset libero_original|"):
        assert option in error
    assert not (tmp_path / "out").exists()


def test_everything_dropped_is_counted(data, tmp_path, capsys):
    def not_finite(demo):
        demo["actions"][3, 2] = np.nan

    def copy_of_the_first(demo):
        actions = demo["actions"][()]
        actions[:, 1] = 0.0
        demo["actions"][()] = actions

    ds.write_hdf5(data / "b.hdf5", 2, change=not_finite)
    ds.write_hdf5(data / "c.hdf5", 2, change=copy_of_the_first)
    (data / "d.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n cut off")
    out = tmp_path / "out"
    preset = ["--preset", "libero_original", "--no-ops", "drop"]
    assert ingest("libero_hdf5", data, "--out", out, *preset) == 0
    report = capsys.readouterr().out
    # b:0, c:0 and c:2 have the actions and pictures of push:0.
    assert "written   3 episodes (3 solved), 21 of 32 steps" in report
    assert "3  duplicates of another episode" in report
    assert "1  actions are not finite; repair the recording" in report
    assert "d.hdf5 is damaged or cut off" in report
    assert "6  steps without an action after their picture" in report
    assert len(files(out)) == 3


def test_a_wrong_sign_writes_nothing_and_names_the_option(data, tmp_path, capsys):
    out = tmp_path / "out"
    wrong = ["--preset", "libero_regenerated", "--gripper", "plus_one_open"]
    assert ingest("libero_hdf5", data, "--out", out, *wrong) == 2
    assert "--gripper plus_one_open has the wrong sign" in capsys.readouterr().err
    assert not files(out)
    # Nothing was written, so the folder takes the right profile.
    assert ingest("libero_hdf5", data, "--out", out, "--preset", "libero_regenerated") == 0
    assert len(files(out)) == 3


def test_a_task_that_loses_most_of_its_steps_is_an_error_unless_allowed(tmp_path, capsys):
    def rests(demo):
        demo["actions"][2:, :3] = 0.0
        demo["actions"][:, 6] = -1.0
        demo["obs/gripper_states"][()] = 0.04

    ds.write_hdf5(tmp_path / "push.hdf5", 1, change=rests)
    arguments = [tmp_path / "push.hdf5", "--out", tmp_path / "out", *PROFILE, "--no-ops", "drop"]
    assert ingest("libero_hdf5", *arguments) == 2
    error = capsys.readouterr().err
    assert "'push the plate' (6 of 8 steps), most often because: steps that do nothing" in error
    assert ingest("libero_hdf5", *arguments, "--max-lost", "1") == 0


def test_a_second_run_goes_on_where_the_first_one_ended(data, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE, "--limit", 2) == 0
    journal = out / "ingest.jsonl"
    # Killed while it wrote the third line, and while it wrote the third episode.
    journal.write_text(journal.read_text() + '{"piece": "push_demo.hd')
    (out / "push_the_plate/x.npz.77.part").write_bytes(b"PK")
    done = []
    once = ingestion.convert
    monkeypatch.setattr(
        ingestion, "convert", lambda raw, *a, **k: done.append(raw.name) or once(raw, *a, **k)
    )
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE) == 0
    assert done == ["push_demo.hdf5:demo_4"]
    assert "written   3 episodes" in capsys.readouterr().out
    assert len(files(out)) == 3
    assert not list(out.rglob("*.part"))


def test_a_lost_episode_file_is_made_again(data, tmp_path):
    out = tmp_path / "out"
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE) == 0
    (out / files(out)[1]).unlink()
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE) == 0
    assert len(files(out)) == 3


def test_another_profile_does_not_mix_with_written_episodes(data, tmp_path, capsys):
    out = tmp_path / "out"
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE) == 0
    assert ingest("libero_hdf5", data, "--out", out, "--preset", "libero_original") == 2
    assert "was begun with another profile; give another --out" in capsys.readouterr().err


def test_several_processes_write_the_same_episodes(data, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert ingest("libero_hdf5", data, "--out", one, *PROFILE) == 0
    assert ingest("libero_hdf5", data, "--out", two, *PROFILE, "--processes", 2) == 0
    assert files(one) == files(two)
    for a, b in zip(read_episodes(one), read_episodes(two), strict=True):
        assert np.array_equal(a.images, b.images)
        assert np.array_equal(a.actions, b.actions)


def test_a_full_disk_is_one_sentence_and_the_rest_is_kept(data, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE, "--limit", 1) == 0

    def full(path, episode):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ingestion, "save_episode", full)
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE) == 2
    assert "No space left on device; all complete episodes are kept" in capsys.readouterr().err
    monkeypatch.undo()
    assert ingest("libero_hdf5", data, "--out", out, *PROFILE) == 0
    assert len(files(out)) == 3


def statistics(tmp_path, q99):
    action = {"q01": [-q99] * 7, "q99": [q99] * 7, "mask": [True] * 6 + [False]}
    path = tmp_path / f"statistics_{q99}.json"
    path.write_text(json.dumps({"libero": {"action": action}}))
    return path


def test_statistics_of_another_checkpoint_are_an_error(data, tmp_path, capsys):
    common = [data, "--out", tmp_path / "out", *PROFILE]
    assert ingest("libero_hdf5", *common, "--statistics", statistics(tmp_path, 0.1)) == 0
    assert "statistics of 'libero' fit" in capsys.readouterr().out
    assert ingest("libero_hdf5", *common, "--statistics", statistics(tmp_path, 0.04)) == 2
    assert "do not belong to these demonstrations: 50% of action axis 0" in capsys.readouterr().err


def test_rlds_and_lerobot_are_one_command_each(tmp_path, capsys):
    pytest.importorskip("google_crc32c")
    pytest.importorskip("av")
    ds.write_rlds(tmp_path / "r", [[ds.rlds_episode(number=n) for n in range(2)]])
    ds.write_lerobot_v3(tmp_path / "l")
    for source, folder in (("rlds", "r"), ("lerobot", "l")):
        out = tmp_path / f"{source}_out"
        preset = f"libero_{source}"
        assert ingest(source, tmp_path / folder, "--out", out, "--preset", preset) == 0
        episodes = list(read_episodes(out))
        assert len(episodes) == 2
        assert np.array_equal(episodes[0].images[:, 1], ds.pictures(view=1))
        assert episodes[0].actions[:, 6].tolist() == ds.openings().tolist()
        assert episodes[0].control_hz == 20.0  # the LeRobot mirror says 10
        assert episodes[0].state[2, :3] == pytest.approx([0.43, 0, 0.3])
    assert "2  episodes without a verdict, believed to be solved" in capsys.readouterr().out


def test_a_bag_is_one_command(tmp_path, capsys):
    pytest.importorskip("rosbags")
    from offline import bag_maker as maker

    maker.write_bag(tmp_path / "bags/run", maker.episode(8))
    settings = ["--set", "command.control_hz=20", "--set", "command.translation_scale=0.05"]
    out = tmp_path / "out"
    assert ingest("rosbag2", tmp_path / "bags", "--out", out, *settings) == 2
    assert "--flip none|v|180" in capsys.readouterr().err
    assert ingest("rosbag2", tmp_path / "bags", "--out", out, *settings, "--flip", "none") == 0
    (episode,) = read_episodes(out)
    assert episode.actions[3] == pytest.approx([0.1, 0, 0, 0, 0, 0, 1.0])
    assert np.array_equal(episode.images[3, 1], maker.picture(3, "wrist"))
    assert (episode.suite, episode.task) == ("libero_spatial", 2)


@pytest.mark.parametrize("arguments", [[], ["--source", "zarr"], ["--expert", "--source", "rlds"]])
def test_unknown_or_contradicting_sources_end_with_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ending:
        cli.main(["ingest", *arguments])
    assert ending.value.code == 2
    assert "libero_hdf5" in capsys.readouterr().err or "--source" in arguments


# --- the journal ---------------------------------------------------------------------------------


def test_names_from_a_data_set_cannot_leave_the_folder():
    path = episode_path("../../etc/pass wd", "/../x:demo_1")
    assert path.parts[0] == "etc_pass_wd"
    assert len(path.parts) == 2
    assert path.name.startswith("x_demo_1-")
    assert episode_path("", "a").parts[0] == "task"
    assert episode_path("t", "a b") != episode_path("t", "a_b")


def test_only_one_ingest_writes_to_a_folder(tmp_path):
    with open_journal(tmp_path, {"a": 1}), pytest.raises(DataError, match="another ingest"):  # noqa: SIM117
        with open_journal(tmp_path, {"a": 1}):
            pass


def test_counts_survive_a_restart(tmp_path):
    episode = WrittenEpisode("t/a.npz", "t", 7, 5, True, "d")
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a.npz").write_bytes(b"")
    IngestJournal(tmp_path, {}).add(PieceResult("p", (episode,), {"t": 7}, {"x": 1}, {"y": 2}))
    totals = IngestJournal(tmp_path, {}).totals()
    assert totals.episodes == (episode,)
    assert (totals.recorded, totals.dropped_episodes, totals.dropped_steps) == (
        {"t": 7},
        {"x": 1},
        {"y": 2},
    )
    ((_, found),) = read_ingests(tmp_path)
    assert found == totals


# --- the whole way -------------------------------------------------------------------------------


@pytest.mark.torch
def test_from_a_users_hdf5_to_a_store_with_the_tiny_model(tmp_path, capsys):
    pytest.importorskip("torch")
    from heisd_ros.demonstrations.store import MemoryStore
    from heisd_ros.models.tiny import make_tiny_checkpoint

    checkpoint = make_tiny_checkpoint(tmp_path / "ckpt", views=2)
    ds.write_hdf5(tmp_path / "data/push_demo.hdf5", 3, side=32)
    out, store = tmp_path / "out", tmp_path / "store"
    source = [tmp_path / "data", "--out", out, "--preset", "libero_original"]
    assert ingest("libero_hdf5", *source) == 0
    build = ["--demos", out, "--out", store, "--checkpoint", checkpoint]
    assert cli.main(["build-db", *map(str, build)]) == 0
    report = capsys.readouterr().out
    assert "1 tasks, 3 episodes, 21 rows" in report
    opened = MemoryStore.open(store, verify=True)
    rows = opened.rows_of(ds.TASK)
    assert rows.action[0] == pytest.approx([0.02, 0, 0, 0, 0, 0, 1.0])
    ((profile, dropped),) = [
        (entry["profile"], entry["dropped_steps"])
        for entry in opened.manifest.profile.action["ingests"]
    ]
    assert profile["observation"] == "after"
    assert dropped == {"steps without an action after their picture": 3}
