"""Stand-ins for camera, encoder, policy and environment, with answers known by hand."""

from __future__ import annotations

import threading
import time

import numpy as np

from heisd_ros.protocols import EnvironmentStep
from heisd_ros.types import (
    Action,
    DecodeReport,
    DecodeResult,
    DraftKind,
    Frame,
    Observation,
    Proprioception,
    VisualFeatures,
)

TOKENS = np.arange(31744, 31751, dtype=np.int64)


def result_of(values, reason=""):
    """Return a decode result that commands these seven values."""
    report = DecodeReport(DraftKind.AR, False, 1, 7, {"total": 1.5}, reason=reason)
    return DecodeResult(Action(TOKENS, np.asarray(values, dtype=np.float64)), report)


class FakeEncoder:
    """Features that carry the first pixel of every frame."""

    def __init__(self):
        self.calls = 0

    def encode(self, frames):
        self.calls += 1
        patches = np.zeros((len(frames), 2, 3), dtype=np.float32)
        for view, frame in enumerate(frames):
            patches[view, 0] = frame.image[0, 0]
        embedding = np.zeros(8, dtype=np.float32)
        embedding[0] = 1.0
        return VisualFeatures(patches, embedding, min(frame.stamp_ns for frame in frames))


class ScriptedPolicy:
    """Calls `script(observation, n)` for the n-th action; records everything it is told."""

    def __init__(self, script):
        self._script = script
        self.observations = []
        self.ended = []
        self.resets = []

    def reset(self, instruction):
        self.resets.append(instruction)

    def act(self, observation):
        self.observations.append(observation)
        return self._script(observation, len(self.observations) - 1)

    def end_episode(self, success):
        self.ended.append(success)


def constant(values):
    """Return a script that always commands the same."""
    return lambda observation, n: result_of(values)


class LineEnvironment:
    """A point that moves along x as commanded; solved at x >= goal. 20 control steps per second."""

    control_hz = 20.0
    instruction = "go right"

    def __init__(self, goal=0.1):
        self.goal = goal
        self.commands = []
        self.seeds = []
        self.closed = False
        self._x = 0.0
        self._step = 0

    def reset(self, seed):
        self.seeds.append(seed)
        self._x, self._step = 0.0, 0
        return self._observe()

    def step(self, command):
        self.commands.append(command)
        self._x += float(command.linear[0]) / self.control_hz
        self._step += 1
        return EnvironmentStep(self._observe(), self._x >= self.goal - 1e-9)

    def close(self):
        self.closed = True

    def _observe(self):
        image = np.full((8, 8, 3), self._step % 256, dtype=np.uint8)
        frames = tuple(Frame(image, camera, 0) for camera in ("third_person", "wrist"))
        state = Proprioception(
            np.array([self._x, 0.0, 0.5]), np.array([0.0, 0.0, 0.0, 1.0]), 0.5, 0, "base"
        )
        return Observation(frames, state, self.instruction)


def wait_until(condition, timeout_s=10.0):
    """Wait for a condition with a budget; return whether it came true."""
    deadline = time.monotonic() + timeout_s
    waiter = threading.Event()
    while time.monotonic() < deadline:
        if condition():
            return True
        waiter.wait(0.005)
    return bool(condition())
