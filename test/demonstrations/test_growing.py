"""A store that grows: what it held stays as it was, and nothing is stored twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from demonstrations.test_builder import RedEncoder, episode
from mortal import KILLED_AT

from heisd_ros.demonstrations.builder import BuildOptions, build_store
from heisd_ros.demonstrations.growing import TwinFinder, stored_episodes
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes, synthetic_store
from heisd_ros.errors import DataError, StoreError

ROOT = Path(__file__).parents[2]
OPTIONS = BuildOptions("abc", created_by="test")


def build(out, *episodes, base=None, **changes):
    options = replace(OPTIONS, **changes)
    return build_store(episodes, RedEncoder(), out, options, base=base)


def grow(out, *episodes, **changes):
    with MemoryStore.open(out) as base:
        build(out, *episodes, base=base, **changes)
    return MemoryStore.open(out, verify=True)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_stored_episodes_build_the_same_store_again(tmp_path, dtype):
    spec = SyntheticSpec(tasks=2, episodes=3, steps=8)
    old = synthetic_store(tmp_path / "old", spec, dtype=dtype)
    from heisd_ros.demonstrations.writer import StoreWriter

    with StoreWriter(tmp_path / "new", old.manifest.profile, dtype=dtype) as writer:
        for rows in stored_episodes(old):
            writer.add_episode(rows)
        again = writer.finish()
    assert again == old.manifest


def test_new_episodes_come_behind_those_of_their_task(tmp_path):
    build(tmp_path / "s", episode(2, instruction="b"), episode(2, instruction="a", first=20))
    store = grow(tmp_path / "s", episode(3, instruction="a", first=40))
    assert store.rows_of("a").action[:, 0].tolist() == [20, 21, 40, 41, 42]
    assert store.rows_of("b").action[:, 0].tolist() == [0, 1]
    assert store.manifest.generation == 2
    assert store.manifest.profile.created_by == "test; test"


def test_what_is_stored_already_is_left_out_and_counted(tmp_path):
    build(tmp_path / "s", episode(3), episode(3, first=30))
    store = grow(tmp_path / "s", episode(3), episode(3, first=60), episode(3, first=60))
    assert store.rows_of("push it").action[:, 0].tolist() == [0, 1, 2, 30, 31, 32, 60, 61, 62]
    assert store.manifest.dropped == {"episodes that are stored already": 2}


def test_nothing_new_is_an_error_and_changes_nothing(tmp_path):
    build(tmp_path / "s", episode(3))
    with pytest.raises(StoreError, match=r"no new episode.*already.: 1"):
        grow(tmp_path / "s", episode(3))
    assert MemoryStore.open(tmp_path / "s", verify=True).manifest.generation == 1


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"fingerprint": "other"}, StoreError, "another vision encoder"),
        ({"preprocessing": {"crop_area": 0.9}}, StoreError, "another crop_area"),
        ({"statistics_key": "bridge"}, DataError, "actions of '' like those stored"),
    ],
)
def test_a_store_does_not_grow_by_what_another_model_made(tmp_path, changes, error, words):
    build(tmp_path / "s", episode(3))
    with pytest.raises(error, match=words):
        grow(tmp_path / "s", episode(3, first=50), **changes)
    assert len(MemoryStore.open(tmp_path / "s", verify=True)) == 3


def test_another_rate_does_not_mix_in(tmp_path):
    build(tmp_path / "s", episode(3))
    with pytest.raises(DataError, match=r"expected 20.0 Hz .* got 10.0"):
        grow(tmp_path / "s", episode(3, first=50, control_hz=10.0))


def test_a_twin_has_the_same_actions_and_pictures():
    first, second = synthetic_episodes(SyntheticSpec(tasks=1, episodes=2, steps=9))[:2]
    known = TwinFinder()
    known.add(first)
    assert known.knows(first)
    assert known.knows(replace(first, vectors=first.vectors.astype(np.float16)))
    assert not known.knows(second)
    assert not known.knows(replace(first, task="another task"))
    assert not known.knows(replace(first, actions=first.actions + 0.01 * np.eye(1, 7)))
    other = np.roll(first.vectors, 1, axis=1)
    assert not known.knows(replace(first, vectors=other))


KILLED = (
    KILLED_AT
    + """
from heisd_ros.demonstrations.growing import stored_episodes
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes

base = MemoryStore.open(sys.argv[1])
with writer.StoreWriter(sys.argv[1], base.manifest.profile) as sink:
    for rows in stored_episodes(base):
        sink.add_episode(rows)
    for rows in synthetic_episodes(SyntheticSpec(tasks=1, episodes=1, steps=10, seed=9)):
        sink.add_episode(rows)
    sink.finish()
print("steps left", countdown)
"""
)


def test_a_store_whose_growth_is_killed_is_the_old_or_the_new_one(tmp_path):
    spec = SyntheticSpec(tasks=1, episodes=2, steps=10)

    def run(out, moment):
        synthetic_store(out, spec).close()
        return subprocess.run(
            [sys.executable, "-c", KILLED, str(out), str(moment)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )

    whole = run(tmp_path / "whole", 1000)
    assert whole.returncode == 0, whole.stderr
    moments = 1000 - int(whole.stdout.split()[-1])
    old, new = spec.episodes, spec.episodes + 1
    seen = set()
    for moment in (0, moments // 2, moments - 3, moments - 2, moments - 1):
        out = tmp_path / str(moment)
        assert run(out, moment).returncode == -signal.SIGKILL
        with MemoryStore.open(out, verify=True) as store:
            seen.add(store.manifest.episodes)
    assert seen == {old, new}


def test_target_answers_are_stored_beside_their_steps(tmp_path):
    def answers(episode, views):
        assert views == [0, 1]
        n = len(episode)
        return np.full((n, 2), 0.25, dtype=np.float32), np.full((n, 7), 31872)

    build_store([episode(3)], RedEncoder(), tmp_path / "s", OPTIONS, answers=answers)
    store = MemoryStore.open(tmp_path / "s", verify=True)
    assert store.features(np.arange(3)).tolist() == [[0.25, 0.25]] * 3
    assert store.target_tokens(np.arange(3)).tolist() == [[31872] * 7] * 3
