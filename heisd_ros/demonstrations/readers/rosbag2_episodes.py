"""Demonstrations out of bags: what was seen, and what was commanded then."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from heisd_ros.command.command import to_action_values
from heisd_ros.config import CommandConfig
from heisd_ros.demonstrations.episode import STATE_DIM, Episode
from heisd_ros.demonstrations.readers.rosbag2 import BagReader, BagSettings
from heisd_ros.errors import DataError
from heisd_ros.types import EndEffectorCommand, FloatArray, Observation

HALF = 0.5
"""A finger opening above it is open."""
UNCOMMANDED = "pictures after which nothing was commanded"


def read_episodes(
    path: str | Path,
    command: CommandConfig,
    settings: BagSettings | None = None,
    *,
    instruction: str = "",
    success: bool = True,
    dropped: Counter[str] | None = None,
) -> Iterator[Episode]:
    """Yield the demonstrations of a bag.

    A status that says `done` ends an episode. The action of a step is the recorded decision, or
    what the first twist within a control period after the picture makes of one control period.
    Steps without an action are left out.

    Args:
        path: The bag.
        command: Rate and scales that turn a velocity into an action.
        settings: How to read the bag.
        instruction: The task in words; empty takes what was recorded.
        success: Verdict for a bag that holds none: only solved tasks are demonstrations.
        dropped: What was not used is added, `reason` -> count; complete at the end.

    Raises:
        DataError: If the bag cannot be read, or nothing in it was commanded.
    """
    with BagReader(path, settings) as bag:
        actions = _Actions(bag, command)
        ends = [status for status in bag.statuses if status.done]
        steps: list[tuple[Observation, FloatArray]] = []
        found = 0
        unused: Counter[str] = Counter() if dropped is None else dropped
        period_s = 1.0 / command.control_hz
        for observation in bag.observations(instruction=instruction, period_s=period_s):
            while ends and ends[0].stamp_ns < observation.stamp_ns:
                end = ends.pop(0)
                if steps:
                    found += 1
                    yield _episode(steps, command, bag, end.success)
                steps = []
            action = actions.at(observation)
            if action is None:
                unused[UNCOMMANDED] += 1
            else:
                steps.append((observation, action))
        if steps:
            found += 1
            yield _episode(steps, command, bag, ends[0].success if ends else success)
        unused.update(bag.skipped())
    if not found:
        raise DataError(
            f"bag {path} holds no demonstration: no decision and no twist follows a picture; name "
            "the command's topic in the mapping (twist: ...)"
        )


class _Actions:
    """Finds what was commanded from a picture."""

    def __init__(self, bag: BagReader, command: CommandConfig) -> None:
        self._decided = {d.image_ns: d.action for d in bag.decisions if d.decided}
        self._by_decision = bool(bag.decisions)
        self._twists = bag.twists
        self._stamps = np.array([stamp for stamp, _ in bag.twists], dtype=np.int64)
        self._bag, self._command = bag, command

    def at(self, observation: Observation) -> FloatArray | None:
        """Return the action (7,) of this observation, None if nothing was commanded."""
        if self._by_decision:
            return self._decided.get(observation.stamp_ns)
        place = int(np.searchsorted(self._stamps, observation.stamp_ns))
        period_ns = round(1e9 / self._command.control_hz)
        if place == len(self._stamps) or self._stamps[place] - observation.stamp_ns > period_ns:
            return None
        twist = self._twists[place][1]
        gripper = self._wanted_opening(observation.stamp_ns + period_ns)
        velocity = EndEffectorCommand(twist[:3], twist[3:], gripper, self._command.frame_id, 0)
        return to_action_values(
            velocity,
            self._command.control_hz,
            translation_scale=self._command.translation_scale,
            rotation_scale=self._command.rotation_scale,
        )

    def _wanted_opening(self, later_ns: int) -> float:
        """Return 1 or 0: where the fingers are a period later is where they were sent."""
        state = self._bag.state_at(later_ns)
        if state is None or math.isnan(state.gripper_opening):
            return 1.0
        return float(state.gripper_opening > HALF)


def _episode(
    steps: Sequence[tuple[Observation, FloatArray]],
    command: CommandConfig,
    bag: BagReader,
    success: bool,
) -> Episode:
    first = steps[0][0]
    shapes = {frame.image.shape for observation, _ in steps for frame in observation.frames}
    if len(shapes) > 1:
        raise DataError(
            f"bag {bag.path}: pictures must all have one size, got {sorted(shapes)}; resize the "
            "cameras to the model's input before recording"
        )
    status = next((s for s in bag.statuses if s.done), None)
    return Episode(
        images=np.stack([[f.image for f in observation.frames] for observation, _ in steps]),
        actions=np.array([action for _, action in steps], dtype=np.float32),
        state=np.array([_state(o, command) for o, _ in steps], dtype=np.float32),
        instruction=first.instruction,
        cameras=tuple(frame.camera for frame in first.frames),
        control_hz=command.control_hz,
        suite=status.suite if status else "",
        task=status.task if status else -1,
        success=success,
        source={"format": "rosbag2", "path": str(bag.path)},
    )


def _state(observation: Observation, command: CommandConfig) -> FloatArray:
    state = observation.proprioception
    if state is None:
        return np.full(STATE_DIM, math.nan)
    gap = state.gripper_opening * command.gripper_max_m
    return np.array([*state.position, *state.orientation, gap], dtype=np.float64)
