import pytest

pytest.importorskip("rclpy")

from heisd_ros.nodes.clock import StampSource


def test_stamps_differ_while_time_stands_still_and_follow_it_when_it_moves():
    readings = iter([100, 100, 100, 150, 120, 120])
    stamps = StampSource(lambda: next(readings))
    assert [stamps.next_ns() for _ in range(6)] == [100, 101, 102, 150, 120, 121]
