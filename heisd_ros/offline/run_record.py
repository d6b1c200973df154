"""The record of one run: what the arm was asked, what it did, and how each step was decoded.

A record is a folder with `run.json` and the key pictures as PNG files.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heisd_ros.errors import DataError
from heisd_ros.perception.images import MAX_PIXELS
from heisd_ros.types import DecodeReport, DraftKind, ImageArray, Proprioception

FORMAT = 1
RUN_FILE = "run.json"
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class StepRow:
    """One decision; plain numbers, so that a record can be written as text.

    Attributes:
        stamp_s: Time of the picture it was decided from, seconds since the first one.
        position: End-effector position x y z, metres, nan if unknown.
        gripper: Measured opening, [0, 1], 1 = open, nan if unknown.
        twist: Commanded linear m/s and angular rad/s velocity; nan if unknown.
        gripper_command: Commanded opening, [0, 1], nan if unknown.
        kind: Source of the draft, a value of `DraftKind`.
        skipped: True when the draft was executed without verification.
        fused: F, [0, 1], nan if unknown.
        threshold: The boundary on F, nan if the method has none.
        forwards: Forward passes of the target model.
        accept_length: Tokens, as defined in `decode/report.py`.
        nodes: Draft nodes verified.
        top_score: Best similarity, nan if nothing was retrieved.
        reason: Why it fell back or stopped, a machine word; empty when all went well.
        guard: What the command guard changed or refused; empty when nothing.
        stage_ms: Milliseconds per stage; `total` is the whole step.
        tokens: The 7 decoded token ids; empty when nothing was decided.
        action: The 7 action values, model units, gripper 1 = open; empty when unknown.
    """

    stamp_s: float
    position: tuple[float, ...] = (NAN, NAN, NAN)
    gripper: float = NAN
    twist: tuple[float, ...] = (NAN,) * 6
    gripper_command: float = NAN
    kind: str = DraftKind.AR.value
    skipped: bool = False
    fused: float = NAN
    threshold: float = NAN
    forwards: int = 0
    accept_length: float = 0.0
    nodes: int = 0
    top_score: float = NAN
    reason: str = ""
    guard: str = ""
    stage_ms: Mapping[str, float] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    action: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, report: DecodeReport, state: Proprioception | None, *, stamp_s: float, threshold: float
    ) -> StepRow:
        """Return the row of a decode report, without what was decided and sent."""
        return cls(
            stamp_s=stamp_s,
            position=(NAN, NAN, NAN) if state is None else tuple(map(float, state.position)),
            gripper=NAN if state is None else state.gripper_opening,
            kind=report.kind.value,
            skipped=report.skipped,
            fused=report.fused,
            threshold=threshold,
            forwards=report.forwards,
            accept_length=report.accept_length,
            nodes=report.nodes,
            top_score=report.top_score,
            reason=report.reason,
            stage_ms=report.stage_ms,
        )

    def report(self) -> DecodeReport:
        """Return the decode report of this row, as `decode.report.summarise` takes it."""
        return DecodeReport(
            kind=DraftKind(self.kind),
            skipped=self.skipped,
            accept_length=self.accept_length,
            forwards=self.forwards,
            stage_ms=dict(self.stage_ms),
            fused=self.fused,
            nodes=self.nodes,
            top_score=self.top_score,
            reason=self.reason,
        )


@dataclass(frozen=True, slots=True)
class KeyFrame:
    """A picture worth keeping.

    Attributes:
        moment: What happens in it, e.g. `gripper closes`.
        step: Number of the decision, 0-based.
        stamp_s: Seconds since the first decision's picture.
        camera: Name of the camera.
        image: uint8 (H, W, 3), RGB, upright.
    """

    moment: str
    step: int
    stamp_s: float
    camera: str
    image: ImageArray


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run from instruction to outcome.

    Attributes:
        instruction: The task in words.
        method: Named decoding method.
        success: Verdict of the simulator or a person; None when nobody judged the run.
        rows: One per decision, in time order.
        frames: Key pictures, in time order.
        suite: Task suite, or a free name.
        task: Task number in the suite; None outside a suite.
        init: Initial state of the suite; None outside a suite.
        steps: Control steps executed.
        end_reason: Why it ended, a machine word; empty if unknown.
        crash: Text of the exception that ended the run; empty otherwise.
        source: How the record came about, e.g. `DDS recording` or `in process`.
        config: Configuration as `section.field` -> value.
        versions: Package -> version.
        machine: The computer in words.
        commands: The exact command lines that made the run.
        counts: Counted facts worth telling, e.g. messages of unknown type.
        notes: Sentences that a reader of the figures should know.
    """

    instruction: str
    method: str
    success: bool | None
    rows: tuple[StepRow, ...]
    frames: tuple[KeyFrame, ...] = ()
    suite: str = ""
    task: int | None = None
    init: int | None = None
    steps: int = 0
    end_reason: str = ""
    crash: str = ""
    source: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    commands: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """`crash`, `success`, `failure` or `not judged`: a crash is never a failure."""
        if self.crash:
            return "crash"
        if self.success is None:
            return "not judged"
        return "success" if self.success else "failure"

    def reports(self) -> tuple[DecodeReport, ...]:
        """Return one decode report per decoded row; a step on which the policy failed has none."""
        return tuple(row.report() for row in self.rows if row.stage_ms)


def save_record(record: RunRecord, folder: str | Path) -> Path:
    """Write a record and return its folder; a record that is there already is replaced."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("frame_*.png"):
        stale.unlink()
    frames = []
    for number, frame in enumerate(record.frames):
        name = f"frame_{number:02d}.png"
        Image.fromarray(frame.image).save(folder / name)
        entry = {key: getattr(frame, key) for key in ("moment", "step", "stamp_s", "camera")}
        frames.append({**entry, "file": name})
    content: dict[str, Any] = {"format": FORMAT}
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        content[item.name] = value if item.name not in {"rows", "frames"} else None
    content["rows"] = [dataclasses.asdict(row) for row in record.rows]
    content["frames"] = frames
    text = json.dumps(_without_nan(content), indent=1, allow_nan=False)
    (folder / RUN_FILE).write_text(text + "\n", encoding="utf-8")
    return folder


def load_record(folder: str | Path) -> RunRecord:
    """Read a record.

    Raises:
        DataError: If the folder holds none, or it is damaged or of another format.
    """
    path = Path(folder) / RUN_FILE
    if not path.is_file():
        raise DataError(f"{folder} holds no {RUN_FILE}; expected the folder of a recorded run")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content.pop("format")
        record = _record(path.parent, content) if found == FORMAT else None
    except (
        *(KeyError, TypeError, ValueError, AttributeError, OSError),
        Image.DecompressionBombError,
    ) as error:
        raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    if record is None:
        raise DataError(f"{path} has format {found}, expected {FORMAT}; record the run again")
    return record


def is_record(folder: str | Path) -> bool:
    """Return whether the folder holds a record."""
    return (Path(folder) / RUN_FILE).is_file()


def _record(folder: Path, content: dict[str, Any]) -> RunRecord:
    lists = {
        "rows": tuple(_row(row) for row in content["rows"]),
        "frames": tuple(_frame(folder, frame) for frame in content["frames"]),
        "commands": tuple(content["commands"]),
        "notes": tuple(content["notes"]),
    }
    return RunRecord(**{**content, **lists})


def _row(values: dict[str, Any]) -> StepRow:
    known = {item.name: item for item in dataclasses.fields(StepRow)}
    numbers = {"gripper", "gripper_command", "fused", "threshold", "top_score", "stamp_s"}
    row: dict[str, Any] = {
        name: NAN if name in numbers and v is None else v for name, v in values.items()
    }
    for name in ("position", "twist", "action"):
        row[name] = _floats(row[name])
    row["tokens"] = tuple(int(token) for token in row["tokens"])
    row["stage_ms"] = {k: NAN if v is None else v for k, v in row["stage_ms"].items()}
    DraftKind(row["kind"])
    return StepRow(**{name: row[name] for name in known})


def _frame(folder: Path, entry: dict[str, Any]) -> KeyFrame:
    name = str(entry["file"])
    if Path(name).name != name:
        raise ValueError(f"picture {name!r} lies outside the record's folder")
    with Image.open(folder / name, formats=("PNG",)) as picture:
        if math.prod(picture.size) > MAX_PIXELS:
            raise ValueError(f"picture {name} has more than {MAX_PIXELS} pixels")
        image = np.asarray(picture.convert("RGB"), dtype=np.uint8)
    return KeyFrame(
        entry["moment"], int(entry["step"]), float(entry["stamp_s"]), entry["camera"], image
    )


def _floats(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(NAN if value is None else float(value) for value in values)


def _without_nan(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    """Return the value with null for every number that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(entry) for entry in value]
    return value
