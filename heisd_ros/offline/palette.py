"""One colour, one hatch and one word per way of decoding, the same in every plot and table."""

from __future__ import annotations

from dataclasses import dataclass

from heisd_ros.offline.run_record import StepRow
from heisd_ros.types import DraftKind

SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Look:
    """How one mode is shown.

    Attributes:
        colour: Hex colour; the set is told apart with any common colour blindness (Okabe-Ito).
        hatch: Matplotlib hatch, so that the modes also differ in grey print.
        label: What a reader is told.
    """

    colour: str
    hatch: str
    label: str


MODES: dict[str, Look] = {
    DraftKind.RETRIEVAL.value: Look("#0072B2", "", "retrieved draft, verified"),
    DraftKind.DRAFTER.value: Look("#E69F00", "", "drafter's draft, verified"),
    SKIPPED: Look("#009E73", "//", "draft executed without verification"),
    DraftKind.KINEMATIC.value: Look("#CC79A7", "..", "kinematic draft, verified"),
    DraftKind.LOOKAHEAD.value: Look("#56B4E9", "\\\\", "look-ahead draft, verified"),
    DraftKind.JACOBI.value: Look("#D55E00", "xx", "Jacobi decoding"),
    DraftKind.AR.value: Look("#8A8F98", "", "autoregressive, no draft"),
}

STAGES: dict[str, str] = {
    "vision": "#2F3E58",
    "embedding": "#51688F",
    "retrieval": "#8DA3C7",
    "draft": "#F0E442",
    "prefill": "#7A5CA8",
    "decode": "#C4B5DD",
    "other": "#E1E4E8",
}
"""Colour per timed stage, none that means a mode; a stage not listed takes the last one."""

INK = "#1C2430"
QUIET = "#667080"
RULE = "#D5DAE1"


def mode_of(row: StepRow) -> str:
    """Return the key into `MODES`: the draft's source, or `skipped`."""
    return SKIPPED if row.skipped else row.kind
