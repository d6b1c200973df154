"""control_msgs and moveit_msgs for tests: the real packages, or stand-ins built by a command."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys

import pytest

from heisd_ros.share import share_dir

PREFIX = share_dir() / "build" / "interfaces"
COMMAND = "python test/interfaces/build.py"


def need(package):
    """Make a package importable, here and in processes started from here, or skip the test."""
    if importlib.util.find_spec(package) is not None:
        return
    if not (PREFIX / "python" / package).is_dir():
        pytest.skip(f"needs {package}: source a ROS that has it, or run `{COMMAND}`")
    sys.path.append(str(PREFIX / "python"))
    for name, folder in (("PYTHONPATH", "python"), ("LD_LIBRARY_PATH", "lib")):
        parts = [os.environ.get(name), str(PREFIX / folder)]
        os.environ[name] = os.pathsep.join(part for part in parts if part)
    # This process looked at LD_LIBRARY_PATH when it began: later loads by name find what is loaded.
    for library in sorted((PREFIX / "lib").glob("*.so")):
        ctypes.CDLL(str(library))
