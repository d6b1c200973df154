"""The decode loop on a store on a server: drafts while it is there, AR while it is not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("qdrant_client")

from decode.test_methods import observation, run, tokens, world  # noqa: F401
from qdrant_loopback import Loopback
from ros_fakes import wait_until

from heisd_ros.build import build_policy
from heisd_ros.config import make_config
from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant
from heisd_ros.demonstrations.store import MemoryStore
from heisd_ros.types import DraftKind

pytestmark = pytest.mark.torch
SAFETY_S = 120.0
STEP = 4
"""A stored picture: its action comes back as the draft and is accepted."""


@pytest.fixture(params=["http", "grpc"])
def scheme(request):
    return request.param


@pytest.fixture
def server(world):  # noqa: F811
    made = Loopback()
    with MemoryStore.open(world["retrieval.store"]) as store:
        export_to_qdrant(store, made.client, "heisd")
    yield made
    made.stop()


def policy_on(server, scheme, world, **overrides):  # noqa: F811
    values = {
        **world,
        "decode.method": "r_sd",
        "retrieval.store": server.url(scheme),
        "retrieval.timeout_s": 10.0,
        "retrieval.pause_s": 0.0,
    }
    return build_policy(make_config({**values, **overrides}))


def drafts(policy):
    """Whether a step is drafted from the store; a step without it is AR with a reason."""
    report = policy.act(observation(STEP)).report
    if report.kind is DraftKind.RETRIEVAL:
        assert report.reason == ""
        return True
    assert (report.kind, report.forwards) == (DraftKind.AR, 7)
    assert report.reason == "store_error:StoreUnavailableError"
    return False


def test_a_server_decodes_what_the_folder_decodes(server, scheme, world):  # noqa: F811
    policy = policy_on(server, scheme, world)
    results = [policy.act(observation(step)) for step in range(6)]
    wanted = run(world, "r_sd", 6)
    assert tokens(results) == tokens(wanted)
    assert [r.report.forwards for r in results] == [r.report.forwards for r in wanted]
    assert all(r.report.kind is DraftKind.RETRIEVAL for r in results)
    assert results[STEP].report.top_score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("fault", ["refuse", "hang", "cut", "garbage"])
def test_without_the_server_steps_are_autoregressive_until_it_returns(
    server,
    scheme,
    world,  # noqa: F811
    fault,
):
    policy = policy_on(server, scheme, world, **{"retrieval.timeout_s": 1.0})
    assert wait_until(lambda: drafts(policy), SAFETY_S)
    if fault == "refuse":
        server.stop()
    server.fault = "" if fault == "refuse" else fault
    assert not drafts(policy)
    away = policy.act(observation(STEP))
    np.testing.assert_array_equal(
        away.action.tokens, run(world, "ar", STEP + 1)[STEP].action.tokens
    )
    if fault == "hang":
        assert not server.release.is_set()  # the step ended before the answer
        server.release.set()
    server.fault = ""
    if fault == "refuse":
        server.start()
    assert wait_until(lambda: drafts(policy), SAFETY_S)


def test_a_dead_server_costs_one_try_per_pause(server, scheme, world):  # noqa: F811
    policy = policy_on(server, scheme, world, **{"retrieval.pause_s": 60.0})
    assert drafts(policy)
    server.fault = "garbage"
    asked = len(server.asked)
    assert [drafts(policy) for _ in range(5)] == [False] * 5
    assert len(server.asked) == asked + 1


def test_a_store_of_another_encoder_drafts_nothing(server, scheme, world):  # noqa: F811
    policy = policy_on(server, scheme, world, **{"perception.pool": "last_patch"})
    report = policy.act(observation(STEP)).report
    assert (report.kind, report.reason) == (DraftKind.AR, "store_error:StoreError")
