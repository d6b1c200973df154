"""Who else publishes commands: an arm that hears two masters does what neither of them decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rclpy.node import Node

from heisd_ros.command.reasons import Reason


class Rivals:
    """Counts and names other publishers on the topics of one node; not for every command.

    Attributes:
        found: `node on topic`, one for each publisher that was there at the last look.
    """

    def __init__(self, node: Node, topics: Sequence[str], counts: Counter[str]) -> None:
        """Set up; nothing is asked yet.

        Args:
            node: Publishes once on each of the topics.
            topics: Full names.
            counts: Where each publisher is counted when it appears.
        """
        self.found: tuple[str, ...] = ()
        self._node, self._topics, self._counts = node, tuple(topics), counts

    def look(self) -> None:
        """Ask the graph, and log whoever is there."""
        found = tuple(f"{name} on {topic}" for topic in self._topics for name in self._on(topic))
        appeared = Counter(found) - Counter(self.found)
        if appeared:
            self._counts[Reason.FOREIGN_PUBLISHER.value] += appeared.total()
        self.found = found
        if found:
            self._node.get_logger().warning(
                f"others publish commands too: {', '.join(found)}; stop them, or remap them away",
                throttle_duration_sec=10.0,
            )

    def _on(self, topic: str) -> list[str]:
        """Return the nodes of all publishers but our own; a second node of our name is another."""
        names = sorted(
            f"{peer.node_namespace.rstrip('/')}/{peer.node_name}"
            for peer in self._node.get_publishers_info_by_topic(topic)
        )
        own = self._node.get_fully_qualified_name()
        if own in names:
            names.remove(own)
        return names
