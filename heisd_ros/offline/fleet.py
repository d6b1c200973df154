"""The nodes of a run as processes: started, watched, and stopped without a remainder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from heisd_ros.closing import Closing
from heisd_ros.errors import HeisdError

STOP_S = 8.0
"""A node ends within two seconds of SIGINT; on a busy machine it takes longer."""
TAIL_LINES = 12
BOOT = "import sys; from heisd_ros.nodes.{name} import main; sys.exit(main())"


class NodeFailedError(HeisdError, RuntimeError):
    """A node ended before its time; the message carries its last words."""


class Fleet(Closing):
    """Child processes with one log file each; leaving the `with` block ends all of them."""

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        """Prepare.

        Args:
            logs: Folder of the log files, made if needed.
            environment: Variables on top of this process's.
        """
        self._logs = logs
        self._logs.mkdir(parents=True, exist_ok=True)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_node(self, name: str, arguments: Sequence[str]) -> None:
        """Start `heisd_ros.nodes.<name>` with these ROS arguments."""
        command = [sys.executable, "-c", BOOT.format(name=name), "--ros-args", *arguments]
        self.start(name, command)

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a command in a session of its own: Ctrl-C reaches it through us alone."""
        with self.log_path(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                list(command),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )

    def log_path(self, name: str) -> Path:
        """Return the log file of a process."""
        return self._logs / f"{name}.log"

    def log(self, name: str) -> str:
        """Return what a process has said so far."""
        return self.log_path(name).read_text(encoding="utf-8", errors="replace")

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a process, None while it runs."""
        return self._processes[name].poll()

    def check_alive(self, names: Sequence[str]) -> None:
        """Refuse to go on without one of these processes.

        Raises:
            NodeFailedError: With exit code and last words.
        """
        for name in names:
            code = self.exit_code(name)
            if code is not None:
                raise NodeFailedError(self.last_words(name, code))

    def last_words(self, name: str, code: int | None) -> str:
        """Return how a process ended and its last lines, for a person."""
        lines = self.log(name).strip().splitlines()[-TAIL_LINES:]
        tail = "\n    ".join(lines) or "(it said nothing)"
        return f"{name} ended with code {code}; log {self.log_path(name)}:\n    {tail}"

    def wait_for(
        self,
        condition: Callable[[], bool],
        *,
        alive: Sequence[str],
        timeout_s: float,
        what: str,
        each_second: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait until a condition holds.

        Args:
            condition: Looked at ten times per second.
            alive: Processes that must not end meanwhile.
            timeout_s: Longest wait, seconds.
            what: What is waited for, for the error message.
            each_second: Called about once per second.

        Raises:
            NodeFailedError: If one of them ends, or the time is up.
        """
        deadline, next_call = time.monotonic() + timeout_s, 0.0
        while not condition():
            self.check_alive(alive)
            now = time.monotonic()
            if now > deadline:
                raise NodeFailedError(f"{what} did not happen within {timeout_s:.0f} s")
            if now >= next_call:
                each_second()
                next_call = now + 1.0
            time.sleep(0.1)

    def close(self) -> None:
        """End all processes: by SIGINT, and what is left after a while by SIGKILL."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + STOP_S
        for process in self._processes.values():
            _end(process, max(0.1, deadline - time.monotonic()))


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
