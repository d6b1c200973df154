import threading

import pytest

pytest.importorskip("rclpy")

from ros_fakes import wait_until

from heisd_ros.nodes.worker import LatestWorker


@pytest.fixture
def worker():
    made = LatestWorker("test")
    yield made
    made.close(1.0)


def test_only_the_newest_of_the_waiting_jobs_runs(worker):
    gate, begun, ran = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        gate.wait(5.0)
        ran.append(0)

    worker.submit(slow)
    assert begun.wait(5.0)
    for number in (1, 2, 3):
        worker.submit(lambda number=number: ran.append(number))
    gate.set()
    assert wait_until(lambda: 3 in ran)
    assert ran == [0, 3]
    assert worker.dropped == 2


def test_queued_jobs_all_run_and_come_before_the_newest(worker):
    gate, begun, ran = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        gate.wait(5.0)

    worker.submit(slow)
    assert begun.wait(5.0)
    worker.submit(lambda: ran.append("newest"))
    worker.enqueue(lambda: ran.append("first"))
    worker.enqueue(lambda: ran.append("second"))
    gate.set()
    assert wait_until(lambda: "newest" in ran)
    assert ran == ["first", "second", "newest"]


def test_a_failing_job_does_not_stop_the_next(worker, caplog):
    ran = []
    worker.enqueue(lambda: 1 / 0)
    worker.enqueue(lambda: ran.append(1))
    assert wait_until(lambda: ran)
    assert "ZeroDivisionError" in caplog.text


def test_busy_time_grows_while_a_job_runs():
    now = [0]
    worker = LatestWorker("test", clock=lambda: now[0])
    gate, begun = threading.Event(), threading.Event()
    worker.submit(lambda: (begun.set(), gate.wait(5.0)))
    assert begun.wait(5.0)
    now[0] = 7
    assert worker.busy_ns() == 7
    assert worker.close(0.01) is False  # the job never returned
    gate.set()
    assert worker.close(5.0) is True
    assert worker.busy_ns() == 0
