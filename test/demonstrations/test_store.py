"""MemoryStore: two-stage search, damage, threads and processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heisd_ros.demonstrations.columns import column_layout
from heisd_ros.demonstrations.manifest import read_manifest, write_manifest
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes, synthetic_store
from heisd_ros.errors import StoreError

ROOT = Path(__file__).parents[2]
SPEC = SyntheticSpec(tasks=3, episodes=6, steps=60, embedding_size=192, seed=1)
COLUMNS = ("vectors", "prefix", "action", "lookahead", "valid_length", "episode", "step")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three tasks of about 360 rows, searched in two stages."""
    return synthetic_store(tmp_path_factory.mktemp("stores") / "store", SPEC, exact_below=0)


@pytest.fixture
def copy(store, tmp_path):
    """A private copy of the store's folder, to be damaged."""
    return Path(shutil.copytree(store._folder, tmp_path / "copy"))


def data_file(folder, name):
    return folder / read_manifest(folder).data_folder / f"{name}.npy"


def unit(vector):
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


# --- search -----------------------------------------------------------------------------------


def test_the_small_data_set_really_is_searched_in_two_stages(store):
    assert all(task.prefix_size > 0 for task in store.manifest.tasks)
    assert all(task.measured_recall >= 0.99 for task in store.manifest.tasks)


def test_two_stage_search_agrees_with_exact_search_on_unseen_episodes(store):
    unseen = synthetic_episodes(replace(SPEC, episodes=8))[6]  # same task, not in the store
    assert unseen.task == "synthetic task 0"
    found = wanted_first = 0
    for query in unseen.vectors:
        wanted = store.search(query, unseen.task, 5, exact=True)
        hits = store.search(query, unseen.task, 5)
        found += len(np.intersect1d(hits.row, wanted.row))
        wanted_first += hits.row[0] == wanted.row[0]
    assert found >= 0.99 * 5 * len(unseen.vectors)
    assert wanted_first >= 0.99 * len(unseen.vectors)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), task=st.integers(0, 2), k=st.integers(1, 500))
def test_no_query_ever_crosses_tasks(store, seed, task, k):
    rng = np.random.default_rng(seed)
    row = int(rng.integers(len(store)))
    near = store.vectors(np.array([row]))[0] + rng.uniform(0, 0.2) * rng.standard_normal(192)
    record = store.manifest.tasks[task]
    for exact in (False, True):
        hits = store.search(unit(near), record.key, k, exact=exact)
        assert len(hits) == min(k, record.rows)
        assert ((hits.row >= record.first_row) & (hits.row < record.stop_row)).all()
        later = store.successors(hits, int(rng.integers(0, 70)))
        assert ((later.row >= record.first_row) & (later.row < record.stop_row)).all()


def test_an_excluded_episode_is_not_found(store):
    for row in (0, 200, len(store) - 1):
        query = store.vectors(np.array([row]))[0]
        task = next(t.key for t in store.manifest.tasks if t.first_row <= row < t.stop_row)
        own = store.search(query, task, 1)
        assert own.row[0] == row
        for exact in (False, True):
            others = store.search(query, task, 20, exclude_episode=int(own.episode[0]), exact=exact)
            assert len(others) == 20
            assert (others.episode != own.episode[0]).all()


def _blind(store, task, row):
    """Let the prefix scan of a task see one row last, as a coarse prefix might."""
    record = store.manifest.tasks[task]
    basis, offset, codes = store._searches[record.key]
    codes = codes.copy()
    codes[row - record.first_row, -1] = -1e6  # the column whose coefficient is 1
    store._searches[record.key] = (basis, offset, codes)


def _found(store, row, task, **options):
    query = store.vectors(np.array([row]))[0]
    return store.search(query, store.manifest.tasks[task].key, 5, **options).row.tolist()


@pytest.mark.parametrize(("task", "row"), [(0, 30), (1, 400)])
def test_the_step_after_a_hit_is_found_although_the_prefix_misses_it(copy, task, row):
    store = MemoryStore.open(copy)
    key = store.manifest.tasks[task].key
    earlier = store.search(store.vectors(np.array([row - 1]))[0], key, 1)
    assert earlier.row.tolist() == [row - 1]
    assert _found(store, row, task)[0] == row
    _blind(store, task, row)
    assert row not in _found(store, row, task)
    assert _found(store, row, task, after=earlier)[0] == row
    without = store.search(store.vectors(np.array([row]))[0], key, 5)
    found = store.search(store.vectors(np.array([row]))[0], key, 5, after=earlier)
    np.testing.assert_array_equal(found.row[1:], without.row[:4])
    np.testing.assert_array_equal(found.score[1:], without.score[:4])


def test_the_step_after_a_hit_never_lies_in_another_episode_or_task(copy):
    store = MemoryStore.open(copy)
    first_of_second = int(np.searchsorted(store._columns["episode"], 1))
    first_of_other = store.manifest.tasks[1].first_row
    for task, row in ((0, first_of_second), (1, first_of_other)):
        _blind(store, task, row)
        assert row not in _found(store, row, task, after=store.steps_at(np.array([row - 1])))


def test_the_step_after_a_hit_may_be_excluded_with_its_episode(copy):
    store = MemoryStore.open(copy)
    _blind(store, 0, 30)
    hits = store.steps_at(np.array([29]))
    assert 30 not in _found(store, 30, 0, after=hits, exclude_episode=0)


def test_behind_a_dropped_step_nothing_is_followed(tmp_path):
    from heisd_ros.demonstrations.manifest import StoreProfile
    from heisd_ros.demonstrations.writer import StoreWriter

    rows = synthetic_episodes(SyntheticSpec(tasks=1, episodes=1, steps=20))[0]
    with StoreWriter(tmp_path / "store", StoreProfile("f", 48)) as writer:
        steps = np.arange(len(rows.steps))
        writer.add_episode(replace(rows, steps=steps + (steps >= 10)))  # step 10 was dropped
        writer.finish()
    store = MemoryStore.open(tmp_path / "store")
    record = store.manifest.tasks[0]
    rows = [store._next_rows(store.steps_at(np.array([r])), record, (0, 0)) for r in (8, 9, 10)]
    assert [found.tolist() for found in rows] == [[9], [], [11]]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 20))
def test_following_can_only_better_the_scores(store, seed, k):
    rng = np.random.default_rng(seed)
    key = store.manifest.tasks[1].key
    earlier = store.steps_at(rng.integers(0, len(store), 5))
    query = unit(store.vectors(rng.integers(0, len(store), 2)).sum(axis=0))
    plain, found = store.search(query, key, k), store.search(query, key, k, after=earlier)
    assert (found.score >= plain.score).all()
    assert len(set(found.row.tolist())) == len(found)
    assert set(found.row.tolist()) <= {*plain.row.tolist(), *(earlier.row + 1).tolist()}


def test_hits_of_another_store_are_not_followed(store):
    strange = store.steps_at(np.array([3]))
    with pytest.raises(StoreError, match="do not belong to this store"):
        _found(store, 5, 0, after=replace(strange, episode=strange.episode + 1))


def test_equal_frames_come_back_in_row_order(tmp_path):
    episodes = synthetic_episodes(SyntheticSpec(tasks=1, episodes=1, steps=20))
    from heisd_ros.demonstrations.manifest import StoreProfile
    from heisd_ros.demonstrations.writer import StoreWriter

    same = np.tile(episodes[0].vectors[:1], (len(episodes[0].steps), 1))
    with StoreWriter(tmp_path / "store", StoreProfile("f", 48)) as writer:
        writer.add_episode(replace(episodes[0], vectors=same))
        writer.finish()
    hits = MemoryStore.open(tmp_path / "store").search(same[0], "synthetic task 0", 5)
    assert hits.row.tolist() == [0, 1, 2, 3, 4]
    assert len(set(hits.score.tolist())) == 1


def test_float16_rows_are_scored_in_float32(tmp_path):
    small = synthetic_store(tmp_path / "store", SPEC, dtype="float16", exact_below=0)
    task = small.manifest.tasks[1]
    query = unit(small.vectors(np.array([task.first_row, task.first_row + 9])).sum(axis=0))
    hits = small.search(query, task.key, 5)
    rows = small._column("vectors")[task.first_row : task.stop_row].astype(np.float64)
    wanted = np.sort(rows @ query.astype(np.float64))[::-1][:5]
    np.testing.assert_allclose(hits.score, wanted, atol=1e-6)


def test_search_allocates_no_more_for_a_larger_task(tmp_path):
    import tracemalloc

    def peak(episodes):
        spec = SyntheticSpec(tasks=1, episodes=episodes, steps=500, embedding_size=160)
        big = synthetic_store(tmp_path / str(episodes), spec, exact_below=0)
        assert big.manifest.tasks[0].prefix_size > 0
        query = big.vectors(np.array([3]))[0]
        earlier = big.search(query, "synthetic task 0", 5)
        tracemalloc.start()
        big.search(query, "synthetic task 0", 5, after=earlier)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    # About 20,000 and 40,000 rows: both above two blocks of 8,192.
    assert peak(80) <= 1.1 * peak(40)


# --- threads and processes ----------------------------------------------------------------------


def test_eight_threads_get_the_answers_of_one(store):
    queries = [store.vectors(np.array([row]))[0] for row in range(0, len(store), 11)]
    tasks = [
        next(t.key for t in store.manifest.tasks if t.first_row <= row < t.stop_row)
        for row in range(0, len(store), 11)
    ]
    wanted = [store.search(q, t, 5).row for q, t in zip(queries, tasks, strict=True)]
    barrier = threading.Barrier(8)

    def work(shift):
        barrier.wait()
        order = [(i + shift) % len(queries) for i in range(len(queries))]
        return [(i, store.search(queries[i], tasks[i], 5).row) for i in order]

    with ThreadPoolExecutor(8) as pool:
        for answers in pool.map(work, range(8)):
            for i, rows in answers:
                np.testing.assert_array_equal(rows, wanted[i])


READER = """
import sys, numpy as np
from heisd_ros.demonstrations.store import MemoryStore
store = MemoryStore.open(sys.argv[1], verify=True)
print("open", flush=True)
sys.stdin.readline()
hits = store.search(store.vectors(np.array([7]))[0], "synthetic task 0", 3)
print(*hits.row.tolist(), flush=True)
"""


def start_reader(folder):
    return subprocess.Popen(
        [sys.executable, "-c", READER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_two_processes_read_one_store_and_survive_its_replacement(copy):
    readers = [start_reader(copy), start_reader(copy)]
    assert [reader.stdout.readline() for reader in readers] == ["open\n", "open\n"]
    wanted = MemoryStore.open(copy).search(
        MemoryStore.open(copy).vectors(np.array([7]))[0], "synthetic task 0", 3
    )
    synthetic_store(copy, SyntheticSpec(tasks=1, episodes=1, seed=9))
    for reader in readers:
        out, _ = reader.communicate("go\n", timeout=30)
        assert out == " ".join(map(str, wanted.row.tolist())) + "\n"
    assert MemoryStore.open(copy).manifest.episodes == 1


# --- damage -------------------------------------------------------------------------------------


def test_a_missing_folder_says_how_to_make_one(tmp_path):
    with pytest.raises(StoreError, match=r"nothing.*does not exist.*build-db"):
        MemoryStore.open(tmp_path / "nothing")


def test_a_folder_without_manifest_is_no_store(tmp_path):
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        MemoryStore.open(tmp_path)


def test_a_store_of_another_encoder_is_refused_naming_both(copy):
    assert len(MemoryStore.open(copy, fingerprint="synthetic")) == len(MemoryStore.open(copy))
    with pytest.raises(StoreError, match=r"expected abc, got synthetic; .*heisd build-db"):
        MemoryStore.open(copy, fingerprint="abc")


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("lost", [1, 4096])
def test_a_truncated_file_is_noticed_at_open(copy, name, lost):
    path = data_file(copy, name)
    os.truncate(path, max(0, path.stat().st_size - lost))
    with pytest.raises(StoreError, match=rf"{name}\.npy: expected \d+ bytes, got \d+"):
        MemoryStore.open(copy)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_file_is_noticed_at_open(copy, name):
    data_file(copy, name).unlink()
    with pytest.raises(StoreError, match=rf"{name}\.npy is missing"):
        MemoryStore.open(copy)


@pytest.mark.parametrize("name", [*COLUMNS, "position", "gripper"])
@pytest.mark.parametrize("where", [0.3, 0.999])
def test_one_flipped_bit_is_noticed_on_verify(copy, name, where):
    path = data_file(copy, name)
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=name):
        MemoryStore.open(copy, verify=True)


def test_any_flipped_bit_of_the_manifest_is_noticed(copy):
    path = copy / "manifest.json"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    unnoticed = []
    for position in rng.integers(0, len(content), 200).tolist():
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(7))
        path.write_bytes(damaged)
        try:
            opened = MemoryStore.open(copy)
        except StoreError:
            continue
        # Only the white space of the file may change without harm.
        if opened.manifest != read_manifest(copy) or json.loads(damaged) != json.loads(content):
            unnoticed.append(position)
    assert unnoticed == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 3}, "expected schema 2, got 3"),
        ({"schema": None}, "expected schema 2, got None"),
        ({"rows": 5}, "checksum"),
    ],
)
def test_a_manifest_of_another_schema_or_edited_by_hand_is_refused(copy, change, words):
    path = copy / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StoreError, match=words):
        MemoryStore.open(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", "17", '{"schema": 1}'])
def test_a_manifest_that_is_no_manifest_is_refused(copy, text):
    (copy / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match="build-db"):
        MemoryStore.open(copy)


def test_row_ranges_that_overlap_are_refused(copy):
    manifest = read_manifest(copy)
    tasks = list(manifest.tasks)
    tasks[1] = replace(tasks[1], first_row=tasks[1].first_row - 1)
    write_manifest(replace(manifest, tasks=tuple(tasks)), copy)
    with pytest.raises(StoreError, match="impossible row range"):
        MemoryStore.open(copy)


def test_a_pickled_file_is_never_executed(copy, tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    path = data_file(copy, "step")
    np.save(path, np.array([Evil()], dtype=object), allow_pickle=True)
    manifest = read_manifest(copy)
    record = replace(manifest.files["step.npy"], size=path.stat().st_size)
    write_manifest(replace(manifest, files={**manifest.files, "step.npy": record}), copy)
    with pytest.raises(StoreError, match=r"step\.npy"):
        MemoryStore.open(copy)
    assert not (tmp_path / "executed").exists()


def test_actions_that_are_not_numbers_are_refused_at_open(copy):
    path = data_file(copy, "action")
    actions = np.load(path)
    actions[4, 2] = np.nan
    np.save(path, actions)
    with pytest.raises(StoreError, match="impossible"):
        MemoryStore.open(copy)


def test_vectors_that_are_not_unit_are_refused_on_verify(copy):
    path = data_file(copy, "vectors")
    vectors = np.load(path)
    vectors[4] *= 2.0
    np.save(path, vectors)
    manifest = read_manifest(copy)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    record = replace(manifest.files["vectors.npy"], sha256=digest)
    write_manifest(replace(manifest, files={**manifest.files, "vectors.npy": record}), copy)
    with pytest.raises(StoreError, match="unit norm"):
        MemoryStore.open(copy, verify=True)


def test_a_store_of_the_first_schema_is_still_read(copy, store):
    # It had no features, no target tokens, and scored 64 rows behind every prefix.
    path = copy / "manifest.json"
    content = json.loads(path.read_text())
    content["schema"] = 1
    del content["feature_size"], content["target_tokens"], content["checksum"]
    for task in content["tasks"]:
        del task["rerank_rows"]
        task["recall"] = {str(task["prefix_size"]): 0.997}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content))
    old = MemoryStore.open(copy, verify=True)
    assert [task.rerank_rows for task in old.manifest.tasks] == [64, 64, 64]
    assert old.manifest.tasks[0].measured_recall == 0.997
    query = store.vectors(np.array([9]))[0]
    wanted = store.search(query, "synthetic task 0", 5, exact=True)
    assert old.search(query, "synthetic task 0", 5).row.tolist() == wanted.row.tolist()
    assert old.features(wanted.row) is None
    assert old.target_tokens(wanted.row) is None


def test_the_layout_lists_every_file_of_the_data_folder(copy):
    manifest = read_manifest(copy)
    on_disk = {path.stem for path in (copy / manifest.data_folder).iterdir()}
    assert on_disk == set(column_layout(manifest)) == {Path(n).stem for n in manifest.files}


def test_hits_of_another_store_have_no_successors_here(store, copy):
    query = store.vectors(np.array([200]))[0]
    hits = store.search(query, "synthetic task 0", 1)
    other = synthetic_store(copy, SyntheticSpec(tasks=1, episodes=2))
    with pytest.raises(StoreError, match="do not belong"):
        other.successors(hits, 1)


def test_a_closed_store_says_so(copy):
    opened = MemoryStore.open(copy)
    query = opened.vectors(np.array([0]))[0]
    with opened:
        assert len(opened.search(query, "synthetic task 0", 1)) == 1
    opened.close()
    with pytest.raises(StoreError, match="closed"):
        opened.search(query, "synthetic task 0", 1)
