"""The colours of the report: those of the modes, of the stages, and of the page."""

from __future__ import annotations

from heisd_ros.diagnosis.palette import MODES, SKIPPED, Look
from heisd_ros.offline.run_record import StepRow

__all__ = ["INK", "MODES", "QUIET", "RULE", "SKIPPED", "STAGES", "Look", "mode_of"]

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
