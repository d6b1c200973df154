"""Keeps patch features inside the process when encoder and decoder share one."""

from __future__ import annotations

import threading
from collections import OrderedDict

from heisd_ros.types import VisualFeatures


class FeatureExchange:
    """A small table of features by stamp. Encoder and decoder may be different threads."""

    def __init__(self, capacity: int = 4) -> None:
        """Set up, empty; beyond `capacity` sets the oldest one is forgotten."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._features: OrderedDict[int, VisualFeatures] = OrderedDict()

    def put(self, features: VisualFeatures) -> None:
        """Keep these features under their stamp."""
        with self._lock:
            self._features[features.stamp_ns] = features
            while len(self._features) > self._capacity:
                self._features.popitem(last=False)

    def take(self, stamp_ns: int) -> VisualFeatures | None:
        """Return and forget the features of this stamp; None if they are gone."""
        with self._lock:
            return self._features.pop(stamp_ns, None)

    def __len__(self) -> int:
        """Return how many sets are kept."""
        return len(self._features)
