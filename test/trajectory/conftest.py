import numpy as np
import pytest


def arc(radius, degrees, *, full_turn=False):
    """15 points; a full turn does not repeat its first point."""
    angle = np.linspace(0.0, np.radians(degrees), 15, endpoint=not full_turn)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.0 * angle], axis=1)


def build_windows():
    """The worked examples: positions in metres, 15 samples unless the name says otherwise."""
    count = np.arange(15.0)
    none = 0.0 * count
    straight = np.stack([0.01 * count, none, none], axis=1)
    helix = arc(0.05, 360)
    helix[:, 2] = np.linspace(0.0, 0.1, 15)
    return {
        "straight": straight,
        "straight_w5": straight[:5],
        "full_turn": arc(0.05, 360, full_turn=True),
        "arc_180": arc(0.05, 180),
        "arc_90": arc(0.05, 90),
        "arc_30": arc(0.05, 30),
        "wide_arc_90": arc(0.20, 90),
        "stationary": 0.0 * straight,
        "round_trip": np.stack([0.01 * np.minimum(count, 14 - count), none, none], axis=1),
        "corner": 0.01 * np.stack([np.minimum(count, 7), np.maximum(count - 7, 0), none], axis=1),
        "helix": helix,
    }


@pytest.fixture(scope="session")
def windows():
    return build_windows()


@pytest.fixture
def rotation():
    """A fixed rotation about a skew axis."""
    matrix, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))
    return matrix * np.sign(np.linalg.det(matrix))
