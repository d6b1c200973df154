import math

import pytest
from geometry_msgs.msg import PoseStamped
from heisd_ros.msg import EpisodeStatus, TrajectoryMetric
from rclpy.node import Node
from ros_fakes import wait_until

from heisd_ros.nodes.conversions import to_stamp
from heisd_ros.nodes.trajectory_node import TrajectoryNode

TENTH = 100_000_000


class Arm(Node):
    """Publishes poses, collects metrics."""

    def __init__(self, context):
        super().__init__("arm", context=context)
        self.metrics = []
        self.poses = self.create_publisher(PoseStamped, "ee_pose", 50)
        self.status = self.create_publisher(EpisodeStatus, "episode_status", 10)
        self.listener = self.create_subscription(
            TrajectoryMetric, "trajectory_metric", self.metrics.append, 50
        )

    def pose(self, n, x, y=0.0, frame="base"):
        """Publish the n-th pose of a 10 Hz stream and wait for its metric."""
        message = PoseStamped()
        message.header.stamp, message.header.frame_id = to_stamp((n + 10) * TENTH), frame
        message.pose.position.x, message.pose.position.y = x, y
        seen = len(self.metrics)
        self.poses.publish(message)
        assert wait_until(lambda: len(self.metrics) > seen)
        return self.metrics[-1]


@pytest.fixture
def arm(context, spin):
    spin(TrajectoryNode(context=context))
    made = spin(Arm(context))
    assert wait_until(
        lambda: (
            made.poses.get_subscription_count()
            and made.status.get_subscription_count()
            and made.listener.get_publisher_count()
        )
    )
    return made


def test_one_metric_per_pose_with_the_stamp_and_frame_of_the_pose(arm):
    # 0.02 m per 0.1 s along x: path 0.06 m, speed 0.2 m/s, straight
    for n in range(4):
        metric = arm.pose(n, 0.02 * n)
    assert len(arm.metrics) == 4
    assert metric.displacement == pytest.approx(0.06)
    assert metric.speed == pytest.approx(0.2)
    assert metric.straightness == pytest.approx(1.0)
    assert metric.samples == 4
    assert metric.header.stamp == to_stamp(13 * TENTH)
    assert metric.header.frame_id == "base"
    assert 0.0 <= metric.fused <= 1.0


def test_fewer_than_three_poses_have_no_fused_metric(arm):
    assert math.isnan(arm.pose(0, 0.0).fused)
    assert math.isnan(arm.pose(1, 0.02).fused)
    assert math.isfinite(arm.pose(2, 0.04).fused)


@pytest.mark.parametrize(
    ("n", "x", "reason"), [(4, math.nan, "non_finite"), (4, 5.0, "jump"), (3, 0.08, "equal_stamp")]
)
def test_bad_poses_are_dropped_with_a_reason_and_nothing_but_fused_is_ever_nan(arm, n, x, reason):
    for index in range(4):
        arm.pose(index, 0.02 * index)
    metric = arm.pose(n, x)
    assert (metric.reason, metric.samples) == (reason, 4)
    for field in ("curvature_radius", "displacement", "straightness", "speed", "fused"):
        assert math.isfinite(getattr(metric, field))


def test_another_frame_empties_the_window(arm):
    for index in range(4):
        arm.pose(index, 0.02 * index)
    metric = arm.pose(4, 0.08, frame="world")
    assert (metric.reason, metric.samples) == ("frame_changed", 1)
    assert metric.header.frame_id == "world"


def test_a_finished_episode_empties_the_window(arm):
    for index in range(3):
        arm.pose(index, 0.02 * index)
    arm.status.publish(EpisodeStatus(done=True))
    # The status and the next pose are different topics: try until the status has arrived.
    numbers = iter(range(3, 1000))

    def emptied():
        n = next(numbers)
        return arm.pose(n, 0.02 * n).samples <= 2

    assert wait_until(emptied)
