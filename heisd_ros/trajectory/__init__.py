"""The kinematic metric of the last w end-effector positions (HeiSD Eq. 4-8)."""

from heisd_ros.trajectory.curvature import curvature_radius, fit_centre, project_to_plane
from heisd_ros.trajectory.metric import TrajectoryMeter, cumulative_displacement, fused_metric
from heisd_ros.trajectory.normaliser import PercentileNormaliser, fit_threshold
from heisd_ros.trajectory.window import TrajectoryWindow

__all__ = [
    "PercentileNormaliser",
    "TrajectoryMeter",
    "TrajectoryWindow",
    "cumulative_displacement",
    "curvature_radius",
    "fit_centre",
    "fit_threshold",
    "fused_metric",
    "project_to_plane",
]
