"""One ROS domain: nodes in processes of their own, and a robot here that records all outputs."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import yaml
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from ros.robot import Robot, speed_of
from ros_fakes import wait_until
from sensor_msgs.msg import Image
from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger

from heisd_ros.nodes import qos
from heisd_ros.nodes.conversions import frame_to_image
from heisd_ros.nodes.runtime import NodeThread, ros_context
from heisd_ros.types import Frame

TESTS = Path(__file__).resolve().parents[2] / "test"
SERVE = Path(__file__).with_name("serve.py")
CAMERAS = ("third_person", "wrist")
DOMAINS = itertools.cycle(range(1, 101))
START_S = 180.0
"""Longest wait for a process to come up, on a machine that does other things."""
PATIENCE_S = 180.0
AGAIN_S = 5.0
LIFETIME_S = 0.3
IMAGE_TIMEOUT_S = 0.5
PARAMETERS = {
    "arming.start": "armed",
    "command.lifetime_s": LIFETIME_S,
    "command.image_timeout_s": IMAGE_TIMEOUT_S,
    "retrieval.store": "none",
}


class NoAnswerError(RuntimeError):
    """Something that had to happen did not, within a generous time."""


class Operator(Robot):
    """A robot and a person: pictures, state, instruction, stops; records all outputs."""

    def __init__(self, context: Any, *, cameras: bool, size: tuple[int, int], **options: Any):
        super().__init__(context, **options)
        self._image = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
        self.shown = 0.0
        self.quiet: set[str] = set()
        self._clients_by_name: dict[str, Any] = {}
        self._said = ""
        self._ends: list[Callable[[], None]] = []
        self._estop = self.create_publisher(Bool, "estop", qos.LATCHED)
        if cameras:
            del self.inputs["embedding"]
            for camera in CAMERAS:
                self.inputs[camera] = self.create_publisher(Image, f"{camera}/image", qos.SENSOR)

    def publish_picture(self, stamp_ns: int | None = None) -> None:
        """Show one moment, as features or as pictures of the cameras that are not quiet."""
        self.shown = time.monotonic()
        if "embedding" in self.inputs:
            super().publish_picture(stamp_ns)
            return
        stamp_ns = self.time_ns() if stamp_ns is None else stamp_ns
        self.publish_pose(stamp_ns)
        for camera in CAMERAS:
            if camera not in self.quiet:
                frame = Frame(self._image, camera, stamp_ns)
                self.inputs[camera].publish(frame_to_image(frame, camera))

    def order(self, **orders: Any) -> float:
        """Publish an instruction for the scripted model; return when."""
        self._said = json.dumps(orders)
        return self.say_again()

    def say_again(self) -> float:
        """Publish the last instruction once more; it changes nothing if it was heard."""
        at = time.monotonic()
        self.inputs["instruction"].publish(String(data=self._said))
        return at

    def press(self, pressed: bool) -> float:
        """Press or release the emergency stop; return when."""
        at = time.monotonic()
        self._estop.publish(Bool(data=pressed))
        return at

    def ask(self, name: str, kind: Any = Trigger, **fields: Any) -> Any:
        """Call a service and return its answer."""
        client = self.client(name, kind)
        answer = client.call_async(kind.Request(**fields))
        need(wait_until(answer.done, START_S), f"answer of {name}")
        return answer.result()

    def client(self, name: str, kind: Any = Trigger) -> Any:
        """Return the client of a service that is there."""
        if name not in self._clients_by_name:
            self._clients_by_name[name] = self.create_client(kind, name)
        client = self._clients_by_name[name]
        need(client.wait_for_service(START_S), f"service {name}")
        return client

    def stream(self, hz: float) -> Callable[[], None]:
        """Show pictures at a rate until the returned function is called, or `close`."""
        self._ends.append(super().stream(hz))
        return self._ends[-1]

    def close(self) -> None:
        """End all streams."""
        while self._ends:
            self._ends.pop()()

    def change(self, node: str, label: str) -> bool:
        """Ask a managed node for a transition; return whether it was made."""
        wanted = Transition(label=label)
        return bool(self.ask(f"{node}/change_state", ChangeState, transition=wanted).success)

    def state(self, node: str) -> str:
        """Return the lifecycle state of a node."""
        return str(self.ask(f"{node}/get_state", GetState).current_state.label)

    def wait_telling(self, happened: Callable[[], object], what: str) -> None:
        """Wait for something that follows from the instruction, and repeat that meanwhile."""
        for _ in range(round(START_S / AGAIN_S)):
            if wait_until(happened, AGAIN_S):
                return
            self.say_again()  # a node that was not found yet has missed it
        need(bool(happened()), what)

    def wait_for_motion(self, since: float) -> float:
        """Return when the first twist other than zero came."""
        self.wait_telling(lambda: self.moving(since), "motion")
        return self.moving(since)[0]

    def wait_for_zero(self, since: float) -> float:
        """Return when the first zero twist came."""
        need(wait_until(lambda: self.zeros(since), START_S), "a zero command")
        return self.zeros(since)[0]

    def now(self) -> float:
        """Return the time of this robot's records, s."""
        return time.monotonic()

    def last_speed(self) -> float:
        """Return the linear speed of the last twist, m/s."""
        return speed_of(self.twists[-1][2])


class World:
    """Processes and operator of one experiment; all are ended with the `with` block."""

    def __init__(
        self,
        logs: Path,
        *,
        cameras: bool = False,
        size: tuple[int, int] = (64, 64),
        time_ns: Callable[[], int] = time.time_ns,
        **parameters: Any,
    ) -> None:
        """Open a domain.

        Args:
            logs: Folder of the log files and of the parameter file.
            cameras: The operator publishes pictures instead of features.
            size: Height and width of the pictures.
            time_ns: Time of the operator's stamps.
            parameters: `section__field` of the configuration, on top of `PARAMETERS`.
        """
        logs.mkdir(parents=True, exist_ok=True)
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        self._logs, self._options = logs, {"cameras": cameras, "size": size, "time_ns": time_ns}
        self.domain = (os.getpid() + next(DOMAINS)) % 100 + 1
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.parameters = logs / "parameters.yaml"
        given = {name.replace("__", ".", 1): value for name, value in parameters.items()}
        self.parameters.write_text(yaml.safe_dump(_tree({**PARAMETERS, **given})))

    def __enter__(self) -> World:
        """Start the operator."""
        self._context = ros_context([], domain_id=self.domain)
        self.operator = Operator(self._context.__enter__(), **self._options)
        self._thread = NodeThread(self.operator)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything."""
        self.operator.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        while not self._thread.stop():  # on a busy machine a callback may last
            pause(0.1)
        self.operator.destroy_node()
        self._context.__exit__(None, None, None)

    def start(self, node: str, *arguments: str, load_s: float = 0.0) -> subprocess.Popen[bytes]:
        """Start a node with the scripted model; `arguments` are of ROS, e.g. `-p`, `a.b:=1`."""
        command = [sys.executable, str(SERVE), node, "--load-s", str(load_s), "--ros-args"]
        return self.run(node, [*command, "--params-file", str(self.parameters), *arguments])

    def run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a command in this domain; its output goes to `<name>.log`."""
        environment = {
            **os.environ,
            "ROS_DOMAIN_ID": str(self.domain),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }
        with self.log_path(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        return self.processes[name]

    def start_all(self, *nodes: str) -> None:
        """Start nodes and wait until operator and nodes hear each other."""
        for node in nodes:
            self.start(node)
        self.find_peers()

    def find_peers(self) -> None:
        """Wait until operator and nodes hear each other."""
        robot = self.operator
        found = wait_until(
            lambda: (
                all(p.get_subscription_count() for p in robot.inputs.values())
                and all(s.get_publisher_count() for s in robot.outputs)
            ),
            START_S,
        )
        need(found, f"nodes that hear us; {self.exit_codes()}")

    def kill(self, name: str) -> float:
        """Kill a process without warning; return when."""
        at = time.monotonic()
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()
        return at

    def log_path(self, name: str) -> Path:
        """Return the log file of a process."""
        return self._logs / f"{name}.log"

    def log(self, name: str) -> str:
        """Return what a process has said so far."""
        return self.log_path(name).read_text(errors="replace")

    def exit_codes(self) -> dict[str, int | None]:
        """Return the exit code of each process, None for those that run."""
        return {name: process.poll() for name, process in self.processes.items()}

    def deaths(self) -> int:
        """Return how many processes have ended."""
        return sum(code is not None for code in self.exit_codes().values())


def need(happened: bool, what: str) -> None:
    """Refuse to go on without something.

    Raises:
        NoAnswerError: If it did not happen.
    """
    if not happened:
        raise NoAnswerError(f"waited in vain for {what}")


def pause(seconds: float) -> None:
    """Let time pass."""
    time.sleep(seconds)


def _tree(values: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in values.items():
        section, _, field = name.partition(".")
        if field:
            tree.setdefault(section, {})[field] = value
        else:
            tree[section] = value
    return {"/**": {"ros__parameters": tree}}
