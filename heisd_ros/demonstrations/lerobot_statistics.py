"""Statistics of the features of a LeRobot data set: per episode, and over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heisd_ros.demonstrations.episode import Episode
from heisd_ros.types import FloatArray

SAMPLED_PICTURES = 50
"""Pictures per episode that the picture statistics are made of."""


def feature_statistics(episode: Episode, picture_keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return feature -> min, max, mean, std and count of one episode, as lists.

    Pictures: per channel, values in [0, 1], shape (3, 1, 1).
    """
    found = {
        "action": _numbers(episode.actions.astype(np.float64)),
        "observation.state": _numbers(episode.state.astype(np.float64)),
    }
    picked = np.unique(np.linspace(0, len(episode) - 1, SAMPLED_PICTURES).astype(int))
    for view, key in enumerate(picture_keys):
        pixels = episode.images[picked, view].reshape(-1, 3) / 255.0
        numbers = _numbers(pixels)
        for kind in ("min", "max", "mean", "std"):
            numbers[kind] = [[[value]] for value in numbers[kind]]
        numbers["count"] = [len(picked)]
        found[key] = numbers
    return found


class StatisticsTable:
    """Adds the statistics of episodes up."""

    def __init__(self) -> None:
        """Start empty."""
        self._parts: dict[str, list[dict[str, Any]]] = {}

    def add(self, feature: str, numbers: dict[str, Any]) -> None:
        """Add one feature of one episode."""
        self._parts.setdefault(feature, []).append(numbers)

    def total(self) -> dict[str, dict[str, Any]]:
        """Return feature -> statistics over all episodes."""
        return {feature: _joined(parts) for feature, parts in self._parts.items()}


def _numbers(values: FloatArray) -> dict[str, Any]:
    return {
        "min": values.min(axis=0).tolist(),
        "max": values.max(axis=0).tolist(),
        "mean": values.mean(axis=0).tolist(),
        "std": values.std(axis=0).tolist(),
        "count": [len(values)],
    }


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the statistics of the union: moments are weighted by their counts."""
    counts = np.array([part["count"][0] for part in parts], dtype=np.float64)
    stacks = {
        kind: np.array([part[kind] for part in parts], dtype=np.float64)
        for kind in ("min", "max", "mean", "std")
    }
    weights = (counts / counts.sum()).reshape(-1, *(1,) * (stacks["mean"].ndim - 1))
    mean = (weights * stacks["mean"]).sum(axis=0)
    square = (weights * (stacks["std"] ** 2 + stacks["mean"] ** 2)).sum(axis=0)
    return {
        "min": stacks["min"].min(axis=0).tolist(),
        "max": stacks["max"].max(axis=0).tolist(),
        "mean": mean.tolist(),
        "std": np.sqrt(np.maximum(square - mean**2, 0.0)).tolist(),
        "count": [int(counts.sum())],
    }
