"""Where a number comes from: date, command, commit, machine, versions. Every table carries it."""

from __future__ import annotations

import datetime
import shlex
import subprocess
from collections.abc import Sequence

from heisd_ros.errors import HeisdError
from heisd_ros.offline.run_facts import machine, versions
from heisd_ros.share import share_dir


def provenance(verb: str, argv: Sequence[str]) -> dict[str, str]:
    """Return date, command, commit, machine and versions as text."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["heisd", verb, *argv]),
        "commit": commit(),
        "machine": machine(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }


def commit() -> str:
    """Return the checkout's short commit, `-dirty` if tracked files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        answer = subprocess.run(
            command, cwd=share_dir(), capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError, HeisdError):
        return "unknown"
    return answer.stdout.strip()
