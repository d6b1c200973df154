"""The task key: what makes two instructions the same task."""

from __future__ import annotations


def normalise_task(instruction: str) -> str:
    """Return the instruction in lower case with single spaces: the store's task key.

    Two instructions are one task only if these keys are equal. Similar pictures are no proof: all
    ten scenes of LIBERO-Goal start identically.
    """
    return " ".join(instruction.lower().split())
