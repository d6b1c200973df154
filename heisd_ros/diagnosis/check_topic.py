"""What the checks of all topics have in common: type, stamps, names."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from heisd_ros.diagnosis.facts import PeerFacts, TopicFacts
from heisd_ros.diagnosis.finding import Finding, fail, ok

AHEAD_S = 0.02
"""The guard takes a stamp that is further ahead than this for one from the future."""


def wrong_kind(role: str, topic: TopicFacts, kind: str) -> Finding | None:
    """Return a failure if somebody publishes another type."""
    wrong = [peer for peer in topic.publishers if peer.kind != kind]
    if not wrong:
        return None
    return fail(
        role,
        f"{topic.name} carries {wrong[0].kind}, expected {kind}",
        "remap another topic, or set ros.image_transport" if "mage" in kind else "remap another",
    )


def stamped(role: str, topic: TopicFacts, oldest_s: float) -> Finding:
    """Return whether the stamps are fresh, with rate and age."""
    late = stamp_fault(topic, oldest_s)
    if late is not None:
        return fail(role, f"{topic.name}: {late[0]}", late[1])
    return ok(role, f"{topic.name}: {topic.hz:.1f} Hz, {age_ms(topic):.0f} ms old")


def stamp_fault(topic: TopicFacts, oldest_s: float) -> tuple[str, str] | None:
    """Return what is wrong with the stamps, and what to do."""
    if not topic.stamps_ns:
        return None
    if not any(topic.stamps_ns):
        return "its stamps are zero", "stamp messages with the node's clock"
    age_s = median(topic.ages_ns) * 1e-9
    if age_s > oldest_s:
        return (
            f"stamps are {age_s:.2f} s old, allowed are {oldest_s:g} s",
            "use one clock on both machines (chrony), or use_sim_time on all nodes",
        )
    if age_s < -AHEAD_S:
        return f"stamps are {-age_s:.2f} s in the future", "synchronise the clocks (chrony)"
    return None


def age_ms(topic: TopicFacts) -> float:
    """Return the median age at arrival, ms."""
    return median(topic.ages_ns) * 1e-6 if topic.ages_ns else 0.0


def names_of(peers: Sequence[PeerFacts]) -> str:
    """Return the names of the nodes, each once."""
    return ", ".join(sorted({peer.node for peer in peers}))


def base_name(node: str) -> str:
    """Return the name of a node without its namespace."""
    return node.rsplit("/", 1)[-1]
