"""The formats that demonstrations are read from, by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.demonstrations.source import DemonstrationSource, SourceOptions
from heisd_ros.errors import ConfigError

FORMATS: dict[str, str] = {
    "libero_hdf5": "libero_hdf5.LiberoHdf5",
    "rlds": "rlds.Rlds",
    "lerobot": "lerobot.Lerobot",
    "rosbag2": "rosbag2_source.Rosbag2",
}


def open_source(name: str, paths: Sequence[Path], options: SourceOptions) -> DemonstrationSource:
    """Open a data set; the format's library is imported now, not before.

    Raises:
        ConfigError: If the format is unknown, or an option does not fit the data set.
        DataError: If the data set cannot be read.
        MissingDependencyError: If the format's extra is not installed.
    """
    if name not in FORMATS:
        raise ConfigError(f"source must be one of {', '.join(FORMATS)}; got {name!r}")
    module, _, factory = FORMATS[name].partition(".")
    package = __name__.rpartition(".")[0]
    opened: DemonstrationSource = getattr(importlib.import_module(f"{package}.{module}"), factory)(
        paths, options
    )
    return opened
