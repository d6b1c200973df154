"""Keeps patch features inside the process when encoder and decoder share one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from heisd_ros.types import VisualFeatures

Item = TypeVar("Item")


class RecentItems(Generic[Item]):
    """A small table by stamp. Giver and taker may be different threads."""

    def __init__(self, capacity: int = 4) -> None:
        """Set up, empty; beyond `capacity` the item put first is forgotten."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._items: OrderedDict[int, Item] = OrderedDict()

    def put(self, stamp_ns: int, item: Item) -> None:
        """Keep an item under a stamp, nanoseconds."""
        with self._lock:
            self._items[stamp_ns] = item
            while len(self._items) > self._capacity:
                self._items.popitem(last=False)

    def take(self, stamp_ns: int) -> Item | None:
        """Return and forget the item of this stamp; None if it is gone."""
        with self._lock:
            return self._items.pop(stamp_ns, None)

    def __len__(self) -> int:
        """Return how many items are kept."""
        return len(self._items)


FeatureExchange = RecentItems[VisualFeatures]
"""Features by the stamp of their oldest picture."""
