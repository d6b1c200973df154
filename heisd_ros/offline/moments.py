"""The moments of a run that are worth a picture: start, grasp, lift, placement, end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heisd_ros.offline.run_record import StepRow

LIFT_M = 0.03
"""The hand has lifted something when it is this far above where it closed. Not in the paper."""
OPEN = 0.5
"""A commanded opening below it closes the gripper (1 = open)."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a run with a name."""

    name: str
    step: int


def key_moments(rows: Sequence[StepRow]) -> tuple[Moment, ...]:
    """Return the named steps in time order, each step once; empty for a run without steps.

    The first closing and the last opening of the gripper bound the carrying: small corrections
    in between are not pictured.
    """
    if not rows:
        return ()
    found = [Moment("start", 0)]
    changes = gripper_changes(rows)
    closed = next((step for step, opens in changes if not opens), None)
    if closed is not None:
        found.append(Moment("gripper closes", closed))
        lifted = _lift(rows, closed)
        if lifted is not None:
            found.append(Moment("lift", lifted))
        opened = [step for step, opens in changes if opens and step > closed]
        if opened:
            found.append(Moment("gripper opens", opened[-1]))
    found.append(Moment("end", len(rows) - 1))
    first: dict[int, Moment] = {}
    for moment in found:
        first.setdefault(moment.step, moment)
    return tuple(first[step] for step in sorted(first))


def gripper_changes(rows: Sequence[StepRow]) -> tuple[tuple[int, bool], ...]:
    """Return (step, opens) for every change of the commanded gripper state.

    The gripper counts as open before the first command; commands that are not known change nothing.
    """
    changes, is_open = [], True
    for step, row in enumerate(rows):
        wanted = row.gripper_command
        if math.isnan(wanted) or (wanted >= OPEN) == is_open:
            continue
        is_open = not is_open
        changes.append((step, is_open))
    return tuple(changes)


def _lift(rows: Sequence[StepRow], closed: int) -> int | None:
    low = rows[closed].position[2]
    later = range(closed + 1, len(rows))
    return next((step for step in later if rows[step].position[2] >= low + LIFT_M), None)
