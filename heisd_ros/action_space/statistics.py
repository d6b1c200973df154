"""Physical units to [-1, 1] and back, by the quantiles a checkpoint was trained with (OpenVLA)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.action_space.layout import DOF_NAMES
from heisd_ros.errors import ConfigError, DataError, ShapeError
from heisd_ros.types import ACTION_DIM, BoolArray, FloatArray

S = TypeVar("S", bound="QuantileStatistics")


@dataclass(frozen=True, slots=True, eq=False)
class QuantileStatistics:
    """Per-axis 1 % and 99 % quantiles of a training set.

    Attributes:
        q01: float64 (n,), maps to -1.
        q99: float64 (n,), maps to +1.
        mask: bool (n,), axes that are scaled; the others pass through unchanged.
        key: Name of the training set.
    """

    PART: ClassVar[str] = ""
    FEWEST_AXES: ClassVar[int] = 1

    q01: FloatArray
    q99: FloatArray
    mask: BoolArray
    key: str = ""

    @classmethod
    def load(cls: type[S], path: str | Path, key: str = "") -> S:
        """Read the statistics of one training set.

        Args:
            path: `dataset_statistics.json`, a `config.json` with `norm_stats`, or the checkpoint
                folder with either; in a folder the first of the two wins.
            key: Training set; may be left empty if the file holds only one.

        Raises:
            ConfigError: If there is no file, no entry, no such key, or several and none chosen.
            DataError: If the chosen entry is malformed.
        """
        tables = _read_tables(Path(path))
        for source, table in tables.items():
            if not key or key in table:
                return cls.from_dict(table, key, source=source)
        known = sorted({name for table in tables.values() for name in table})
        raise ConfigError(_unknown_key(key, known, str(path)))

    @classmethod
    def from_dict(cls: type[S], table: Mapping[str, Any], key: str = "", *, source: str = "") -> S:
        """Take the statistics of one training set out of a parsed table.

        Args:
            table: Training set -> `{"action": {...}, "proprio": {...}}`, or one such entry, or
                its inner part with `q01`, `q99` and `mask`.
            key: Training set; may be left empty if there is only one.
            source: Where the table came from, for the error messages.

        Raises:
            ConfigError: If there is no entry, no such key, or several and none chosen.
            DataError: If the chosen entry is malformed.
        """
        where = source or "the statistics"
        if "q01" in table:
            return cls._checked(table, key, where)
        if cls.PART in table and "q01" in (table[cls.PART] or {}):
            return cls._checked(table[cls.PART], key, where)
        chosen = _chosen_key(table, key, where)
        entry = table[chosen]
        if not isinstance(entry, Mapping) or not isinstance(entry.get(cls.PART), Mapping):
            raise DataError(f"{where}: {chosen!r} has no {cls.PART!r} section with q01 and q99")
        return cls._checked(entry[cls.PART], chosen, where)

    @classmethod
    def _checked(cls: type[S], part: Mapping[str, Any], key: str, where: str) -> S:
        label = f"{where}: {key!r}" if key else where
        q01 = _numbers(part, "q01", label)
        q99 = _numbers(part, "q99", label)
        if len(q01) != len(q99) or len(q01) < cls.FEWEST_AXES:
            raise DataError(
                f"{label}: q01 and q99 must have the same length, at least {cls.FEWEST_AXES}; "
                f"got {len(q01)} and {len(q99)}"
            )
        mask = _mask(part, len(q01), label)
        for axis in range(len(q01)):
            _check_axis(axis, q01[axis], q99[axis], scaled=bool(mask[axis]), label=label)
        return cls(q01, q99, mask, key)

    @property
    def size(self) -> int:
        """Number of axes, n."""
        return len(self.q01)

    def normalize(self, physical: ArrayLike) -> FloatArray:
        """Return values in [-1, 1]: scaled axes are clipped there, the others unchanged.

        Args:
            physical: (..., n), units of the training set.

        Raises:
            ShapeError: If the last axis is not n long.
            DataError: If a value is not finite.
        """
        array = self._array(physical)
        span = np.where(self.mask, self.q99 - self.q01, 1.0)
        scaled = np.clip(2.0 * (array - self.q01) / span - 1.0, -1.0, 1.0)
        return np.where(self.mask, scaled, array)

    def denormalize(self, values: ArrayLike) -> FloatArray:
        """Return physical units, the inverse of `normalize` inside the quantiles.

        Args:
            values: (..., n), normalised.

        Raises:
            ShapeError: If the last axis is not n long.
            DataError: If a value is not finite.
        """
        array = self._array(values)
        physical = 0.5 * (array + 1.0) * (self.q99 - self.q01) + self.q01
        return np.where(self.mask, physical, array)

    def _array(self, values: ArrayLike) -> FloatArray:
        array = np.asarray(values, dtype=np.float64)
        if array.ndim == 0 or array.shape[-1] != self.size:
            raise ShapeError(
                f"the last axis must be {self.size} long (statistics {self.key!r}), "
                f"got shape {array.shape}"
            )
        if not np.isfinite(array).all():
            raise DataError(f"values must be finite, got {array.tolist()}; drop this step")
        return array


@dataclass(frozen=True, slots=True, eq=False)
class ActionStatistics(QuantileStatistics):
    """Quantiles of the actions: translation and rotation deltas, gripper unscaled.

    Example:
        >>> table = {"q01": [-0.05] * 7, "q99": [0.05] * 7, "mask": [True] * 6 + [False]}
        >>> round(float(ActionStatistics.from_dict(table).denormalize([0.5] * 7)[0]), 6)
        0.025
    """

    PART: ClassVar[str] = "action"
    FEWEST_AXES: ClassVar[int] = ACTION_DIM


@dataclass(frozen=True, slots=True, eq=False)
class ProprioStatistics(QuantileStatistics):
    """Quantiles of the proprioceptive state, for checkpoints that take one."""

    PART: ClassVar[str] = "proprio"


def statistics_keys(path: str | Path) -> tuple[str, ...]:
    """Return the names of the training sets in a statistics file or checkpoint folder, sorted.

    Raises:
        ConfigError: If there is no statistics file.
    """
    tables = _read_tables(Path(path))
    return tuple(sorted({name for table in tables.values() for name in table}))


def _read_tables(path: Path) -> dict[str, dict[str, Any]]:
    """Return file -> (training set -> entry), the file that wins first."""
    files = [path / "dataset_statistics.json", path / "config.json"] if path.is_dir() else [path]
    tables: dict[str, dict[str, Any]] = {}
    for file in files:
        if not file.is_file():
            continue
        table = _read_json(file)
        if file.name == "config.json" or "norm_stats" in table:
            table = table.get("norm_stats") or {}
        if table:
            tables[str(file)] = table
    if not tables:
        raise ConfigError(
            f"no action statistics in {path}: expected dataset_statistics.json or a config.json "
            "with norm_stats; copy the file that came with the checkpoint"
        )
    return tables


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is not JSON: {error}; copy it again") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} must hold a mapping, got {type(content).__name__}")
    return content


def _chosen_key(table: Mapping[str, Any], key: str, where: str) -> str:
    if not table:
        raise ConfigError(f"{where}: no entry; expected statistics of at least one training set")
    if key:
        if key not in table:
            raise ConfigError(_unknown_key(key, sorted(table), where))
        return key
    if len(table) > 1:
        raise ConfigError(
            f"{where}: {len(table)} entries and no statistics key chosen; "
            f"choose one of {', '.join(sorted(table))}"
        )
    return next(iter(table))


def _unknown_key(key: str, known: list[str], where: str) -> str:
    return f"{where}: no statistics for key {key!r}; choose one of {', '.join(known)}"


def _numbers(part: Mapping[str, Any], name: str, label: str) -> FloatArray:
    if name not in part:
        raise DataError(f"{label}: {name} is missing; found {', '.join(sorted(part))}")
    try:
        array = np.asarray(part[name], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{label}: {name} must be a list of numbers, got {part[name]!r}") from error
    if array.ndim != 1:
        raise DataError(f"{label}: {name} must be one list of numbers, got shape {array.shape}")
    return array


def _mask(part: Mapping[str, Any], size: int, label: str) -> BoolArray:
    if part.get("mask") is None:
        return np.ones(size, dtype=np.bool_)
    mask = np.asarray(part["mask"])
    if mask.shape != (size,) or mask.dtype != np.bool_:
        raise DataError(f"{label}: mask must be {size} booleans, got {part['mask']!r}")
    return mask


def _check_axis(axis: int, low: float, high: float, *, scaled: bool, label: str) -> None:
    name = DOF_NAMES[axis] if axis < len(DOF_NAMES) else str(axis)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise DataError(f"{label}: axis {axis} ({name}) has q01={low}, q99={high}; need numbers")
    if scaled and not low < high:
        raise DataError(
            f"{label}: axis {axis} ({name}) needs q01 < q99, got {low} and {high}; "
            "mask the axis out if it never moves"
        )
