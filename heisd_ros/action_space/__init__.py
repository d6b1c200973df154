"""Tokens to numbers and back, every step beside its inverse."""

from heisd_ros.action_space.gripper import (
    GripperConvention,
    GripperState,
    from_convention,
    libero_to_model,
    model_to_libero,
    state_of,
    state_of_token,
    to_convention,
)
from heisd_ros.action_space.layout import DOF_NAMES, SEQUENCE_SLICES, Sequence, sequence_of
from heisd_ros.action_space.statistics import (
    ActionStatistics,
    ProprioStatistics,
    QuantileStatistics,
    statistics_keys,
)
from heisd_ros.action_space.tokenizer import ActionTokenizer

__all__ = [
    "DOF_NAMES",
    "SEQUENCE_SLICES",
    "ActionStatistics",
    "ActionTokenizer",
    "GripperConvention",
    "GripperState",
    "ProprioStatistics",
    "QuantileStatistics",
    "Sequence",
    "from_convention",
    "libero_to_model",
    "model_to_libero",
    "sequence_of",
    "state_of",
    "state_of_token",
    "statistics_keys",
    "to_convention",
]
