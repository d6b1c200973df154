"""Where the shipped files (config/, launch/, weights/) are: in a checkout or in an installation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from heisd_ros.errors import ConfigError

PACKAGE = "heisd_ros"
MARKER = Path("config") / "heisd.yaml"
"""A folder that holds this file is the one we look for."""


def share_dir(module_file: str | Path = __file__) -> Path:
    """Return the folder that holds config/, launch/ and weights/.

    A checkout wins over an installation, as its modules do. An installation by pip or colcon has
    the folder at `<prefix>/share/heisd_ros`.

    Args:
        module_file: A module of this package; where the search starts.

    Raises:
        ConfigError: If there is no such folder.
    """
    for folder in _candidates(Path(module_file)):
        if (folder / MARKER).is_file():
            return folder
    raise ConfigError(
        f"no folder with {MARKER} beside {module_file} or under share/{PACKAGE}; "
        "install the package again (pip install .)"
    )


def config_file(name: str = "heisd.yaml") -> Path:
    """Return the path of a shipped configuration, e.g. `embodiments/libero_panda.yaml`."""
    path = share_dir() / "config" / name
    if not path.is_file():
        known = sorted(str(p.relative_to(share_dir() / "config")) for p in path.parent.glob("*"))
        raise ConfigError(f"no shipped configuration {name!r}; beside it are: {', '.join(known)}")
    return path


def weights_dir() -> Path:
    """Return the folder of the shipped checkpoint and store; it may be absent."""
    return share_dir() / "weights"


def _candidates(module_file: Path) -> Iterator[Path]:
    # A symlinked installation is looked at from both ends of the link.
    for path in (module_file.absolute(), module_file.resolve()):
        checkout = path.parent.parent
        if (checkout / "package.xml").is_file():
            yield checkout
        for prefix in path.parents:
            yield prefix / "share" / PACKAGE
    yield Path(sys.prefix) / "share" / PACKAGE
