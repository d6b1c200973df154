"""Compiles control_msgs and moveit_msgs stand-ins for the tests; pip has neither package.

`python test/interfaces/build.py` makes build/interfaces. The types have the names and fields of
the real ones, so they speak to real servers; comments, other types and code are not here. Tests
that need them are skipped until they are built, and use the real packages where those exist.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent
PREFIX = ROOT / "build" / "interfaces"
TOOLS = ROOT / "build" / "interface_tools"
PACKAGES = ("control_msgs", "moveit_msgs")


def make_tools() -> Path:
    """Return a virtual environment with what compiles message packages."""
    if not (TOOLS / "bin" / "cmake").exists():
        venv.create(TOOLS, with_pip=True)
        table = (ROOT / "pyproject.toml").read_text().split("requires = [")[1].split("]")[0]
        names = [*re.findall(r'"([^"]+)"', table), "ros-jazzy-sensor-msgs"]
        subprocess.run([TOOLS / "bin" / "pip", "install", "-q", *names], check=True)
    return TOOLS


def build(tools: Path, prefix: Path) -> None:
    """Compile all packages into a prefix."""
    environment = {
        **os.environ,
        "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CMAKE_PREFIX_PATH": str(tools),
        "AMENT_PREFIX_PATH": str(tools),
    }
    # Another environment's python must find its own libraries.
    for name in ("_ROS_WHEELS_BOOTSTRAP_COMPLETE", "LD_LIBRARY_PATH", "PYTHONPATH"):
        environment.pop(name, None)
    for package in PACKAGES:
        folder = prefix / "work" / package
        configure = [
            *("-G", "Ninja", "-S", SOURCES / package, "-B", folder),
            f"-DPython3_EXECUTABLE={tools / 'bin' / 'python'}",
            f"-DCMAKE_INSTALL_PREFIX={prefix}",
            f"-DCMAKE_INSTALL_RPATH={prefix / 'lib'}",
            "-DPYTHON_INSTALL_DIR=python",
            "-DBUILD_TESTING=OFF",
        ]
        for arguments in (configure, ["--build", folder], ["--install", folder]):
            subprocess.run(
                [tools / "bin" / "cmake", *map(str, arguments)], check=True, env=environment
            )


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else make_tools(), PREFIX)
