"""Named points of the scene and of the hand, in world coordinates; privileged training targets."""

from __future__ import annotations

import numpy as np

from heisd_ros.simulation.libero import LiberoEnvironment
from heisd_ros.types import FloatArray

SCENE_POINTS = (
    "akita_black_bowl_1",
    "akita_black_bowl_2",
    "plate_1",
    "glazed_rim_porcelain_ramekin_1",
    "cookies_1",
    "flat_stove_1_cook_region",
    "wooden_cabinet_1_top_side",
)
"""Objects and regions of `libero_spatial`; a point that a scene lacks is nan."""
HAND_POINTS = ("grip_site", "left_fingertip", "right_fingertip")
KEYPOINT_NAMES = SCENE_POINTS + HAND_POINTS
_FINGERTIP_BODIES = ("gripper0_finger_joint1_tip", "gripper0_finger_joint2_tip")


def keypoints(env: LiberoEnvironment) -> FloatArray:
    """Return the points (M, 3) in the order of `KEYPOINT_NAMES`, metres, world frame."""
    known = env.object_names
    scene = [
        env.position_of(name) if name in known else np.full(3, np.nan) for name in SCENE_POINTS
    ]
    tips = [np.array(env.data.body(name).xpos) for name in _FINGERTIP_BODIES]
    return np.stack([*scene, env.end_effector().position, *tips])
