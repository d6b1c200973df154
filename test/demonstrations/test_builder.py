"""build_store: which episodes are stored, how, and what is said about the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from heisd_ros.demonstrations.builder import BuildOptions, build_store
from heisd_ros.demonstrations.embedding_cache import EmbeddingCache
from heisd_ros.demonstrations.episode import Episode
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.errors import DataError, StoreError
from heisd_ros.types import VisualFeatures

OPTIONS = BuildOptions("abc", preprocessing={"crop_area": 0.9}, created_by="test")


class RedEncoder:
    """Encodes (red of the first frame, red of the second, 1), normalised; counts its calls."""

    def __init__(self):
        self.calls = 0
        self.seen = []

    def encode(self, frames):
        self.calls += 1
        self.seen.append(tuple(frame.camera for frame in frames))
        vector = np.array([*(float(frame.image[0, 0, 0]) for frame in frames), 1.0])
        return VisualFeatures(None, (vector / np.linalg.norm(vector)).astype(np.float32))


def episode(n=3, *, first=0, instruction="Push  it", cameras=("third_person", "wrist"), **facts):
    """Step i: red of camera v is 10 v + first + i, action x is first + i, gap is 0.04 m."""
    images = np.zeros((n, len(cameras), 2, 2, 3), dtype=np.uint8)
    for view in range(len(cameras)):
        images[:, view, :, :, 0] = (10 * view + first + np.arange(n))[:, None, None]
    actions = np.zeros((n, 7), dtype=np.float32)
    actions[:, 0] = first + np.arange(n)
    actions[:, 6] = 1.0
    state = np.zeros((n, 8), dtype=np.float32)
    state[:, 0] = 0.5
    state[:, 7] = 0.04
    return Episode(
        images, actions, state, instruction, cameras, facts.pop("control_hz", 20.0), **facts
    )


def build(out, *episodes, encoder=None, **changes):
    manifest = build_store(episodes, encoder or RedEncoder(), out, replace(OPTIONS, **changes))
    return manifest, MemoryStore.open(out, fingerprint="abc", verify=True)


def test_every_step_is_stored_with_its_embedding_action_and_state(tmp_path):
    manifest, store = build(tmp_path / "s", episode(3), episode(2, first=50))
    rows = store.rows_of("push it")
    assert rows.action[:, 0].tolist() == [0, 1, 2, 50, 51]
    assert rows.position.tolist() == [[0.5, 0, 0]] * 5
    assert store.gripper_opening(rows.row).tolist() == pytest.approx([0.5] * 5)  # 0.04 of 0.08 m
    wanted = np.array([51.0, 61.0, 1.0])
    wanted /= np.linalg.norm(wanted)
    np.testing.assert_allclose(store.vectors(np.array([4]))[0], wanted, atol=1e-7)
    assert manifest.profile.action["control_hz"] == 20.0
    assert manifest.profile.preprocessing == {"crop_area": 0.9}


def test_the_encoder_gets_the_configured_cameras_in_the_configured_order(tmp_path):
    encoder = RedEncoder()
    odd = episode(2, cameras=("wrist", "left", "third_person"))
    _, store = build(tmp_path / "s", odd, encoder=encoder)
    assert set(encoder.seen) == {("third_person", "wrist")}
    wanted = np.array([20.0, 0.0, 1.0])  # third_person is camera 2 of this episode
    np.testing.assert_allclose(
        store.vectors(np.array([0]))[0], wanted / np.linalg.norm(wanted), atol=1e-7
    )


def test_an_episode_without_the_camera_is_refused_naming_it(tmp_path):
    blind = episode(cameras=("third_person",), source={"file": "a/b.npz"})
    with pytest.raises(
        DataError, match=r"a/b\.npz: expected cameras third_person, wrist, got third"
    ):
        build(tmp_path / "s", blind)
    assert not (tmp_path / "s").exists()


def test_failed_episodes_are_left_out_and_counted(tmp_path):
    manifest, store = build(tmp_path / "s", episode(4), episode(3, first=9, success=False))
    assert len(store) == 4
    assert manifest.dropped == {"failed episodes": 1}


def test_a_task_that_mostly_failed_is_an_error_unless_allowed(tmp_path):
    episodes = [episode(2), episode(3, success=False)]
    with pytest.raises(StoreError, match=r"'push it' \(3 of 5 steps\).*--max-lost 1"):
        build(tmp_path / "s", *episodes)
    assert not (tmp_path / "s").exists()
    _, store = build(tmp_path / "s", *episodes, max_lost=0.6)
    assert len(store) == 2


def test_the_limit_counts_episodes_of_each_task(tmp_path):
    many = [episode(2, first=i, instruction=f"task {i % 2}") for i in range(7)]
    manifest, store = build(tmp_path / "s", *many, per_task=2)
    assert store.rows_of("task 0").action[:, 0].tolist() == [0, 1, 2, 3]
    assert store.rows_of("task 1").action[:, 0].tolist() == [1, 2, 3, 4]
    assert manifest.dropped == {"episodes over the limit": 3}


def test_other_tasks_are_left_out_and_a_misspelt_one_is_an_error(tmp_path):
    episodes = [episode(2), episode(2, instruction="pull it")]
    manifest, store = build(tmp_path / "s", *episodes, tasks=("PULL it",))
    assert store.tasks == ("pull it",)
    assert manifest.dropped == {"episodes of other tasks": 1}
    with pytest.raises(StoreError, match=r"no episode of 'pul it'"):
        build(tmp_path / "t", *episodes, tasks=("pul it",))


def test_two_control_rates_do_not_mix(tmp_path):
    with pytest.raises(DataError, match=r"expected 20.0 Hz .* got 10.0"):
        build(tmp_path / "s", episode(), episode(control_hz=10.0))


def test_libero_gripper_signs_are_refused(tmp_path):
    raw = episode()
    raw.actions[1, 6] = -1.0
    with pytest.raises(DataError, match="1 = open"):
        build(tmp_path / "s", raw)


def test_nothing_to_store_is_an_error_and_leaves_the_old_store(tmp_path):
    build(tmp_path / "s", episode(3))
    with pytest.raises(StoreError, match=r"no episode to store.*empty episodes.: 1"):
        build(tmp_path / "s", episode(0))
    with pytest.raises(StoreError, match="no episode to store"):
        build(tmp_path / "s")
    assert len(MemoryStore.open(tmp_path / "s", verify=True)) == 3


def test_what_the_caller_dropped_while_yielding_is_counted(tmp_path):
    dropped = Counter()

    def episodes():
        yield episode()
        dropped["damaged files"] += 1

    manifest = build_store(episodes(), RedEncoder(), tmp_path / "s", OPTIONS, dropped=dropped)
    assert manifest.dropped == {"damaged files": 1}


def test_a_store_made_for_other_pictures_is_refused_at_open(tmp_path):
    build(tmp_path / "s", episode())
    MemoryStore.open(
        tmp_path / "s", cameras=("third_person", "wrist"), preprocessing={"crop_area": 0.9}
    )
    with pytest.raises(StoreError, match=r"another crop_area: expected 1.0, got 0.9"):
        MemoryStore.open(tmp_path / "s", preprocessing={"crop_area": 1.0})
    with pytest.raises(StoreError, match="another cameras"):
        MemoryStore.open(tmp_path / "s", cameras=("wrist", "third_person"))


def test_a_store_of_another_normalisation_is_refused_and_older_ones_are_by_blocks(tmp_path):
    build(tmp_path / "old", episode())  # its manifest does not say
    MemoryStore.open(tmp_path / "old", preprocessing={"normalise": "blocks"})
    with pytest.raises(StoreError, match=r"another normalise: expected whole, got blocks.*rebuild"):
        # It is said before the fingerprint, which differs too.
        MemoryStore.open(
            tmp_path / "old", fingerprint="other", preprocessing={"normalise": "whole"}
        )


# --- the cache ----------------------------------------------------------------------------------


def cache_at(folder, fingerprint="abc"):
    return EmbeddingCache(folder, fingerprint=fingerprint, preprocessing={"crop_area": 0.9})


def test_an_interrupted_build_does_not_embed_twice(tmp_path):
    first, second = episode(3), episode(2, first=50)

    def breaks():
        yield first
        raise RuntimeError("power cut")

    encoder = RedEncoder()
    with pytest.raises(RuntimeError):
        build_store(breaks(), encoder, tmp_path / "s", OPTIONS, cache=cache_at(tmp_path / "c"))
    assert encoder.calls == 3
    again = RedEncoder()
    build_store([first, second], again, tmp_path / "s", OPTIONS, cache=cache_at(tmp_path / "c"))
    assert again.calls == 2
    _, plain = build(tmp_path / "plain", first, second)
    np.testing.assert_array_equal(
        MemoryStore.open(tmp_path / "s").vectors(np.arange(5)), plain.vectors(np.arange(5))
    )


def test_other_pictures_or_another_encoder_are_not_found_in_the_cache(tmp_path):
    cache, one = cache_at(tmp_path), episode(3)
    cache.save(one, [0, 1], np.ones((3, 3), dtype=np.float32))
    assert cache.load(one, [0, 1]) is not None
    assert cache.load(one, [1, 0]) is None
    assert cache.load(episode(3, first=1), [0, 1]) is None
    assert cache_at(tmp_path, "other").load(one, [0, 1]) is None


def test_a_cut_off_cache_file_is_embedded_again(tmp_path):
    cache, one = cache_at(tmp_path), episode(3)
    cache.save(one, [0, 1], np.ones((3, 3), dtype=np.float32))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-4])
    assert cache.load(one, [0, 1]) is None
    path.write_bytes(b"")
    assert cache.load(one, [0, 1]) is None
