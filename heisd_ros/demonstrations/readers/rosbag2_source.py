"""Bags as a source of demonstrations: one piece per bag, split at the recorded episode ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heisd_ros.config import make_config
from heisd_ros.demonstrations.bag_files import METADATA, STORAGES
from heisd_ros.demonstrations.readers.rosbag2 import BagSettings
from heisd_ros.demonstrations.readers.rosbag2_episodes import read_episodes
from heisd_ros.demonstrations.source import Piece, RawEpisode, SourceOptions
from heisd_ros.errors import DataError


class Rosbag2:
    """A set of rosbag2 recordings."""

    def __init__(self, paths: Sequence[Path], options: SourceOptions) -> None:
        """Find the bags.

        Args:
            paths: Bags, or folders of bags.
            options: Configuration of the robot (`command`, `perception`, `ros`), topic mapping,
                instruction.

        Raises:
            DataError: If a path holds no bag.
            ConfigError: If the configuration is wrong.
        """
        config = make_config(dict(options.config))
        self._command = config.command
        self._settings = BagSettings(
            cameras=config.perception.cameras,
            finger_joints=config.ros.finger_joints,
            gripper_max_m=config.command.gripper_max_m,
            pairing_tolerance_s=config.perception.pairing_tolerance_s,
            oldest_state_s=config.command.image_timeout_s,
            mapping=options.mapping,
            salvage=True,
        )
        self._instruction = options.instruction
        self._bags = [bag for path in paths for bag in find_bags(path)]
        self.lost: Counter[str] = Counter()
        # The reader pairs by time and makes pose deltas with 1 = open of what was commanded.
        self.settled: Mapping[str, Any] = {
            "observation": "before",
            "action": "twist",
            "gripper": "open_is_one",
            "control_hz": config.command.control_hz,
            "translation_scale": config.command.translation_scale,
            "rotation_scale": config.command.rotation_scale,
            "state": "quaternion_gap",
        }

    def pieces(self) -> list[Piece]:
        """Return one piece per bag, named by its path."""
        return [Piece(str(bag), bag) for bag in self._bags]

    def read(self, piece: Piece) -> Iterator[RawEpisode]:
        """Yield the bag's episodes."""
        episodes = read_episodes(
            piece.path,
            self._command,
            self._settings,
            instruction=self._instruction,
            dropped=self.lost,
        )
        for number, episode in enumerate(episodes):
            views = {camera: episode.images[:, v] for v, camera in enumerate(episode.cameras)}
            yield RawEpisode(
                name=f"{piece.path.name}:{number}",
                images=views,
                actions=episode.actions.astype(np.float64),
                state=episode.state,
                instruction=episode.instruction,
                success=episode.success,
                suite=episode.suite,
                task=episode.task,
                in_model_units=True,
                facts=episode.source,
            )

    def close(self) -> None:
        """Nothing is kept open."""


def find_bags(path: Path) -> list[Path]:
    """Return the bags at or below a path: files, and folders with metadata or storage files.

    Raises:
        DataError: If there is none.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; give a bag or a folder of bags")
    if path.is_file() or _is_bag(path):
        return [path]
    found = sorted(folder for folder in path.rglob("*") if folder.is_dir() and _is_bag(folder))
    if not found:
        raise DataError(f"{path} holds no bag: no {METADATA} and no file ending in {STORAGES}")
    return found


def _is_bag(folder: Path) -> bool:
    return any(
        entry.name == METADATA or any(suffix in STORAGES for suffix in entry.suffixes)
        for entry in folder.iterdir()
    )
