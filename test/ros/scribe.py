"""Another process that writes what it received, one JSON object per line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

from heisd_ros.share import share_dir


class Scribe:
    """Runs a script of test/ros and keeps its lines."""

    def __init__(self, script, domain_id, *arguments):
        self.lines = []
        root = share_dir()
        paths = [str(root), str(root / "test"), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, str(root / "test" / "ros" / script), *map(str, arguments)],
            env={
                **os.environ,
                "ROS_DOMAIN_ID": str(domain_id),
                "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def kill(self):
        """End the process without a word, as a crash would."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._thread.join()

    def hang(self):
        """Stop the process where it is; it keeps its connections and says nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def of(self, event):
        """Lines of one kind."""
        return [line for line in list(self.lines) if line["event"] == event]


def write(event, **fields):
    """Write a line; for the scripts."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()
