"""QdrantStore over real sockets: a server that refuses, is slow, dies, talks rubbish, returns."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("qdrant_client")

from qdrant_loopback import Loopback
from ros_fakes import wait_until

from heisd_ros.demonstrations.qdrant_connection import (
    GRPC_OPTIONS,
    Question,
    connect,
    models,
    search_points,
    search_points_grpc,
)
from heisd_ros.demonstrations.qdrant_export import check_version
from heisd_ros.demonstrations.qdrant_store import QdrantStore, digest_of
from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant
from heisd_ros.demonstrations.store_address import Credentials
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.errors import StoreError, StoreUnavailableError

ROOT = Path(__file__).parents[2]
SPEC = SyntheticSpec(tasks=2, episodes=2, steps=8, embedding_size=8, seed=5)
TASK = "synthetic task 0"
SECRET = "tr0ub4dor-and-3"
SAFETY_S = 60.0


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return synthetic_store(tmp_path_factory.mktemp("source") / "store", SPEC)


@pytest.fixture
def server(source):
    made = Loopback()
    export_to_qdrant(source, made.client, "heisd")
    yield made
    made.stop()


@pytest.fixture
def query(source):
    return source.vectors(np.array([4]))[0]


@pytest.fixture(params=["http", "grpc"])
def scheme(request):
    return request.param


def nearest(store, query):
    """Row of the nearest step, or None while the store is away."""
    try:
        return store.search(query, TASK, 1).row.tolist()
    except StoreUnavailableError:
        return None


def test_a_server_that_is_away_at_the_start_is_used_once_it_comes(server, scheme, query):
    server.stop()
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=0.0)
    assert nearest(store, query) is None
    server.start()
    assert wait_until(lambda: nearest(store, query) == [4], SAFETY_S)
    store.close()


@pytest.mark.parametrize("fault", ["cut", "garbage"])
def test_a_broken_answer_is_a_typed_error_and_the_next_good_one_is_used(
    server, scheme, query, fault
):
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=0.0)
    assert nearest(store, query) == [4]
    server.fault = fault
    for _ in range(3):
        with pytest.raises(StoreUnavailableError, match="'heisd'"):
            store.search(query, TASK, 1)
    server.fault = ""
    assert wait_until(lambda: nearest(store, query) == [4], SAFETY_S)
    store.close()


def test_a_slow_server_is_given_up_while_it_still_works_on_the_answer(server, scheme, query):
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=0.0)
    assert nearest(store, query) == [4]
    server.fault, store._caller._timeout_s = "hang", 0.1
    with pytest.raises(StoreUnavailableError, match=r"no answer within 0\.1 s"):
        store.search(query, TASK, 1)
    assert not server.release.is_set()
    server.fault, store._caller._timeout_s = "", SAFETY_S
    server.release.set()
    assert wait_until(lambda: nearest(store, query) == [4], SAFETY_S)
    store.close()


def test_a_server_that_dies_in_the_middle_of_a_query_ends_the_query(server, scheme, query):
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=0.0)
    assert nearest(store, query) == [4]
    server.fault = "hang_query"
    store._caller._pool.submit(lambda: server.hanging.wait(SAFETY_S) and server.stop())
    with pytest.raises(StoreUnavailableError):
        store.search(query, TASK, 1)
    server.fault = ""
    assert server.release.wait(SAFETY_S)
    server.start()
    assert wait_until(lambda: nearest(store, query) == [4], SAFETY_S)
    store.close()


def test_during_the_pause_the_server_is_left_alone(server, scheme, query):
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=1000.0)
    server.fault = "garbage"
    assert nearest(store, query) is None
    asked = len(server.asked)
    server.fault = ""
    for _ in range(20):
        with pytest.raises(StoreUnavailableError, match="paused"):
            store.search(query, TASK, 1)
    assert len(server.asked) == asked
    store.close()


def test_a_long_outage_is_one_line_in_the_log(server, scheme, query, caplog):
    caplog.set_level(logging.WARNING, "heisd_ros")
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=0.0)
    server.stop()
    for _ in range(10):
        assert nearest(store, query) is None
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("heisd_ros")]
    assert len(lines) == 1
    assert "'heisd' is not used" in lines[0]
    store.close()


def test_a_server_that_drips_does_not_keep_the_process_from_ending(server):
    server.fault = "drip"
    code = (
        "import sys, numpy as np\n"
        "from heisd_ros.demonstrations.qdrant_store import QdrantStore\n"
        "store = QdrantStore.open(sys.argv[1], timeout_s=0.1, pause_s=0.0)\n"
        "try:\n    store.search(np.eye(1, 8, dtype=np.float32)[0], 't', 1)\n"
        "except Exception as error:\n    print(type(error).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, server.url("http")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SAFETY_S,
        check=True,
    )
    assert done.stdout.strip() == "StoreUnavailableError"
    assert server.hanging.is_set()
    assert not server.release.is_set()


def test_a_channel_tries_again_within_a_second_however_long_the_outage():
    assert GRPC_OPTIONS["grpc.max_reconnect_backoff_ms"] <= 1000


# --- releases -----------------------------------------------------------------------------------


def test_a_server_too_old_for_tenants_is_refused(server, scheme, query):
    server.version = "1.10.1"
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=0.0)
    with pytest.raises(StoreError, match=r"release 1\.11 or newer, got 1\.10\.1"):
        store.search(query, TASK, 1)
    store.close()


def test_releases_two_minor_apart_are_a_warning_and_work(server, scheme, query, caplog):
    server.version = "1.12.4"
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S)
    assert nearest(store, query) == [4]
    assert "Qdrant server 1.12.4" in caplog.text
    store.close()


def test_which_releases_fit():
    assert check_version("1.19.3", "1.20.0") == check_version("v1.21.0-dev", "1.20.0") == ""
    assert "minor release apart" in check_version("1.22.0", "1.20.0")
    assert "minor release apart" in check_version("2.20.0", "1.20.0")
    assert "cannot tell" in check_version("dev", "1.20.0")


# --- secrets ------------------------------------------------------------------------------------


def test_a_server_gets_the_key_that_the_environment_names(server, scheme, query, monkeypatch):
    server.api_key = SECRET
    monkeypatch.setenv("HEISD_QDRANT_API_KEY", SECRET)
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S)
    assert nearest(store, query) == [4]
    assert SECRET not in repr(store) + repr(store._client) + repr(store._client.init_options)
    store.close()


def test_a_refused_key_is_in_no_message_log_or_traceback(
    server, scheme, query, monkeypatch, caplog
):
    caplog.set_level(logging.DEBUG)
    server.api_key = "another"
    monkeypatch.setenv("HEISD_QDRANT_API_KEY", SECRET)
    store = QdrantStore.open(server.url(scheme), timeout_s=SAFETY_S, pause_s=0.0)
    with pytest.raises(StoreError, match="refused the API key") as caught:
        store.search(query, TASK, 1)
    text = "".join(traceback.format_exception(caught.value))
    assert "refused the API key" in caplog.text
    assert SECRET not in text + caplog.text
    store.close()


def test_a_key_is_not_sent_to_another_machine_in_the_clear():
    with pytest.raises(StoreError, match="unencrypted"):
        connect("grpc://robots.lan", credentials=Credentials(SECRET))


# --- what an evaluation notes -------------------------------------------------------------------


def test_the_digest_of_a_server_tells_exports_apart(server, scheme, source, tmp_path):
    first = digest_of(server.url(scheme))
    assert first == digest_of(server.url(scheme))
    other = synthetic_store(tmp_path / "other", SyntheticSpec(1, 2, 8, 8, seed=9))
    export_to_qdrant(other, server.client, "heisd", replace=True)
    assert digest_of(server.url(scheme)) != first
    server.stop()
    with pytest.raises(StoreUnavailableError):
        digest_of(server.url(scheme))


def test_a_question_travels_by_grpc_bit_for_bit_and_its_answer_is_that_of_the_client(server):
    task = {"task": TASK, "none": None, "lists": [[0.5, 1], []], "word": "x", "yes": True, "n": -3}
    points = [models.PointStruct(id=n, vector=[n, 1.0], payload=task) for n in (0, 7)]
    vectors = models.VectorParams(size=2, distance=models.Distance.DOT)
    server.client.create_collection("plain", vectors)
    server.client.upsert("plain", points)
    asked, answer = [], server.query
    server.query = lambda name, vector, *rest: asked.append(vector) or answer(name, vector, *rest)
    client = connect(server.url("grpc"))
    vector = np.array([0.1, 1 / 3], dtype=np.float32)
    question = Question("plain", vector, TASK, 2)
    found = search_points_grpc(client, question, SAFETY_S)
    expected = search_points(client, question)
    assert [point.id for point in found] == [7, 0]
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.id, mine.score, mine.payload) == (theirs.id, theirs.score, theirs.payload)
        assert mine.payload == task
    assert asked == [vector.tolist()] * 2
    client.close()
