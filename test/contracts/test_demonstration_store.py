"""What every DemonstrationStore promises, run over every implementation."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.errors import StoreError
from heisd_ros.protocols import DemonstrationStore

TASK = "synthetic task 0"
OTHER = "synthetic task 1"
SPEC = SyntheticSpec(tasks=2, episodes=5, steps=30, embedding_size=48, seed=3)
SERVER = os.environ.get("HEISD_QDRANT_URL", "")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The same rows as every implementation holds, searched exactly."""
    return synthetic_store(tmp_path_factory.mktemp("reference") / "store", SPEC)


def _memory(tmp_path_factory, reference):
    # exact_below=0 forces the two-stage search on this small data set.
    return synthetic_store(tmp_path_factory.mktemp("memory") / "store", SPEC, exact_below=0)


def _exported(client, reference, name, *, per_task=False):
    from heisd_ros.demonstrations.qdrant_store import QdrantStore
    from heisd_ros.demonstrations.qdrant_transfer import Layout, export_to_qdrant

    export_to_qdrant(reference, client, name, layout=Layout(per_task=per_task))
    return QdrantStore(client, name, timeout_s=30.0)


def _qdrant_local(tmp_path_factory, reference):
    pytest.importorskip("qdrant_client")
    from heisd_ros.demonstrations.qdrant_connection import connect

    return _exported(connect(":memory:"), reference, "contract")


def _qdrant_per_task(tmp_path_factory, reference):
    pytest.importorskip("qdrant_client")
    from heisd_ros.demonstrations.qdrant_connection import connect

    return _exported(connect(":memory:"), reference, "contract", per_task=True)


def _loopback(scheme, reference):
    pytest.importorskip("qdrant_client")
    from qdrant_loopback import Loopback

    from heisd_ros.demonstrations.qdrant_connection import connect

    server = Loopback()
    made = _exported(connect(server.url(scheme), timeout_s=30), reference, "contract")
    made.server = server
    return made


def _qdrant_server(tmp_path_factory, reference):
    if not SERVER:
        pytest.skip("no Qdrant server was tested: set HEISD_QDRANT_URL to its address")
    from heisd_ros.demonstrations.qdrant_connection import connect

    name = f"heisd-contract-{uuid.uuid4().hex[:8]}"
    return _exported(connect(SERVER, timeout_s=30), reference, name)


MAKERS = {
    "memory": _memory,
    "qdrant_local": _qdrant_local,
    "qdrant_per_task": _qdrant_per_task,
    "qdrant_loopback_http": lambda factory, reference: _loopback("http", reference),
    "qdrant_loopback_grpc": lambda factory, reference: _loopback("grpc", reference),
    "qdrant_server": _qdrant_server,
}


@pytest.fixture(scope="module", params=sorted(MAKERS))
def store(request, tmp_path_factory, reference):
    made = MAKERS[request.param](tmp_path_factory, reference)
    yield made
    if request.param == "qdrant_server":
        from heisd_ros.demonstrations.qdrant_transfer import delete_export

        delete_export(made._client, made._collection)
    made.close()
    if hasattr(made, "server"):
        made.server.stop()


def _run_server_leg(url):
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", __file__, "-q", "-rsE", "-p", "no:cacheprovider"),
            *("-k", "qdrant_server and test_it_is_a_demonstration_store"),
        ],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "HEISD_QDRANT_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_without_a_server_says_that_none_was_tested():
    pytest.importorskip("qdrant_client")
    done = _run_server_leg("")
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "no Qdrant server was tested: set HEISD_QDRANT_URL" in done.stdout


def test_a_server_that_is_named_and_away_is_an_error_not_a_skip():
    pytest.importorskip("qdrant_client")
    done = _run_server_leg("http://127.0.0.1:9")
    assert done.returncode == 1
    assert "1 error" in done.stdout
    assert "StoreUnavailableError" in done.stdout


class TestDemonstrationStoreContract:
    def test_it_is_a_demonstration_store(self, store):
        assert isinstance(store, DemonstrationStore)

    def test_a_stored_step_finds_itself_first(self, store, reference):
        hits = store.search(reference.vectors(np.array([17]))[0], TASK, 5)
        assert hits.row[0] == 17
        assert hits.score[0] == pytest.approx(1.0, abs=1e-6)

    def test_hits_have_the_documented_shapes_and_types(self, store, reference):
        hits = store.search(reference.vectors(np.array([0]))[0], TASK, 4)
        assert len(hits) == 4
        assert (hits.score.dtype, hits.row.dtype) == (np.float32, np.int64)
        assert (hits.episode.dtype, hits.step.dtype) == (np.int64, np.int64)
        assert (hits.action.shape, hits.action.dtype) == ((4, 7), np.float64)
        assert (hits.lookahead.shape, hits.lookahead.dtype) == ((4, 3, 7), np.float64)
        assert (hits.valid_length.shape, hits.position.shape) == ((4,), (4, 3))

    def test_scores_descend_and_are_cosines(self, store, reference):
        query = _between(reference, 10, 40)
        hits = store.search(query, TASK, 8)
        assert (np.diff(hits.score) <= 0).all()
        np.testing.assert_allclose(hits.score, reference.vectors(hits.row) @ query, atol=1e-6)

    def test_neighbours_are_those_of_exact_search(self, store, reference):
        for first in range(0, 120, 7):
            query = _between(reference, first, first + 5)
            wanted = reference.search(query, TASK, 5, exact=True)
            found = store.search(query, TASK, 5)
            np.testing.assert_array_equal(found.row, wanted.row)
            np.testing.assert_allclose(found.score, wanted.score, atol=1e-6)

    def test_payload_is_the_stored_one_bit_for_bit(self, store, reference):
        query = _between(reference, 3, 90)
        found = store.search(query, TASK, 5)
        wanted = reference.search(query, TASK, 5, exact=True)
        for name in ("episode", "step", "action", "lookahead", "valid_length", "position"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))

    def test_what_follows_earlier_hits_only_competes(self, store, reference):
        # Here the plain search finds all neighbours, so nothing may change.
        for first in range(0, 120, 7):
            query = _between(reference, first, first + 5)
            earlier = store.search(_between(reference, first + 40, first + 2), TASK, 5)
            found = store.search(query, TASK, 5, after=earlier)
            wanted = reference.search(query, TASK, 5, exact=True)
            np.testing.assert_array_equal(found.row, wanted.row)
            np.testing.assert_allclose(found.score, wanted.score, atol=1e-6)

    def test_no_row_comes_twice_or_from_another_task(self, store, reference):
        first_of_other = reference.manifest.tasks[1].first_row
        for row in (4, first_of_other - 1, first_of_other + 4):
            task = TASK if row < first_of_other else OTHER
            earlier = store.search(reference.vectors(np.array([row]))[0], task, 3)
            hits = store.search(reference.vectors(np.array([5]))[0], TASK, 500, after=earlier)
            assert sorted(hits.row.tolist()) == list(range(first_of_other))

    def test_nothing_follows_no_hits(self, store, reference):
        query = reference.vectors(np.array([0]))[0]
        none = store.search(query, "juggle the bowls", 5)
        found = store.search(query, TASK, 3, after=none)
        np.testing.assert_array_equal(found.row, store.search(query, TASK, 3).row)

    def test_results_never_cross_tasks(self, store, reference):
        # The query is a step of the other task: its twin there must not be found here.
        first_of_other = reference.manifest.tasks[1].first_row
        hits = store.search(reference.vectors(np.array([first_of_other + 4]))[0], TASK, 32)
        assert (hits.row < first_of_other).all()
        assert hits.score.max() < 0.99

    def test_more_neighbours_than_steps_gives_all_steps(self, store, reference):
        rows = reference.manifest.tasks[1].rows
        hits = store.search(reference.vectors(np.array([0]))[0], OTHER, 10_000)
        assert len(hits) == rows
        assert len(set(hits.row.tolist())) == rows

    def test_an_unknown_task_finds_nothing(self, store, reference):
        hits = store.search(reference.vectors(np.array([0]))[0], "juggle the bowls", 5)
        assert len(hits) == 0
        assert hits.action.shape == (0, 7)
        assert hits.lookahead.shape == (0, 3, 7)
        assert len(store.successors(hits, 1)) == 0

    def test_the_task_key_ignores_case_and_spaces_but_nothing_else(self, store, reference):
        query = reference.vectors(np.array([0]))[0]
        assert len(store.search(query, "  Synthetic  TASK 0 ", 2)) == 2
        assert len(store.search(query, "synthetic task 0.", 2)) == 0

    @pytest.mark.parametrize(
        ("make_wrong", "words"),
        [
            (lambda q: q[:-1], r"\(48,\)"),
            (lambda q: np.tile(q, 2), r"\(48,\)"),
            (lambda q: q[None], r"\(48,\)"),
            (lambda q: q * 2.0, "unit norm"),
            (lambda q: q * 0.0, "unit norm"),
            (lambda q: q * np.nan, "finite"),
            (lambda q: q * np.inf, "finite"),
        ],
    )
    def test_a_bad_query_is_refused(self, store, reference, make_wrong, words):
        query = reference.vectors(np.array([0]))[0]
        with pytest.raises(StoreError, match=words):
            store.search(make_wrong(query), TASK, 5)

    def test_k_below_one_is_refused(self, store, reference):
        with pytest.raises(StoreError, match="at least 1"):
            store.search(reference.vectors(np.array([0]))[0], TASK, 0)

    def test_successors_are_the_following_steps(self, store, reference):
        hits = store.search(reference.vectors(np.array([5]))[0], TASK, 3)
        later = store.successors(hits, 2)
        assert later.row[0] == 7
        assert later.step[0] == hits.step[0] + 2
        assert later.score[0] == hits.score[0]
        np.testing.assert_array_equal(later.action[0], hits.lookahead[0, 1])

    def test_successors_never_leave_the_episode(self, store, reference):
        rows = reference.rows_of(TASK)
        ends = np.flatnonzero(np.diff(rows.episode)).tolist()
        assert len(ends) == SPEC.episodes - 1
        for end in ends:
            hits = store.search(reference.vectors(np.array([end]))[0], TASK, 1)
            assert hits.row[0] == end
            assert len(store.successors(hits, 1)) == 0
            assert len(store.successors(hits, 0)) == 1

    def test_successors_of_the_last_row_are_nothing(self, store, reference):
        last = len(reference) - 1
        hits = store.search(reference.vectors(np.array([last]))[0], OTHER, 1)
        assert hits.row[0] == last
        assert len(store.successors(hits, 1)) == 0

    def test_going_back_in_time_is_refused(self, store, reference):
        hits = store.search(reference.vectors(np.array([5]))[0], TASK, 1)
        with pytest.raises(StoreError, match="negative"):
            store.successors(hits, -1)


def _between(reference: MemoryStore, first: int, second: int) -> np.ndarray:
    """A query that no row equals: between two rows, and nearer to the first so that none tie."""
    query = np.array([0.7, 0.3], dtype=np.float32) @ reference.vectors(np.array([first, second]))
    return query / np.linalg.norm(query)
