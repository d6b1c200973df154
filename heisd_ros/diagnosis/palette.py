"""One colour, one hatch and one word per way of decoding, the same in every plot and marker."""

from __future__ import annotations

from dataclasses import dataclass

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

    def rgb(self) -> tuple[float, float, float]:
        """Return red, green and blue, [0, 1]."""
        red, green, blue = (int(self.colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5))
        return red, green, blue


MODES: dict[str, Look] = {
    DraftKind.RETRIEVAL.value: Look("#0072B2", "", "retrieved draft, verified"),
    DraftKind.DRAFTER.value: Look("#E69F00", "", "drafter mode, verified"),
    SKIPPED: Look("#009E73", "//", "draft executed without verification"),
    DraftKind.KINEMATIC.value: Look("#CC79A7", "..", "kinematic draft, verified"),
    DraftKind.LOOKAHEAD.value: Look("#56B4E9", "\\\\", "look-ahead draft, verified"),
    DraftKind.JACOBI.value: Look("#D55E00", "xx", "Jacobi decoding"),
    DraftKind.AR.value: Look("#8A8F98", "", "autoregressive, no draft"),
}

AT_REST = Look("#1C2430", "", "no decision, at rest")


def look_of(kind: str, *, skipped: bool, decided: bool = True) -> Look:
    """Return how a decision is shown; a draft's source that is not known looks autoregressive."""
    if not decided:
        return AT_REST
    return MODES[SKIPPED] if skipped else MODES.get(kind, MODES[DraftKind.AR.value])
