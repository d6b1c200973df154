"""Message packages that not everybody has: imported when they are needed, with a clear error."""

from __future__ import annotations

import importlib
from typing import Any

from heisd_ros.errors import MissingDependencyError


def load_interface(name: str, needed_for: str) -> Any:  # noqa: ANN401  (a generated class)
    """Return the generated class of an interface.

    Args:
        name: `package/msg/Type`, `package/srv/Type` or `package/action/Type`.
        needed_for: What it is needed for; part of the error.

    Raises:
        MissingDependencyError: If the package is not installed or does not have the type.
    """
    package, kind, type_name = name.split("/")
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), type_name)
    except (ImportError, AttributeError) as error:
        wheel = package.replace("_", "-")
        raise MissingDependencyError(
            f"{name} is needed for {needed_for} and cannot be imported ({error}): install "
            f"ros-<distribution>-{wheel} with apt, source its setup file, and try again"
        ) from error
