"""Skip thresholds per task, and the files that keep them (HeiSD Algorithm 1).

Two files. The *calibration* is written by `heisd calibrate --skip` and never changes at run time.
The *state* holds what the feedback after each task made of it, and the audits; it names the
calibration it grew from, so that it cannot be continued under another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heisd_ros.errors import DataError
from heisd_ros.files import write_whole
from heisd_ros.verify.audit import AuditRecord
from heisd_ros.verify.skip_thresholds import FeedbackSettings, SkipThresholds

SCHEMA = 1
CALIBRATION, STATE = "heisd skip calibration", "heisd skip state"
LEARNED = ("paper", "calibrated")
"""The two ways of learning; a calibration file holds both."""

Learned = SkipThresholds | None
"""None: nothing was learned under which a verification may be skipped."""


@dataclass(frozen=True, slots=True)
class SkipTable:
    """Thresholds of each task of a suite.

    Attributes:
        default: For tasks that are not listed; None: there nothing is skipped.
        tasks: Task key -> thresholds; None: nothing is skipped.
    """

    default: Learned
    tasks: Mapping[str, Learned] = field(default_factory=dict)

    def of(self, task: str) -> Learned:
        """Return the thresholds of a task, None if nothing may be skipped."""
        return self.tasks.get(task, self.default)

    def after_task(
        self, task: str, success: bool, settings: FeedbackSettings | None = None
    ) -> SkipTable:
        """Return the table after a task that skipped at least once ended."""
        known = self.of(task)
        if known is None:
            return self
        return SkipTable(self.default, {**self.tasks, task: known.after_task(success, settings)})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, the inverse of `from_dict`."""
        return {
            "default": _plain(self.default),
            "tasks": {task: _plain(known) for task, known in self.tasks.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SkipTable:
        """Read a stored table.

        Raises:
            DataError: If it is malformed.
        """
        try:
            tasks = {str(task): _learned(known) for task, known in values["tasks"].items()}
            return cls(_learned(values["default"]), tasks)
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"a skip table needs 'default' and 'tasks': {error!r}") from error

    @property
    def digest(self) -> str:
        """Sixteen hex digits that name this table."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SkipCalibration:
    """What the offline stage learned of one suite.

    Attributes:
        suite: Its name.
        tables: How it was learned (see `LEARNED`) -> thresholds.
        facts: Where it comes from and how good it was on held-out episodes; for people.
    """

    suite: str
    tables: Mapping[str, SkipTable]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file; a reader sees the whole file or none of it."""
        tables = {name: table.to_dict() for name, table in self.tables.items()}
        content = {"suite": self.suite, "tables": tables, "facts": dict(self.facts)}
        _write(path, CALIBRATION, content)

    @classmethod
    def load(cls, path: Path) -> SkipCalibration:
        """Read a file of `save`.

        Raises:
            DataError: If it is missing, damaged, something else, or holds impossible values.
        """
        content = _read(path, CALIBRATION, "make it with `heisd calibrate --skip`")
        try:
            tables = {name: SkipTable.from_dict(content["tables"][name]) for name in LEARNED}
            return cls(str(content["suite"]), tables, dict(content["facts"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: {error}; make it again with `heisd calibrate --skip`"
            ) from error


@dataclass(frozen=True, slots=True)
class SkipState:
    """What was learned at run time.

    Attributes:
        table: The thresholds as the feedback has moved them.
        audits: What the audits have shown.
        origin: `SkipTable.digest` of the calibrated table it started from.
    """

    table: SkipTable
    audits: AuditRecord
    origin: str

    @classmethod
    def fresh(cls, table: SkipTable) -> SkipState:
        """Return the state before the first task."""
        return cls(table, AuditRecord(), table.digest)

    def save(self, path: Path) -> None:
        """Write the file; a reader sees the whole file or none of it.

        Raises:
            DataError: If it cannot be written.
        """
        audits = {"audits": self.audits.audits, "failures": self.audits.failures}
        content = {"origin": self.origin, "audits": audits, **self.table.to_dict()}
        _write(path, STATE, content)

    @classmethod
    def load(cls, path: Path, origin: str) -> SkipState:
        """Read a file of `save`.

        Args:
            path: The file.
            origin: `SkipTable.digest` of the calibration in use.

        Raises:
            DataError: If it is damaged, something else, or grew from another calibration.
        """
        advice = "move it away, or start anew with skip.state_fresh"
        content = _read(path, STATE, advice)
        try:
            audits = AuditRecord(**{k: int(v) for k, v in content["audits"].items()})
            state = cls(SkipTable.from_dict(content), audits, str(content["origin"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{path}: {error}; {advice}") from error
        if state.origin != origin:
            raise DataError(
                f"{path} continues another skip calibration: expected {origin}, got "
                f"{state.origin}; {advice}"
            )
        return state


def _plain(known: Learned) -> dict[str, float] | None:
    return None if known is None else known.to_dict()


def _learned(values: dict[str, float] | None) -> Learned:
    return None if values is None else SkipThresholds.from_dict(values)


def _write(path: Path, kind: str, content: Mapping[str, Any]) -> None:
    whole = {"format": kind, "schema": SCHEMA, **content}
    whole["checksum"] = _checksum(whole)
    try:
        write_whole(path, json.dumps(whole, indent=1) + "\n")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error}; choose a writable folder") from error


def _read(path: Path, kind: str, advice: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); {advice}") from error
    found = content.get("format") if isinstance(content, dict) else type(content).__name__
    if found != kind or content.get("schema") != SCHEMA:
        raise DataError(f"{path}: expected {kind!r} of schema {SCHEMA}, got {found!r}; {advice}")
    if content.pop("checksum", None) != _checksum(content):
        raise DataError(f"{path}: its checksum does not match its content; {advice}")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
