"""Tokens to numbers and back, every step beside its inverse."""

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
    "ProprioStatistics",
    "QuantileStatistics",
    "Sequence",
    "sequence_of",
    "statistics_keys",
]
