"""The outcome of one check: a line for a person, a level for a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad a finding is; the worst one makes the exit code."""

    OK = 0
    SKIPPED = 1
    WARN = 2
    FAIL = 3


WORDS = {Level.OK: "ok", Level.SKIPPED: "--", Level.WARN: "warn", Level.FAIL: "FAIL"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor.

    Attributes:
        level: How bad it is.
        name: What was checked.
        text: What was found.
        remedy: What to do; empty when all is well.
    """

    level: Level
    name: str
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Finding:
    """Return that a check passed."""
    return Finding(Level.OK, name, text)


def skipped(name: str, text: str) -> Finding:
    """Return that something could not be checked, and why."""
    return Finding(Level.SKIPPED, name, text)


def warn(name: str, text: str, remedy: str) -> Finding:
    """Return something that works now and may bite later."""
    return Finding(Level.WARN, name, text, remedy)


def fail(name: str, text: str, remedy: str) -> Finding:
    """Return something with which the arm does not move, or moves wrongly."""
    return Finding(Level.FAIL, name, text, remedy)


def page(findings: Sequence[Finding]) -> str:
    """Return one line per finding, remedies below, and a summary."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{WORDS[finding.level]:<5} {finding.name:<{width}}  {finding.text}")
        if finding.remedy:
            lines.append(f"{'':<5} {'':<{width}}  -> {finding.remedy}")
    counts = {level: sum(f.level is level for f in findings) for level in Level}
    lines.append(
        f"{counts[Level.OK]} ok, {counts[Level.WARN]} to look at, {counts[Level.FAIL]} failed, "
        f"{counts[Level.SKIPPED]} not checked"
    )
    return "\n".join(lines)


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if anything failed, else 0."""
    return int(any(finding.level is Level.FAIL for finding in findings))
