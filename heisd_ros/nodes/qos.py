"""Quality-of-service profiles, one per kind of topic."""

from __future__ import annotations

from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSProfile,
    ReliabilityPolicy,
    qos_profile_sensor_data,
)

SENSOR = qos_profile_sensor_data
"""What we ask of sensors (REP-2003): best effort also hears reliable and transient-local ones."""


def reliable(depth: int) -> QoSProfile:
    """Return reliable, volatile, keep-last: what every publisher offers and commands ask.

    Volatile also for the instruction: a transient-local subscription would refuse `ros2 topic pub`.
    """
    return QoSProfile(
        depth=depth,
        history=HistoryPolicy.KEEP_LAST,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.VOLATILE,
    )


def camera(reliability: str) -> QoSProfile:
    """Return the profile of a camera subscription.

    Args:
        reliability: `best_effort` or `reliable`; a reliable subscription never hears a
            best-effort camera.
    """
    return reliable(SENSOR.depth) if reliability == "reliable" else SENSOR


EVENTS = reliable(50)
"""Commands, reports and statuses: a slow reader must not lose one."""

FEATURES = reliable(2)
"""Embeddings: only the newest decides."""

LATCHED = QoSProfile(
    depth=1,
    history=HistoryPolicy.KEEP_LAST,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""Hears what a latching publisher said before; it does not hear the others."""
