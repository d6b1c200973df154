"""RLDS episodes in TFDS folders: features.json, dataset_info.json and TFRecord shards.

One record is one episode; the features of its steps are joined, name by name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.demonstrations.readers.tfrecord import (
    Feature,
    index_records,
    parse_example,
    read_record,
)
from heisd_ros.demonstrations.source import (
    Piece,
    RawEpisode,
    SourceOptions,
    check_size,
    state_of,
    unknown_state,
)
from heisd_ros.errors import ConfigError, DataError
from heisd_ros.perception.images import ImageError, decode_compressed
from heisd_ros.types import FloatArray, ImageArray

CAMERAS = {"third_person": "image", "wrist": "wrist_image"}
INFO, FEATURES = "dataset_info.json", "features.json"
MAX_PIXELS = 4096 * 4096


class Rlds:
    """A TFDS folder of RLDS episodes."""

    def __init__(self, paths: Sequence[Path], options: SourceOptions) -> None:
        """Read the folder's description.

        Args:
            paths: The folder with `dataset_info.json`, or one above it.
            options: Split, cameras, instruction and state layout.

        Raises:
            DataError: If there is no such folder, or it is of another file format.
            ConfigError: If there are several, no such split, or no such camera.
        """
        self._options = options
        self._folder = _find_folder(paths)
        info = _json(self._folder / INFO)
        if info.get("fileFormat", "tfrecord") != "tfrecord":
            raise DataError(
                f"{self._folder}: expected fileFormat tfrecord, got {info['fileFormat']!r}; "
                "write it again with tfds convert_format"
            )
        self._lengths = _shard_lengths(info, options.split, self._folder)
        self._shapes = _shapes(_json(self._folder / FEATURES))
        self._cameras = self._checked_cameras()
        self.lost: Counter[str] = Counter()
        self.settled: Mapping[str, Any] = {}

    def pieces(self) -> list[Piece]:
        """Return one piece per whole record; what is cut off is counted in `lost`."""
        self.lost.clear()
        shards = self._shards()
        found: list[Piece] = []
        for number, path in sorted(shards.items()):
            index = index_records(path)
            promised = self._lengths[number] if number < len(self._lengths) else 0
            missing = promised - len(index.offsets)
            if index.problem:
                self.lost[f"{path.name}: {index.problem}"] += max(missing, 1)
            elif missing > 0:
                self.lost[f"{path.name}: fewer records than {INFO} says"] += missing
            found += [
                Piece(f"{path.name}:{place}", path, offset)
                for place, offset in enumerate(index.offsets)
            ]
        for number in set(range(len(self._lengths))) - set(shards):
            self.lost["records of missing shards"] += self._lengths[number]
        if not found:
            raise DataError(
                f"no whole record of split {self._options.split!r} in {self._folder}: "
                f"{dict(self.lost)}"
            )
        return found

    def read(self, piece: Piece) -> Iterator[RawEpisode]:
        """Yield the episode of a record."""
        features = parse_example(read_record(piece.path, piece.index))
        actions = self._numbers(features, "action", piece.name)
        steps = len(actions)
        images = {
            camera: self._images(features, key, steps, piece.name)
            for camera, key in self._cameras.items()
        }
        state = unknown_state(steps)
        if self._options.state != "none":
            raw = self._numbers(features, "observation/state", piece.name)
            state = state_of(raw, self._options.state, piece.name)
        yield RawEpisode(
            name=piece.name,
            images=images,
            actions=actions,
            state=state,
            instruction=self._options.instruction or _instruction(features, piece.name),
            success=_verdict(features),
            facts={"path": str(piece.path), **_origin(features)},
        )

    def close(self) -> None:
        """Nothing is kept open."""

    def _shards(self) -> dict[int, Path]:
        pattern = re.compile(rf".*-{re.escape(self._options.split)}\.tfrecord-(\d+)-of-(\d+)")
        matches = {path: pattern.fullmatch(path.name) for path in self._folder.iterdir()}
        return {int(match[1]): path for path, match in matches.items() if match}

    def _checked_cameras(self) -> dict[str, str]:
        cameras = dict(self._options.cameras or CAMERAS)
        prefix = "steps/observation/"
        known = sorted(
            name.removeprefix(prefix)
            for name, (kind, _) in self._shapes.items()
            if kind == "image" and name.startswith(prefix)
        )
        absent = [key for key in cameras.values() if key not in known]
        if absent:
            raise ConfigError(
                f"{self._folder} has no pictures {', '.join(absent)}; give --camera NAME=KEY with "
                f"{', '.join(known) or 'none'}, e.g. --camera third_person={(known or ['KEY'])[0]}"
            )
        return cameras

    def _numbers(self, features: Mapping[str, Feature], key: str, name: str) -> FloatArray:
        """Return a numeric feature (T, n)."""
        key = f"steps/{key}"
        if key not in features or key not in self._shapes:
            known = ", ".join(sorted(set(features) | set(self._shapes)))
            raise DataError(f"{name} has no feature {key!r}; it holds {known}")
        kind, shape = self._shapes[key]
        values = features[key]
        if kind != "tensor" or len(shape) != 1 or shape[0] < 1 or isinstance(values, list):
            raise DataError(
                f"{name}: {key} must be a vector of numbers per step, got {kind} {shape}"
            )
        if len(values) % shape[0] or not len(values):
            raise DataError(f"{name}: {key} has {len(values)} numbers, no multiple of {shape[0]}")
        return np.asarray(values, dtype=np.float64).reshape(-1, shape[0])

    def _images(
        self, features: Mapping[str, Feature], key: str, steps: int, name: str
    ) -> ImageArray:
        pictures = features.get(f"steps/observation/{key}")
        if not isinstance(pictures, list) or len(pictures) != steps:
            got = len(pictures) if isinstance(pictures, list) else "no"
            raise DataError(f"{name}: expected {steps} pictures {key!r}, got {got}; it was cut off")
        try:
            first = decode_compressed(pictures[0], MAX_PIXELS)
            check_size(name, steps, *first.shape[:2])
            rest = [decode_compressed(data, first.shape[0] * first.shape[1]) for data in pictures]
        except ImageError as error:
            raise DataError(f"{name}: a picture {key!r} is unreadable: {error}") from error
        if any(image.shape != first.shape for image in rest):
            raise DataError(f"{name}: pictures {key!r} have several sizes; resize them first")
        return np.stack(rest)


def _find_folder(paths: Sequence[Path]) -> Path:
    if len(paths) != 1:
        raise ConfigError(f"rlds reads one folder at a time, got {len(paths)}")
    path = paths[0]
    if not path.is_dir():
        raise DataError(f"{path} is no folder; give the one with {INFO}")
    if (path / INFO).is_file():
        return path
    found = sorted(file.parent for file in path.rglob(INFO))
    if not found:
        raise DataError(f"{path} is no TFDS data set: there is no {INFO} in it")
    if len(found) > 1:
        raise ConfigError(
            f"{path} holds several data sets; give one of {', '.join(map(str, found))}"
        )
    return found[0]


def _json(path: Path) -> Any:  # noqa: ANN401
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected an object, got {type(content).__name__}")
    return content


def _shard_lengths(info: Mapping[str, Any], split: str, folder: Path) -> list[int]:
    """Return how many records each shard should have."""
    splits = {str(entry.get("name")): entry for entry in info.get("splits", [])}
    if split not in splits:
        raise ConfigError(f"{folder} has no split {split!r}; give --split {'|'.join(splits)}")
    try:
        return [int(length) for length in splits[split].get("shardLengths", [])]
    except (TypeError, ValueError) as error:
        raise DataError(f"{folder / INFO}: shardLengths are no numbers: {error}") from error


def _shapes(node: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return name -> (kind, shape of one step) of every feature in features.json."""
    if "featuresDict" in node:
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, child in node["featuresDict"].get("features", {}).items():
            found.update(_shapes(child, f"{prefix}/{name}" if prefix else str(name)))
        return found
    if "sequence" in node:
        return _shapes(node["sequence"].get("feature", {}), prefix)
    for kind in ("image", "tensor", "text"):
        if kind in node:
            dimensions = (node[kind].get("shape") or {}).get("dimensions", [])
            return {prefix: (kind, tuple(int(d) for d in dimensions))}
    return {}


def _instruction(features: Mapping[str, Feature], name: str) -> str:
    for key in ("steps/language_instruction", "episode_metadata/language_instruction"):
        texts = features.get(key)
        if isinstance(texts, list):
            words = {text.decode("utf-8", "replace").strip() for text in texts}
            if len(words) > 1:
                raise DataError(f"{name} holds several instructions: {sorted(words)}; split it")
            return words.pop()
    raise DataError(f"{name} has no language_instruction; give --instruction")


def _verdict(features: Mapping[str, Feature]) -> bool | None:
    rewards = features.get("steps/reward")
    if rewards is None or isinstance(rewards, list) or not len(rewards):
        return None
    return bool(rewards.max() > 0)


def _origin(features: Mapping[str, Feature]) -> dict[str, str]:
    path = features.get("episode_metadata/file_path")
    return {"file_path": path[0].decode("utf-8", "replace")} if isinstance(path, list) else {}
