import itertools
import os
import threading
import time

import pytest

pytest.importorskip("rclpy")

from heisd_ros.nodes.runtime import NodeThread, ros_context

DOMAINS = itertools.cycle(range(1, 101))


def pytest_collection_modifyitems(items):
    for item in items:
        if "/ros/" in str(item.path):
            item.add_marker(pytest.mark.ros)


@pytest.fixture(scope="session", autouse=True)
def on_this_machine_only():
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"


@pytest.fixture
def domain_id():
    """A ROS domain that no other test of this run, and hardly one of another run, uses."""
    return (os.getpid() + next(DOMAINS)) % 100 + 1


@pytest.fixture
def context(domain_id):
    with ros_context([], domain_id=domain_id) as made:
        yield made


@pytest.fixture
def spin():
    """Spin nodes in threads of their own, managed ones active; frees them at the end."""
    nodes, threads = [], []

    def start(node, *, active=True):
        nodes.append(node)
        if active and hasattr(node, "bring_up"):
            assert node.bring_up(), node.failure
        threads.append(NodeThread(node))
        return node

    yield start
    for node in nodes:
        getattr(node, "rest", lambda: None)()
    for thread in threads:
        assert thread.stop()
    for node in nodes:
        getattr(node, "close", lambda: None)()
        node.destroy_node()


class Jitter:
    """Measures how late this machine wakes a thread: what no node can be better than."""

    def __init__(self):
        self.worst_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while True:
            due = time.monotonic() + 0.005
            if self._stop.wait(0.005):
                return
            self.worst_s = max(self.worst_s, time.monotonic() - due)


@pytest.fixture
def jitter():
    meter = Jitter()
    yield meter
    meter.close()
