"""The kinematic metric: F is high on a fast straight run and low while the arm circles slowly."""

import numpy as np

from heisd_ros.config import TrajectoryConfig
from heisd_ros.trajectory.metric import TrajectoryMeter

PERIOD_NS = 50_000_000  # 20 Hz


def follow(points: np.ndarray) -> None:
    meter = TrajectoryMeter(TrajectoryConfig(window=15, max_speed=1.0))
    for step, point in enumerate(points):
        metric = meter.update(point, stamp_ns=(step + 1) * PERIOD_NS, frame_id="base")
    print(
        f"  R {metric.curvature_radius:.3f} m   D {metric.displacement:.3f} m   "
        f"straightness {metric.straightness:.2f}   F {metric.fused:.2f}"
    )


print("straight, 1 cm per step:")
follow(np.stack([0.01 * np.arange(15), np.zeros(15), np.full(15, 0.3)], axis=1))

print("circle of 5 mm radius, 1 mm per step:")
angle = 0.2 * np.arange(15)
follow(np.stack([0.005 * np.cos(angle), 0.005 * np.sin(angle), np.full(15, 0.3)], axis=1))
