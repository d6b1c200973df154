"""LIBERO's HDF5 demonstrations (and robomimic files of that layout): one file per task.

Layout: `data/demo_<i>` with `actions` (T, 7) and `obs/{agentview_rgb, eye_in_hand_rgb}`
(T, H, W, 3), `obs/{ee_pos, ee_ori, gripper_states}`; text in the attributes of `data`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.source import (
    Piece,
    RawEpisode,
    SourceOptions,
    check_size,
    state_of,
    unknown_state,
)
from heisd_ros.errors import ConfigError, DataError, MissingDependencyError
from heisd_ros.types import Float32Array, ImageArray

SUFFIXES = (".hdf5", ".h5")
CAMERAS = {"third_person": "agentview_rgb", "wrist": "eye_in_hand_rgb"}
DEMO = re.compile(r"demo_(\d+)")
SCENE = re.compile(r"^.*?SCENE\d+_")
LANGUAGE = re.compile(r"\(:language\s+([^)]*)\)")


class LiberoHdf5:
    """A set of LIBERO's HDF5 files."""

    def __init__(self, paths: Sequence[Path], options: SourceOptions) -> None:
        """Look at the files' attributes.

        Args:
            paths: Files, or folders that are searched.
            options: Cameras and instruction.

        Raises:
            DataError: If there is no such file.
            MissingDependencyError: If h5py is not installed.
        """
        self._h5py = _h5py()
        self._options = options
        self._cameras = dict(options.cameras or CAMERAS)
        self._root, self._files = find_files(paths, SUFFIXES)
        self._open: tuple[Path, Any] | None = None
        self.lost: Counter[str] = Counter()
        self.settled: Mapping[str, Any] = {"state": "axis_angle_fingers", **self._rates()}

    def pieces(self) -> list[Piece]:
        """Return one piece per demonstration; damaged files are counted in `lost`."""
        found: list[Piece] = []
        self.lost.clear()
        for path in self._files:
            try:
                data = self._data(path)
            except DataError as error:
                self.lost[str(error)] += 1
                continue
            numbers = [DEMO.fullmatch(str(key)) for key in data]
            name = path.relative_to(self._root).as_posix()
            found += [
                Piece(f"{name}:demo_{number}", path, number)
                for number in sorted(int(match[1]) for match in numbers if match)
            ]
        if not found:
            raise DataError(f"no demonstration in {self._root}: {dict(self.lost) or 'no demo_<i>'}")
        return found

    def read(self, piece: Piece) -> Iterator[RawEpisode]:
        """Yield the demonstration."""
        data = self._data(piece.path)
        try:
            yield self._episode(piece, data)
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise DataError(f"{piece.name} is damaged: {error}") from error

    def close(self) -> None:
        """Close the file that is open."""
        if self._open:
            self._open[1].close()
            self._open = None

    def _episode(self, piece: Piece, data: Any) -> RawEpisode:  # noqa: ANN401
        demo = self._child(data, f"demo_{piece.index}", piece.name)
        actions = self._array(demo, "actions", piece.name).astype(np.float64)
        images = {
            camera: self._images(demo, f"obs/{key}", piece.name)
            for camera, key in self._cameras.items()
        }
        return RawEpisode(
            name=piece.name,
            images=images,
            actions=actions,
            state=self._state(demo, len(actions), piece.name),
            instruction=self._options.instruction or _instruction(data, piece.path),
            success=_verdict(demo),
            suite=_suite(data),
            facts={"path": str(piece.path)},
        )

    def _state(self, demo: Any, steps: int, name: str) -> Float32Array:  # noqa: ANN401
        keys = ("obs/ee_pos", "obs/ee_ori", "obs/gripper_states")
        if not all(key in demo for key in keys):
            return unknown_state(steps)
        columns = [self._array(demo, key, name).astype(np.float64) for key in keys]
        return state_of(np.column_stack(columns), "axis_angle_fingers", name)

    def _images(self, demo: Any, key: str, name: str) -> ImageArray:  # noqa: ANN401
        if key not in demo:
            known = sorted(k for k, item in demo.get("obs", {}).items() if item.ndim == 4)
            raise DataError(
                f"{name} has no pictures {key!r}; give --camera NAME=KEY with one of "
                f"{', '.join(known) or 'none'}"
            )
        shape = self._child(demo, key, name).shape
        if len(shape) != 4 or shape[3] != 3:
            raise DataError(f"{name}: {key} must have shape (T, H, W, 3), got {shape}")
        check_size(name, *shape[:3])
        images: ImageArray = self._array(demo, key, name)
        return images

    def _array(self, demo: Any, key: str, name: str) -> Any:  # noqa: ANN401
        """Return a dataset's numbers; only those that lie in this very file."""
        dataset = self._child(demo, key, name)
        if dataset.nbytes > 1 << 33:
            raise DataError(f"{name}: {key} claims {dataset.nbytes} bytes and is refused")
        if dataset.dtype.kind not in "buif":
            raise DataError(f"{name}: {key} must hold numbers, got {dataset.dtype}")
        return dataset[()]

    def _child(self, group: Any, key: str, name: str) -> Any:  # noqa: ANN401
        """Follow hard links only: others can point at any file of this machine."""
        for part in key.split("/"):
            if part not in group:
                raise DataError(f"{name} has no {key!r}; it holds {', '.join(group) or 'nothing'}")
            if not isinstance(group.get(part, getlink=True), self._h5py.HardLink):
                raise DataError(f"{name}: {key} is a link to elsewhere and is refused")
            group = group[part]
        is_data = isinstance(group, self._h5py.Dataset)
        if is_data and (group.external is not None or group.is_virtual):
            raise DataError(f"{name}: {key} lies in another file and is refused")
        return group

    def _data(self, path: Path) -> Any:  # noqa: ANN401  (h5py.Group)
        if self._open is None or self._open[0] != path:
            self.close()
            try:
                self._open = (path, self._h5py.File(path, "r"))
            except OSError as error:
                cause = str(error).splitlines()[0]
                raise DataError(f"{path} is damaged or cut off: {cause}") from error
        return self._child(self._open[1], "data", path.name)

    def _rates(self) -> dict[str, float]:
        """Return the rate that the files name, if they agree."""
        rates = {rate for rate in map(self._rate, self._files) if rate}
        if len(rates) > 1:
            raise ConfigError(f"files of several rates: {sorted(rates)} Hz; ingest them separately")
        return {"control_hz": rates.pop()} if rates else {}

    def _rate(self, path: Path) -> float:
        """Return the rate that a file names, 0 if none."""
        with suppress(DataError, KeyError, TypeError, ValueError):
            text = _text(self._data(path).attrs.get("env_args", ""))
            return float(json.loads(text)["env_kwargs"]["control_freq"])
        return 0.0


def find_files(paths: Sequence[Path], suffixes: tuple[str, ...]) -> tuple[Path, list[Path]]:
    """Return the common folder and the files with these suffixes, sorted.

    Raises:
        DataError: If there is none.
    """
    files: set[Path] = set()
    for path in paths:
        if path.is_dir():
            files.update(p for p in path.rglob("*") if p.suffix in suffixes and p.is_file())
        elif path.is_file():
            files.add(path)
        else:
            raise DataError(f"{path} does not exist; give the data set's folder or files")
    if not files:
        raise DataError(
            f"no file ending in {' or '.join(suffixes)} in {', '.join(map(str, paths))}"
        )
    only = paths[0]
    root = only if len(paths) == 1 and only.is_dir() else _common_folder(files)
    return root, sorted(files)


def _common_folder(files: set[Path]) -> Path:
    parents = [set(file.parents) for file in files]
    return max(set.intersection(*parents), key=lambda folder: len(folder.parts), default=Path())


def _instruction(data: Any, path: Path) -> str:  # noqa: ANN401
    """Return the task in words: from the attributes, else from LIBERO's file name."""
    try:
        found = json.loads(_text(data.attrs.get("problem_info", "")))["language_instruction"]
        words = "".join(found) if isinstance(found, list) else str(found)
    except (KeyError, TypeError, ValueError):
        match = LANGUAGE.search(_text(data.attrs.get("bddl_file_content", "")))
        words = match[1] if match else ""
    words = words.strip().strip('"').strip()
    if words:
        return words
    stem = path.stem.removesuffix("_demo")
    return SCENE.sub("", stem).replace("_", " ").strip().lower()


def _suite(data: Any) -> str:  # noqa: ANN401
    folder = Path(_text(data.attrs.get("bddl_file_name", ""))).parent.name
    return folder if re.fullmatch(r"libero_\w+", folder) else ""


def _verdict(demo: Any) -> bool | None:  # noqa: ANN401
    for key in ("dones", "rewards"):
        if key in demo and len(demo[key]):
            return bool(np.asarray(demo[key][()]).max() > 0)
    return None


def _text(value: Any) -> str:  # noqa: ANN401  (str, bytes or an array of them)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _h5py() -> Any:  # noqa: ANN401
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(
            "LIBERO HDF5 files need h5py: pip install 'heisd_ros[libero_hdf5]'"
        ) from error
    return h5py
