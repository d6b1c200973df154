"""DeadlineCaller: a deadline for every call, and a pause after a failure."""

from __future__ import annotations

import threading
import time

import pytest

from heisd_ros.demonstrations.deadline import DeadlineCaller
from heisd_ros.errors import StoreError, StoreUnavailableError


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def failing():
    raise StoreError("refused")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def caller(clock):
    made = DeadlineCaller(0.05, 1.0, clock=clock)
    yield made
    made.close()


def test_a_result_comes_back(caller):
    assert caller.call(lambda: 17) == 17


def test_a_failure_is_raised_and_the_next_calls_fail_without_calling(caller, clock):
    calls = []
    with pytest.raises(StoreError, match="refused"):
        caller.call(failing)
    clock.now += 0.99
    with pytest.raises(StoreError, match=r"paused after a failure: refused"):
        caller.call(lambda: calls.append(1))
    assert calls == []


def test_a_server_that_came_back_is_noticed_after_the_pause(caller, clock):
    with pytest.raises(StoreError):
        caller.call(failing)
    clock.now += 1.01
    assert caller.call(lambda: 1) == 1
    assert caller.call(lambda: 2) == 2


def test_a_failed_trial_starts_another_pause(caller, clock):
    with pytest.raises(StoreError, match="refused"):
        caller.call(failing)
    clock.now += 1.01
    with pytest.raises(StoreError, match="refused"):
        caller.call(failing)
    clock.now += 0.5
    with pytest.raises(StoreError, match="paused"):
        caller.call(lambda: 1)


def test_a_call_that_hangs_is_given_up_at_the_deadline(caller):
    release = threading.Event()
    start = time.monotonic()
    with pytest.raises(StoreError, match=r"no answer within 0\.05 s"):
        caller.call(release.wait)
    assert 0.05 <= time.monotonic() - start < 2.0
    with pytest.raises(StoreError, match="paused"):
        caller.call(lambda: 1)
    release.set()


def test_only_one_caller_tries_a_server_that_may_still_be_down(clock):
    caller = DeadlineCaller(30.0, 1.0, clock=clock)
    with pytest.raises(StoreError):
        caller.call(failing)
    clock.now += 1.01
    started, release = threading.Event(), threading.Event()

    def slow():
        started.set()
        release.wait(30)
        return "trial"

    results = []
    thread = threading.Thread(target=lambda: results.append(caller.call(slow)))
    thread.start()
    assert started.wait(30)
    with pytest.raises(StoreError, match="paused"):
        caller.call(lambda: 1)
    release.set()
    thread.join(30)
    assert results == ["trial"]
    assert caller.call(lambda: 1) == 1
    caller.close()


def test_a_bug_is_not_hidden_as_a_failure_of_the_server(caller):
    with pytest.raises(ZeroDivisionError):
        caller.call(lambda: 1 // 0)
    assert caller.call(lambda: 1) == 1


def test_a_closed_caller_refuses(caller):
    caller.close()
    caller.close()
    with pytest.raises(StoreError, match="closed"):
        caller.call(lambda: 1)


def test_what_still_waits_for_a_worker_at_its_deadline_is_never_run(clock):
    caller = DeadlineCaller(0.02, 0.0, workers=1, clock=clock)
    release, ran = threading.Event(), []
    with pytest.raises(StoreUnavailableError):
        caller.call(release.wait)
    with pytest.raises(StoreUnavailableError):
        caller.call(lambda: ran.append("stale"))
    release.set()
    caller._timeout_s = 30.0
    assert caller.call(lambda: "fresh") == "fresh"
    assert ran == []


def test_changes_are_told_once_each(clock):
    told = []
    caller = DeadlineCaller(30.0, 1.0, clock=clock, on_change=told.append)
    caller.call(lambda: 1)
    for _ in range(3):
        with pytest.raises(StoreError):
            caller.call(failing)
        clock.now += 1.01
    caller.call(lambda: 1)
    caller.call(lambda: 1)
    assert told == ["refused", ""]


def test_one_call_may_be_given_more_time(caller):
    release = threading.Event()
    threading.Timer(0.2, release.set).start()
    assert caller.call(lambda: release.wait(30), timeout_s=30.0)


def test_a_call_on_this_thread_opens_and_respects_the_same_pause(caller, clock):
    assert caller.call_here(threading.get_ident) == threading.get_ident()
    with pytest.raises(StoreError, match="refused"):
        caller.call_here(failing)
    with pytest.raises(StoreUnavailableError, match="paused"):
        caller.call_here(lambda: 1)
    with pytest.raises(StoreUnavailableError, match="paused"):
        caller.call(lambda: 1)
    clock.now += 1.01
    assert caller.call_here(lambda: 1) == 1
