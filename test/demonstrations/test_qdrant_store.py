"""QdrantStore: what goes wrong with a server, and copying both ways."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("qdrant_client")

from qdrant_client import models
from qdrant_client.http.exceptions import ResponseHandlingException
from ros_fakes import wait_until

from heisd_ros.demonstrations.manifest import StoreProfile
from heisd_ros.demonstrations.qdrant_connection import MANIFEST_ID, connect
from heisd_ros.demonstrations.qdrant_store import QdrantStore
from heisd_ros.demonstrations.qdrant_transfer import (
    Layout,
    delete_export,
    export_to_qdrant,
    import_from_qdrant,
    point_alias,
)
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_episodes, synthetic_store
from heisd_ros.demonstrations.writer import StoreWriter
from heisd_ros.errors import StoreError, StoreUnavailableError

ROOT = Path(__file__).parents[2]
SPEC = SyntheticSpec(tasks=2, episodes=3, steps=10, embedding_size=8, seed=5)
TASK = "synthetic task 0"


@pytest.fixture
def source(tmp_path):
    return synthetic_store(tmp_path / "source", SPEC)


@pytest.fixture
def client(source):
    made = connect(":memory:")
    export_to_qdrant(source, made, "demos")
    return made


@pytest.fixture
def query(source):
    return source.vectors(np.array([4]))[0]


class Unreliable:
    """A client in front of a server that can be switched off."""

    def __init__(self, client):
        self._client, self.down, self.hang, self.calls = client, False, None, 0
        self.init_options = {}

    def __getattr__(self, name):
        method = getattr(self._client, name)

        def call(*arguments, **options):
            self.calls += 1
            if self.hang is not None:
                self.hang.wait(30)
            if self.down:
                raise ResponseHandlingException(ConnectionRefusedError("refused"))
            return method(*arguments, **options)

        return call


class Forgetful:
    """A client whose approximate search never finds one row; asked by its id it is there."""

    def __init__(self, client, row):
        self._client, self._row, self.batches = client, row, []
        self.init_options = client.init_options

    def __getattr__(self, name):
        return getattr(self._client, name)

    def query_points(self, collection, **options):
        self.batches.append(1)
        return self._without_row(self._client.query_points(collection, **options))

    def query_batch_points(self, collection, requests):
        self.batches.append(len(requests))
        answers = self._client.query_batch_points(collection, requests)
        return [self._without_row(answers[0]), *answers[1:]]

    def _without_row(self, answer):
        answer.points = [point for point in answer.points if point.id != self._row]
        return answer


def _follow(client, source, row):
    """Search for a row that the approximate search misses, from the row before."""
    forgetful = Forgetful(client, row)
    store = QdrantStore(forgetful, "demos", timeout_s=30.0)
    vectors = source.vectors(np.array([row - 1, row]))
    earlier = store.search(vectors[0], TASK, 1)
    assert earlier.row.tolist() == [row - 1]
    assert row not in store.search(vectors[1], TASK, 60).row
    found = store.search(vectors[1], TASK, 3, after=earlier)
    assert forgetful.batches == [1, 1, 2]
    return found


@pytest.mark.parametrize("row", [1, 5])
def test_the_step_after_a_hit_is_asked_for_in_the_same_batch(client, source, row):
    found = _follow(client, source, row)
    assert (found.row[0], found.score[0]) == (row, pytest.approx(1.0, abs=1e-6))
    assert len(found) == 3


def test_the_first_step_of_the_next_episode_is_not_the_step_after_a_hit(client, source):
    starts = np.flatnonzero(np.diff(source.rows_of(TASK).episode)) + 1
    assert len(starts) == 2
    for row in starts.tolist():
        assert row not in _follow(client, source, row).row


# --- the server fails ---------------------------------------------------------------------------


def test_a_server_that_refuses_connections_is_a_store_error_not_a_crash(query):
    # Port 9 of this machine: nobody listens.
    for scheme in ("http", "grpc"):
        client = connect(f"{scheme}://127.0.0.1:9")
        store = QdrantStore(client, "demos", timeout_s=5.0)
        with pytest.raises(StoreUnavailableError, match="demos"):
            store.search(query, TASK, 3)
        with pytest.raises(StoreError, match="paused"):
            store.search(query, TASK, 3)
        store.close()


def test_a_server_that_dies_and_comes_back_is_used_again(client, query):
    unreliable = Unreliable(client)
    store = QdrantStore(unreliable, "demos", timeout_s=30.0, pause_s=0.0)
    assert store.search(query, TASK, 1).row.tolist() == [4]
    unreliable.down = True
    for _ in range(100):
        with pytest.raises(StoreError, match="ResponseHandlingException"):
            store.search(query, TASK, 1)
    unreliable.down = False
    assert store.search(query, TASK, 1).row.tolist() == [4]


def test_a_dead_server_is_not_asked_again_during_the_pause(client, query):
    unreliable = Unreliable(client)
    unreliable.down = True
    store = QdrantStore(unreliable, "demos", timeout_s=30.0, pause_s=1000.0)
    for _ in range(20):
        with pytest.raises(StoreError):
            store.search(query, TASK, 1)
    assert unreliable.calls == 1


def test_a_server_that_hangs_costs_one_deadline(client, query):
    unreliable = Unreliable(client)
    store = QdrantStore(unreliable, "demos", timeout_s=30.0, pause_s=0.0)
    store.search(query, TASK, 1)
    unreliable.hang = threading.Event()
    store._caller._timeout_s = 0.02
    with pytest.raises(StoreError, match=r"no answer within 0\.02 s"):
        store.search(query, TASK, 1)
    unreliable.hang.set()


def test_a_missing_collection_is_named(client, query):
    store = QdrantStore(client, "other", timeout_s=30.0)
    with pytest.raises(StoreError, match="'other'"):
        store.search(query, TASK, 1)


def test_an_empty_collection_is_an_export_that_never_finished(client, query):
    vectors = models.VectorParams(size=8, distance=models.Distance.DOT)
    client.create_collection("empty", vectors_config=vectors)
    store = QdrantStore(client, "empty", timeout_s=30.0)
    with pytest.raises(StoreError, match="never finished"):
        store.search(query, TASK, 1)


def test_a_query_of_another_length_is_refused_before_it_is_sent(client, query):
    store = QdrantStore(client, "demos", timeout_s=30.0)
    with pytest.raises(StoreError, match=r"\(8,\), got \(16,\)"):
        store.search(np.tile(query, 2), TASK, 1)


def test_a_collection_of_another_encoder_is_refused(client, query):
    store = QdrantStore(client, "demos", fingerprint="abc", timeout_s=30.0)
    with pytest.raises(StoreError, match="expected abc, got synthetic"):
        store.search(query, TASK, 1)


@pytest.mark.parametrize(
    "payload",
    [
        {"action": None},
        {"action": [0.0] * 6},
        {"action": [0.0] * 6 + [None]},
        {"action": "open"},
        {"lookahead": [[0.0] * 7] * 2},
        {"valid_length": 4},
        {"valid_length": None},
        {"episode": "one"},
        {"position": [0.0, 0.0]},
        {"position": None},
        {"position": [0.0, 0.0, "up"]},
    ],
)
def test_a_row_without_a_usable_action_is_refused_and_the_next_search_works(client, query, payload):
    store = QdrantStore(client, "demos", timeout_s=30.0)
    client.set_payload("demos", payload, points=[4])
    with pytest.raises(StoreError, match=r"row 4 .* no usable action"):
        store.search(query, TASK, 1)
    other = np.asarray(client.retrieve("demos", [9], with_vectors=True)[0].vector, dtype=np.float32)
    assert store.search(other, TASK, 1).row.tolist() == [9]


def test_a_row_of_another_task_is_refused(client, query):
    store = QdrantStore(client, "demos", timeout_s=30.0)
    client.set_payload("demos", {"task": TASK}, points=[40])  # a row of task 1
    with pytest.raises(StoreError, match="row 40 is none of 'synthetic task 0'"):
        store.search(query, TASK, 60)


def test_folders_of_the_local_mode_are_not_opened(tmp_path):
    with pytest.raises(StoreError, match="no address of a store"):
        connect(str(tmp_path))


def test_an_unknown_task_costs_no_query(client, query):
    unreliable = Unreliable(client)
    store = QdrantStore(unreliable, "demos", timeout_s=30.0)
    store.greet()
    before = unreliable.calls
    assert len(store.search(query, "juggle", 3)) == 0
    assert unreliable.calls == before


def test_a_replaced_store_is_noticed_at_its_first_row_and_then_used(client, query, tmp_path):
    store = QdrantStore(client, "demos", timeout_s=30.0)
    assert store.search(query, TASK, 1).row.tolist() == [4]
    other = synthetic_store(tmp_path / "other", replace(SPEC, seed=6))
    export_to_qdrant(other, client, "demos", replace=True)
    vector = other.vectors(np.array([7]))[0]
    with pytest.raises(StoreError, match="another export"):
        store.search(vector, TASK, 1)
    assert store.search(vector, TASK, 1).row.tolist() == [7]


def test_an_alias_that_leads_elsewhere_is_followed(client, source, query, tmp_path):
    point_alias(client, "fleet", "demos")
    store = QdrantStore(client, "fleet", timeout_s=30.0, pause_s=0.0)
    assert store.search(query, TASK, 1).row.tolist() == [4]
    other = synthetic_store(tmp_path / "other", replace(SPEC, seed=6))
    export_to_qdrant(other, client, "demos-2")
    point_alias(client, "fleet", "demos-2")
    delete_export(client, "demos")
    vector = other.vectors(np.array([7]))[0]
    with pytest.raises(StoreError):
        store.search(vector, TASK, 1)
    assert store.search(vector, TASK, 1).row.tolist() == [7]


def test_an_alias_to_an_unfinished_export_is_refused(client):
    client.delete("demos", points_selector=[MANIFEST_ID])
    with pytest.raises(StoreError, match="never finished"):
        point_alias(client, "fleet", "demos")


def test_a_late_manifest_serves_the_next_search(client, query):
    unreliable = Unreliable(client)
    unreliable.hang = threading.Event()
    store = QdrantStore(unreliable, "demos", timeout_s=0.02, pause_s=0.0)
    with pytest.raises(StoreUnavailableError, match="no answer"):
        store.search(query, TASK, 1)
    unreliable.hang.set()
    assert wait_until(lambda: store._export is not None, 30.0)
    store._caller._timeout_s = 30.0
    asked = unreliable.calls
    assert store.search(query, TASK, 1).row.tolist() == [4]
    assert unreliable.calls == asked + 1  # the search alone


def test_eight_threads_share_one_store(client, source):
    store = QdrantStore(client, "demos", timeout_s=30.0)
    wrong = []

    def work(row):
        vector = source.vectors(np.array([row]))[0]
        wrong.extend(row for _ in range(10) if store.search(vector, TASK, 1).row[0] != row)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


def test_without_qdrant_client_the_message_carries_the_install_line():
    code = (
        "import sys; sys.modules['qdrant_client'] = None\n"
        "from heisd_ros.errors import MissingDependencyError\n"
        "try:\n    import heisd_ros.demonstrations.qdrant_store\n"
        "except MissingDependencyError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "pip install 'heisd_ros[qdrant]'" in done.stdout


# --- copying ------------------------------------------------------------------------------------


def test_there_and_back_gives_the_same_files_bit_for_bit(client, source, tmp_path):
    manifest = import_from_qdrant(client, "demos", tmp_path / "back")
    assert manifest == source.manifest  # sizes and SHA-256 of all files included
    assert len(MemoryStore.open(tmp_path / "back", verify=True)) == len(source)


@pytest.fixture
def answered(tmp_path):
    """A store with the model's own answers: 4 lm_head numbers and 7 tokens for every row."""
    rng = np.random.default_rng(7)
    with StoreWriter(tmp_path / "answered", StoreProfile("f", 8)) as writer:
        for rows in synthetic_episodes(SPEC):
            n = len(rows.steps)
            features = rng.standard_normal((n, 4)).astype(np.float32)
            tokens = rng.integers(31744, 32000, (n, 7))
            writer.add_episode(replace(rows, features=features, target_tokens=tokens))
        writer.finish()
    return MemoryStore.open(tmp_path / "answered")


@pytest.mark.parametrize("per_task", [False, True])
def test_the_models_own_answers_survive_the_trip(answered, tmp_path, per_task):
    client = connect(":memory:")
    export_to_qdrant(answered, client, "demos", layout=Layout(per_task=per_task))
    manifest = import_from_qdrant(client, "demos", tmp_path / "back")
    assert (manifest.feature_size, manifest.target_tokens) == (4, True)
    assert manifest == answered.manifest  # SHA-256 of every column
    assert set(MemoryStore.open(tmp_path / "back", verify=True)._columns) == {
        *("vectors", "prefix", "action", "lookahead", "valid_length", "episode", "step"),
        *("position", "gripper", "feature", "target_tokens"),
    }, "a new column has to travel too: extend payload_of and this list"


def test_a_server_gives_the_features_of_the_neighbours(answered):
    client = connect(":memory:")
    export_to_qdrant(answered, client, "demos")
    query = answered.vectors(np.array([4]))[0]
    hits = QdrantStore(client, "demos", timeout_s=30.0).search(query, TASK, 3)
    assert hits.row[0] == 4
    np.testing.assert_array_equal(hits.feature, answered.features(hits.row))


@pytest.mark.parametrize(
    "damage",
    [
        {"feature": None},
        {"feature": "AAAA"},
        {"feature": "AHwAfAB8AHw="},  # four times infinity
        {"feature": "no base64 at all"},
        {"target_tokens": [31744] * 6},
        {"target_tokens": None},
        {"target_tokens": ["a"] * 7},
    ],
)
def test_a_row_without_the_promised_answers_is_refused(answered, damage):
    client = connect(":memory:")
    export_to_qdrant(answered, client, "demos")
    client.set_payload("demos", damage, points=[4])
    store = QdrantStore(client, "demos", timeout_s=30.0)
    with pytest.raises(StoreError, match=r"row 4 .* lacks .*export the store again"):
        store.search(answered.vectors(np.array([4]))[0], TASK, 1)


def test_unknown_positions_and_dropped_steps_survive_the_trip(tmp_path):
    rows = synthetic_episodes(SPEC)[0]
    n = len(rows.steps)
    positions = rows.positions.copy()
    positions[1] = [np.nan, 0.5, np.nan]
    odd = replace(
        rows,
        steps=np.arange(n) * 2,
        positions=positions,
        gripper=np.full(n, np.nan),
    )
    with StoreWriter(tmp_path / "odd", StoreProfile("f", 8)) as writer:
        writer.add_episode(odd)
        writer.finish()
    store, client = MemoryStore.open(tmp_path / "odd"), connect(":memory:")
    export_to_qdrant(store, client, "odd")
    assert import_from_qdrant(client, "odd", tmp_path / "back") == store.manifest
    remote = QdrantStore(client, "odd", timeout_s=30.0)
    hits = remote.search(store.vectors(np.array([1]))[0], TASK, 1)
    np.testing.assert_array_equal(hits.position, positions[1:2])
    # Every second step was dropped: no row has its followers at once behind it.
    assert hits.valid_length.tolist() == [0]
    # Row 1 is step 2: step 3 was dropped, step 4 is the next row.
    assert len(remote.successors(hits, 1)) == len(store.successors(hits, 1)) == 0
    assert remote.successors(hits, 2).row.tolist() == store.successors(hits, 2).row.tolist() == [2]


def test_an_existing_collection_is_replaced_only_on_request(client, source, tmp_path):
    with pytest.raises(StoreError, match="exists"):
        export_to_qdrant(source, client, "demos")
    small = synthetic_store(tmp_path / "small", SyntheticSpec(1, 1, 5, 8))
    export_to_qdrant(small, client, "demos", replace=True)
    assert client.count("demos", exact=True).count == len(small) + 1  # and the manifest


def test_an_export_that_broke_off_is_recognised(client, query, tmp_path):
    client.delete("demos", points_selector=[MANIFEST_ID])
    with pytest.raises(StoreError, match="never finished"):
        import_from_qdrant(client, "demos", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_collection_that_lost_a_row_is_not_imported(client, tmp_path):
    client.delete("demos", points_selector=[7])
    with pytest.raises(StoreError, match="rows, got"):
        import_from_qdrant(client, "demos", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_one_collection_per_task_survives_the_trip_and_is_deleted_whole(source, query, tmp_path):
    client = connect(":memory:")
    client.create_collection(
        "demos-of-others", vectors_config=models.VectorParams(size=8, distance="Dot")
    )
    export_to_qdrant(source, client, "demos", layout=Layout(per_task=True))
    counts = {c.name: client.count(c.name).count for c in client.get_collections().collections}
    assert sorted(counts.values()) == sorted([0, 1, *(t.rows for t in source.manifest.tasks)])
    assert counts["demos"] == 1  # the manifest alone
    store = QdrantStore(client, "demos", timeout_s=30.0)
    assert store.search(query, TASK, 1).row.tolist() == [4]
    assert import_from_qdrant(client, "demos", tmp_path / "back") == source.manifest
    export_to_qdrant(source, client, "demos", replace=True)  # the other layout
    assert client.count("demos").count == len(source) + 1
    delete_export(client, "demos")
    assert [c.name for c in client.get_collections().collections] == ["demos-of-others"]


def test_rows_of_two_exports_are_not_imported(client, tmp_path):
    client.set_payload("demos", {"store": "0" * 16}, points=[7])
    with pytest.raises(StoreError, match=r"row 7 .* another export"):
        import_from_qdrant(client, "demos", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_the_in_memory_mode_refuses_a_large_store(source, monkeypatch):
    monkeypatch.setattr("heisd_ros.demonstrations.qdrant_transfer.MAX_LOCAL_ROWS", 10)
    with pytest.raises(StoreError, match="at most 10 rows"):
        export_to_qdrant(source, connect(":memory:"), "big")
