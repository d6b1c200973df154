"""StoreWriter: order, look-ahead, atomicity, full disks, killed builds."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mortal import KILLED_AT

from heisd_ros.demonstrations.episode_rows import EpisodeRows, following_actions
from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes, synthetic_store
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import DataError, StoreError

ROOT = Path(__file__).parents[2]
PROFILE = StoreProfile("abc", 4, action={"gripper": "1 = open"}, created_by="test")


def episode(n=3, *, task="push", first=0.0, steps=None, source="here"):
    """Action i of the episode is (first + i, 0, ..., 0, 1); all vectors are e_0."""
    actions = np.zeros((n, 7))
    actions[:, 0] = first + np.arange(n)
    actions[:, 6] = 1.0
    vectors = np.tile(np.array([[1, 0, 0, 0]], dtype=np.float32), (n, 1))
    steps = np.arange(n) if steps is None else np.array(steps)
    return EpisodeRows(task, source, vectors, actions, steps, np.zeros((n, 3)), np.ones(n))


def write(out, *episodes, **options):
    with StoreWriter(out, PROFILE, **options) as writer:
        for rows in episodes:
            writer.add_episode(rows)
        writer.finish({"nothing": 0})
    return MemoryStore.open(out, verify=True)


def test_tasks_are_contiguous_whatever_order_the_episodes_come_in(tmp_path):
    store = write(
        tmp_path / "s",
        episode(2, task="b", first=10, source="b0"),
        episode(2, task="A  a", first=20, source="a0"),
        episode(1, task="b", first=30, source="b1"),
    )
    assert [(t.key, t.first_row, t.rows, t.sources) for t in store.manifest.tasks] == [
        ("a a", 0, 2, ("a0",)),
        ("b", 2, 3, ("b0", "b1")),
    ]
    assert store.rows_of("a a").action[:, 0].tolist() == [20, 21]
    assert store.rows_of("b").action[:, 0].tolist() == [10, 11, 30]
    assert store.rows_of("b").episode.tolist() == [1, 1, 2]
    assert store.rows_of("b").row.tolist() == [2, 3, 4]


def test_vectors_do_not_stay_in_memory_while_a_store_is_built(tmp_path):
    # They once did: an empty slice keeps the array that it was cut from.
    rows = episode(3)
    kept = weakref.ref(rows.vectors)
    with StoreWriter(tmp_path / "s", PROFILE) as writer:
        writer.add_episode(rows)
        del rows
        assert kept() is None
        writer.finish()


def test_vectors_follow_their_rows_into_task_order(tmp_path):
    episodes = synthetic_episodes(SyntheticSpec(tasks=2, episodes=2, steps=9, embedding_size=4))
    mixed = [episodes[3], episodes[0], episodes[2], episodes[1]]
    store = write(tmp_path / "s", *mixed)
    wanted = [episodes[i].vectors for i in (0, 1, 3, 2)]
    np.testing.assert_array_equal(store.vectors(np.arange(len(store))), np.concatenate(wanted))


def test_the_lookahead_stops_at_the_end_of_the_episode(tmp_path):
    store = write(tmp_path / "s", episode(5), episode(2, first=100))
    rows = store.rows_of("push")
    assert rows.valid_length.tolist() == [3, 3, 2, 1, 0, 1, 0]
    assert rows.lookahead[0, :, 0].tolist() == [1, 2, 3]
    assert rows.lookahead[3, :, 0].tolist() == [4, 0, 0]
    assert rows.lookahead[3, 1:].tolist() == np.zeros((2, 7)).tolist()
    assert rows.lookahead[4].tolist() == np.zeros((3, 7)).tolist()
    assert rows.lookahead[5, :, 0].tolist() == [101, 0, 0]


def test_the_lookahead_stops_at_a_dropped_step_and_successors_go_on_behind_it(tmp_path):
    store = write(tmp_path / "s", episode(5, steps=[0, 1, 3, 4, 5]), episode(2))
    rows = store.rows_of("push")
    assert rows.valid_length.tolist() == [1, 0, 2, 1, 0, 1, 0]
    assert store.successors(rows, 1).step.tolist() == [1, 4, 5, 1]  # 1 + 1 = 2 was dropped
    after = store.successors(rows, 2)
    assert after.step.tolist() == [3, 5]  # 0 + 2 was dropped, 1 + 2 and 3 + 2 were not
    assert after.row.tolist() == [2, 4]
    assert store.successors(rows, 4).step.tolist() == [4, 5]  # never into the next episode
    assert len(store.successors(rows, 6)) == 0


def answered(rows, first=0):
    """Step i has the feature (first + i, 0.5) and the target's tokens first + i, seven times."""
    n = np.arange(first, first + len(rows.steps))
    features = np.stack([n, np.full(len(n), 0.5)], axis=1).astype(np.float32)
    return replace(rows, features=features, target_tokens=np.tile(n[:, None], (1, 7)))


def test_features_and_target_tokens_follow_their_rows_into_task_order(tmp_path):
    store = write(tmp_path / "s", answered(episode(2, task="b"), 10), answered(episode(3), 20))
    assert (store.manifest.feature_size, store.manifest.target_tokens) == (2, True)
    rows = np.array([1, 2, 4])  # "b" comes first
    assert store.features(rows).tolist() == [[11.0, 0.5], [20.0, 0.5], [22.0, 0.5]]
    assert store.target_tokens(rows)[:, 3].tolist() == [11, 20, 22]
    assert store.target_tokens(rows).dtype == np.int64


def test_a_store_without_them_says_so(tmp_path):
    store = write(tmp_path / "s", episode(3))
    assert store.features(np.array([0])) is None
    assert store.target_tokens(np.array([0])) is None


def test_features_of_some_episodes_only_are_refused(tmp_path):
    with StoreWriter(tmp_path / "s", PROFILE) as writer:
        writer.add_episode(answered(episode(3)))
        with pytest.raises(DataError, match=r"expected 2 features and target tokens .* got 0 feat"):
            writer.add_episode(episode(3))


@given(gaps=st.lists(st.integers(1, 3), min_size=0, max_size=12), count=st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_every_real_lookahead_action_belongs_to_exactly_that_step(gaps, count):
    steps = np.cumsum([0, *gaps])
    actions = np.repeat(steps[:, None], 7, axis=1) + 1.0  # an action names its step
    ahead, valid = following_actions(actions, steps, count)
    known = set(steps.tolist())
    for i, step in enumerate(steps.tolist()):
        run = 0
        while run < count and step + run + 1 in known:
            run += 1
        assert valid[i] == run
        assert ahead[i, :run, 0].tolist() == [step + j + 2.0 for j in range(run)]
        assert not ahead[i, run:].any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: replace(e, vectors=e.vectors[:, :3]), "vectors must have shape"),
        (lambda e: replace(e, vectors=e.vectors * 2), "unit norm"),
        (lambda e: replace(e, vectors=e.vectors * np.nan), "unit norm"),
        (lambda e: replace(e, actions=e.actions[:, :6]), r"actions must have shape \(3, 7\)"),
        (lambda e: replace(e, actions=e.actions * np.inf), "finite"),
        (lambda e: replace(e, actions=e.actions * [1, 1, 1, 1, 1, 1, -1]), "1 = open"),
        (lambda e: replace(e, steps=np.array([0, 2, 2])), "ascend"),
        (lambda e: replace(e, positions=e.positions[:2]), "positions must have shape"),
        (lambda e: episode(0), "n > 0"),
        (lambda e: replace(e, features=np.full((3, 2), np.nan)), "features must be finite"),
        (lambda e: replace(e, features=np.zeros((2, 2))), "one row for each of 3 steps"),
        (lambda e: replace(e, target_tokens=np.zeros((3, 6), int)), r"shape \(3, 7\)"),
    ],
)
def test_rows_that_would_mislead_the_arm_are_refused(tmp_path, change, words):
    with StoreWriter(tmp_path / "s", PROFILE) as writer:
        writer.add_episode(episode())
        with np.errstate(invalid="ignore"), pytest.raises(DataError, match=words):
            writer.add_episode(change(episode()))
        assert writer.finish().rows == 3


def test_the_manifest_keeps_what_was_said_about_the_rows(tmp_path):
    profile = replace(PROFILE, preprocessing={"crop_area": 0.9}, cameras=("front",))
    with StoreWriter(tmp_path / "s", profile, lookahead=2) as writer:
        writer.add_episode(episode())
        writer.finish({"failed episodes": 4})
    manifest = MemoryStore.open(tmp_path / "s").manifest
    assert manifest.profile == profile
    assert manifest.dropped == {"failed episodes": 4}
    assert (manifest.lookahead, manifest.rows, manifest.episodes) == (2, 3, 1)
    stored = sum(p.stat().st_size for p in (tmp_path / "s" / manifest.data_folder).iterdir())
    assert manifest.size_bytes == stored


def test_the_same_episodes_give_the_same_files(tmp_path):
    spec = SyntheticSpec(tasks=2, episodes=4, steps=40, embedding_size=96)
    one = synthetic_store(tmp_path / "1", spec, exact_below=0).manifest
    two = synthetic_store(tmp_path / "2", spec, exact_below=0).manifest
    assert one.tasks[0].prefix_size > 0
    assert one == two


# --- replacing ----------------------------------------------------------------------------------


def test_a_finished_build_replaces_the_old_store_and_removes_its_files(tmp_path):
    old = write(tmp_path / "s", episode(3))
    write(tmp_path / "s", episode(5))
    assert len(MemoryStore.open(tmp_path / "s")) == 5
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["data-000002", "manifest.json"]
    # Whoever had it open keeps it.
    assert old.rows_of("push").action[:, 0].tolist() == [0, 1, 2]


def test_a_build_that_was_not_finished_leaves_the_old_store(tmp_path):
    write(tmp_path / "s", episode(3))
    with StoreWriter(tmp_path / "s", PROFILE) as writer:
        writer.add_episode(episode(9))
    assert len(MemoryStore.open(tmp_path / "s", verify=True)) == 3
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["data-000001", "manifest.json"]


def test_a_first_build_that_was_not_finished_leaves_nothing(tmp_path):
    with pytest.raises(StoreError, match="no episode"), StoreWriter(tmp_path / "s", PROFILE) as w:
        w.finish()
    assert not (tmp_path / "s").exists()


def test_two_builds_of_one_store_at_once_are_refused(tmp_path):
    with StoreWriter(tmp_path / "s", PROFILE):
        with pytest.raises(StoreError, match="another build"):
            StoreWriter(tmp_path / "s", PROFILE)
        with pytest.raises(StoreError, match="another build"):
            StoreWriter(tmp_path / "s", PROFILE)
    write(tmp_path / "s", episode())


def test_a_folder_with_other_files_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match=r"other files \(thesis\.tex\)"):
        StoreWriter(tmp_path, PROFILE)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "s").write_text("x")
    with pytest.raises(StoreError, match="another folder"):
        StoreWriter(tmp_path / "s", PROFILE)


# --- full disk ----------------------------------------------------------------------------------


def test_too_little_free_space_is_noticed_before_writing(tmp_path, monkeypatch):
    write(tmp_path / "s", episode(3))
    free = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(StoreError, match=r"expected 84 free bytes.*got 10"):
        write(tmp_path / "s", episode(5))  # 5 rows x 4 numbers x 4 bytes x 1.05 = 84
    assert len(MemoryStore.open(tmp_path / "s", verify=True)) == 3


LIMITED = """
import resource, signal, sys
import numpy as np
from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # write() then fails, as it does on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    synthetic_store(sys.argv[1], SyntheticSpec(tasks=1, episodes=4, steps=200, embedding_size=64))
except StoreError as error:
    print("StoreError", error)
"""


@pytest.mark.parametrize("limit", [1000, 150_000, 205_000])
def test_a_write_that_fails_is_a_sentence_and_the_old_store_stays(tmp_path, limit):
    # The spool needs about 800 x 64 x 4 = 205 kB, vectors.npy 128 bytes more.
    write(tmp_path / "s", episode(3))
    done = run_python(LIMITED, tmp_path / "s", limit)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StoreError"), done.stdout
    assert "untouched" in done.stdout
    assert len(MemoryStore.open(tmp_path / "s", verify=True)) == 3
    assert not (tmp_path / "s" / ".building").exists()


def test_a_disk_that_is_full_at_the_very_end_leaves_the_old_store(tmp_path, monkeypatch):
    write(tmp_path / "s", episode(3))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("heisd_ros.demonstrations.writer.write_manifest", full)
    with pytest.raises(StoreError, match="No space left"):
        write(tmp_path / "s", episode(5))
    monkeypatch.undo()
    assert len(MemoryStore.open(tmp_path / "s", verify=True)) == 3
    assert len(write(tmp_path / "s", episode(6))) == 6


# --- killed builds ------------------------------------------------------------------------------

KILLED = (
    KILLED_AT
    + """
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store

writer.shutil.rmtree = mortal(writer.shutil.rmtree)
synthetic_store(sys.argv[1], SyntheticSpec(tasks=1, episodes=2, steps=20))
print("steps left", countdown)
"""
)


def run_python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )


def test_a_build_killed_at_any_moment_leaves_a_usable_store(tmp_path):
    whole = run_python(KILLED, tmp_path / "whole", 1000)
    moments = 1000 - int(whole.stdout.split()[-1])
    assert moments > 20
    new = MemoryStore.open(tmp_path / "whole").manifest
    seen = set()
    for moment in range(0, moments, 3):
        out = tmp_path / str(moment)
        write(out, episode(3))
        killed = run_python(KILLED, out, moment)
        assert killed.returncode == -signal.SIGKILL
        store = MemoryStore.open(out, verify=True)
        assert len(store) in (3, new.rows)
        seen.add(len(store))
        # And the wreck does not stand in the way of the next build.
        assert len(write(out, episode(7))) == 7
        assert len(list(out.iterdir())) == 2
    assert seen == {3, new.rows}
