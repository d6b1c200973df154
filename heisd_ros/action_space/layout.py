"""The order of the seven degrees of freedom and their three sequences (HeiSD section 4.3)."""

from __future__ import annotations

from enum import IntEnum

DOF_NAMES: tuple[str, ...] = ("x", "y", "z", "rx", "ry", "rz", "gripper")
"""Names of the action axes: translation, rotation vector, gripper (1 = open)."""


class Sequence(IntEnum):
    """The parts of an action that are drafted, verified and recombined as a whole."""

    POSITION = 0
    ROTATION = 1
    GRIPPER = 2


SEQUENCE_SLICES: dict[Sequence, slice] = {
    Sequence.POSITION: slice(0, 3),
    Sequence.ROTATION: slice(3, 6),
    Sequence.GRIPPER: slice(6, 7),
}
"""Where each sequence sits in an action or in its tokens."""


def sequence_of(dof: int) -> Sequence:
    """Return the sequence that degree of freedom `dof` (0..6) belongs to.

    Raises:
        IndexError: If there is no such degree of freedom.
    """
    for sequence, part in SEQUENCE_SLICES.items():
        if part.start <= dof < part.stop:
            return sequence
    raise IndexError(f"degree of freedom must be in 0..{len(DOF_NAMES) - 1}, got {dof}")
