"""`heisd build-db` and `heisd inspect-db` on a handful of saved episodes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from heisd_ros import cli
from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.demonstrations.episode import Episode, load_episode, save_episode
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.types import VisualFeatures

STATISTICS = ActionStatistics.from_dict(
    {"q01": [-1.0] * 6 + [0.0], "q99": [1.0] * 7, "mask": [True] * 6 + [False]}, key="libero"
)


class PixelEncoder:
    """Encodes the first eight red values of both frames, per block of unit norm."""

    def encode(self, frames):
        blocks = [frame.image[:2, :4, 0].ravel().astype(np.float64) + 1.0 for frame in frames]
        joined = np.concatenate([block / np.linalg.norm(block) for block in blocks]) / 2**0.5
        return VisualFeatures(None, joined.astype(np.float32))


@pytest.fixture
def demos(tmp_path):
    """Three good episodes and one failed one of 'open it', one of 'close it'."""
    rng = np.random.default_rng(0)
    for number, (task, success) in enumerate(
        [
            ("open it", True),
            ("open it", True),
            ("open it", False),
            ("open it", True),
            ("close it", True),
        ]
    ):
        actions = np.zeros((6, 7), dtype=np.float32)
        images = rng.integers(0, 255, (6, 2, 4, 4, 3), dtype=np.uint8)
        state = np.zeros((6, 8), dtype=np.float32)
        cameras = ("third_person", "wrist")
        episode = Episode(images, actions, state, task, cameras, 20.0, success=success)
        save_episode(tmp_path / "demos" / task / f"{number}.npz", episode)
    return tmp_path / "demos"


@pytest.fixture(autouse=True)
def components(monkeypatch):
    asked = []

    def build_components(config):
        asked.append(config)
        info = SimpleNamespace(fingerprint="abc")
        return SimpleNamespace(
            target=SimpleNamespace(info=info),
            encoder=PixelEncoder(),
            statistics=STATISTICS,
            tokenizer=ActionTokenizer(),
        )

    monkeypatch.setattr("heisd_ros.build.build_components", build_components)
    return asked


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


def test_a_built_store_opens_and_the_report_says_what_is_inside(demos, tmp_path, capsys):
    assert run("build-db", "--demos", demos, "--out", tmp_path / "s", "--checkpoint", "ckpt") == 0
    out = capsys.readouterr().out
    assert "2 tasks, 4 episodes, 24 rows of 16 float32" in out
    assert "dropped   1 failed episodes" in out
    store = MemoryStore.open(tmp_path / "s", fingerprint="abc", verify=True)
    assert store.tasks == ("close it", "open it")
    assert store.manifest.tasks[1].sources == ("open it/0.npz", "open it/1.npz", "open it/3.npz")
    assert store.manifest.profile.action["statistics_key"] == "libero"
    assert store.manifest.profile.created_by.startswith("heisd build-db --demos ")


def test_the_store_is_built_for_the_checkpoint_without_rotation(demos, tmp_path, components):
    run("build-db", "--demos", demos, "--out", tmp_path / "s", "--checkpoint", "ckpt")
    assert components[0].model.checkpoint == "ckpt"
    assert components[0].perception.rotate_deg == 0
    profile = MemoryStore.open(tmp_path / "s").manifest.profile
    assert profile.preprocessing == {"crop_area": 1.0, "pool": "mean", "normalise": "blocks"}


def test_the_normalisation_is_served_stored_and_told(demos, tmp_path, components, capsys):
    run("build-db", "--demos", demos, "--out", tmp_path / "s", "--normalise", "whole")
    assert components[0].perception.normalise == "whole"
    assert "unit norm of whole" in capsys.readouterr().out
    profile = MemoryStore.open(tmp_path / "s").manifest.profile
    assert profile.preprocessing["normalise"] == "whole"


def test_tasks_and_the_limit_are_obeyed(demos, tmp_path, capsys):
    arguments = ["--demos", demos, "--out", tmp_path / "s", "--tasks", "Open it", "--per-task", 2]
    assert run("build-db", *arguments) == 0
    assert "1 tasks, 2 episodes" in capsys.readouterr().out


def test_a_damaged_file_is_named_counted_and_survived(demos, tmp_path, capsys):
    (demos / "open it" / "1.npz").write_bytes(b"PK\x03\x04 cut off")
    assert run("build-db", "--demos", demos, "--out", tmp_path / "s") == 0
    captured = capsys.readouterr()
    assert "1 damaged files" in captured.out
    assert "left out" in captured.err
    assert "1.npz" in captured.err


def test_mostly_damaged_files_are_an_error(demos, tmp_path, capsys):
    for path in (demos / "open it").iterdir():
        path.write_bytes(b"")
    assert run("build-db", "--demos", demos, "--out", tmp_path / "s") == 2
    assert "4 of 5 files" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("where", ["missing", "."])
def test_a_folder_without_episodes_is_one_sentence(tmp_path, capsys, where):
    assert run("build-db", "--demos", tmp_path / where, "--out", tmp_path / "s") == 2
    assert "no episode (.npz)" in capsys.readouterr().err


def test_a_second_build_uses_the_cache(demos, tmp_path, monkeypatch):
    arguments = ["--demos", demos, "--out", tmp_path / "s", "--cache", tmp_path / "c"]
    assert run("build-db", *arguments) == 0
    monkeypatch.setattr(PixelEncoder, "encode", lambda *_: pytest.fail("embedded again"))
    assert run("build-db", *arguments) == 0
    assert MemoryStore.open(tmp_path / "s", verify=True).manifest.generation == 2


def test_inspection_shows_tasks_duplicates_and_neighbours(tmp_path, capsys):
    synthetic_store(
        tmp_path / "s", SyntheticSpec(tasks=2, episodes=4, steps=40, embedding_size=128)
    )
    assert run("inspect-db", tmp_path / "s", "--verify", "--queries", 50) == 0
    lines = capsys.readouterr().out.splitlines()
    queries, equal, cosine, drift, _, _, grip, recall, *task = lines[-1].split()
    assert (queries, equal, recall, " ".join(task)) == ("50", "0", "1.0000", "synthetic task 1")
    assert 0.9 < float(cosine) < 1.0
    assert 0.8 < float(grip) <= 1.0
    assert abs(float(drift)) < 0.05  # all episodes were made alike


def test_a_store_grows_and_says_what_that_did(demos, tmp_path, capsys, components):
    store, more = tmp_path / "s", tmp_path / "more"
    assert run("build-db", "--demos", demos, "--out", store) == 0
    rng = np.random.default_rng(5)
    new = Episode(
        rng.integers(0, 255, (6, 2, 4, 4, 3), dtype=np.uint8),
        np.full((6, 7), 0.5, dtype=np.float32),
        np.zeros((6, 8), dtype=np.float32),
        "open it",
        ("third_person", "wrist"),
        20.0,
    )
    save_episode(more / "new.npz", new)
    save_episode(more / "old.npz", load_episode(demos / "open it" / "0.npz"))
    capsys.readouterr()
    assert run("build-db", "--append", "--demos", more, "--out", store) == 0
    out = capsys.readouterr().out
    assert "2 tasks, 5 episodes" in out
    assert "1 episodes that are stored already" in out
    assert "(4 -> 5 episodes)" in out
    lines = {line.rpartition("  ")[2]: line.split() for line in out.splitlines()}
    # 18 steps of 'open it' have other episodes; the 6 of 'close it' never have.
    assert lines["steps stored before, before"][0] == "18"
    assert lines["steps added, after"][0] == "6"
    assert MemoryStore.open(store, verify=True).manifest.generation == 2


def test_growing_what_does_not_exist_is_one_sentence(demos, tmp_path, capsys):
    assert run("build-db", "--append", "--demos", demos, "--out", tmp_path / "s") == 2
    assert "does not exist" in capsys.readouterr().err


def test_recorded_runs_become_a_store_without_those_that_failed(tmp_path, capsys, components):
    pytest.importorskip("rosbags")
    from offline import bag_maker as maker

    messages = [*maker.episode(8), *maker.episode(5, maker.START_NS + 100 * 10**9)]
    bag = maker.write_bag(tmp_path / "run", messages)
    assert run("build-db", "--bags", bag, "--out", tmp_path / "s") == 0
    manifest = MemoryStore.open(tmp_path / "s", verify=True).manifest
    assert manifest.sources == (f"{bag}#0", f"{bag}#1")
    assert manifest.rows == 13
    capsys.readouterr()
    assert run("build-db", "--append", "--bags", bag, "--out", tmp_path / "s") == 2
    assert "no new episode" in capsys.readouterr().err


def test_the_gallery_shows_the_pictures_of_queries_and_neighbours(demos, tmp_path, capsys):
    run("build-db", "--demos", demos, "--out", tmp_path / "s")
    arguments = ["--demos", demos, "--gallery", tmp_path / "g", "--per-task", 2]
    assert run("inspect-db", tmp_path / "s", *arguments) == 0
    page = (tmp_path / "g" / "index.html").read_text()
    assert [f"task_0{i}.png" in page for i in (0, 1)] == [True, True]
    sheet = np.asarray(Image.open(tmp_path / "g" / "task_01.png"))  # 'open it'
    # The first query is step 1 of episode 0: its third-person picture is drawn at (8, 8), 112 px.
    picture = load_episode(demos / "open it" / "0.npz").images[1, 0]
    wanted = np.asarray(Image.fromarray(picture).resize((112, 112)))
    np.testing.assert_array_equal(sheet[8:120, 8:120], wanted)
    assert "pictures not found" not in capsys.readouterr().out
    assert run("inspect-db", tmp_path / "s", "--gallery", tmp_path / "h", "--demos", tmp_path) == 2
    assert "none of the pictures" in capsys.readouterr().err


def test_why_names_views_scores_and_neighbours(demos, tmp_path, capsys):
    run("build-db", "--demos", demos, "--out", tmp_path / "s")
    capsys.readouterr()
    assert run("inspect-db", tmp_path / "s", "--why", "open it/0.npz:2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "third_person" in lines[1]
    assert "wrist" in lines[1]
    assert (
        len([line for line in lines if "open it/1.npz:" in line or "open it/3.npz:" in line]) == 5
    )
    assert not any("open it/0.npz:" in line for line in lines[2:])  # never its own episode
    assert run("inspect-db", tmp_path / "s", "--why", "open it/0.npz:99") == 2
    assert "no step 99" in capsys.readouterr().err


def test_inspecting_no_store_is_one_sentence(tmp_path, capsys):
    assert run("inspect-db", tmp_path / "nothing") == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_store_is_copied_to_a_server_and_back(tmp_path, capsys):
    pytest.importorskip("qdrant_client")
    from qdrant_loopback import Loopback

    from heisd_ros.offline import copy_db

    server = Loopback()
    there = synthetic_store(tmp_path / "s", SyntheticSpec(tasks=1, episodes=2, steps=10)).manifest
    to = ["to-qdrant", str(tmp_path / "s"), "--url", server.url("grpc", "c-2"), "--alias", "c"]
    assert copy_db.main([*to, "--replicas", "2", "--confirmed", "2"]) == 0
    back = ["from-qdrant", str(tmp_path / "back"), "--url", server.url("http", "c")]
    assert copy_db.main(back) == 0
    server.stop()
    assert capsys.readouterr().out.count("1 tasks, 2 episodes") == 2
    assert server.indexes["c-2", "task"] == {"type": "keyword", "is_tenant": True}
    made = server.created["c-2"]
    assert (made["replication_factor"], made["write_consistency_factor"]) == (2, 2)
    assert made["hnsw_config"] == {"m": 0, "payload_m": 16}
    assert MemoryStore.open(tmp_path / "back", verify=True).manifest == there
