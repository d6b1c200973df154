"""The policy: observation in, action out. Nodes, bag replay and simulation call this one object."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from heisd_ros.decode.decoder import HybridDecoder, StepRequest
from heisd_ros.decode.stopwatch import Stopwatch
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.errors import DataError
from heisd_ros.protocols import VisionEncoder
from heisd_ros.trajectory.metric import TrajectoryMeter
from heisd_ros.types import (
    ACTION_DIM,
    DecodeResult,
    DraftRequest,
    Float32Array,
    IntArray,
    Observation,
    Proprioception,
    TrajectoryMetric,
    VisualFeatures,
)

NO_METRIC = TrajectoryMetric(
    curvature_radius=0.0,
    displacement=0.0,
    fused=float("nan"),
    straightness=0.0,
    speed=0.0,
    samples=0,
)
"""The metric of a step without a measured pose: it selects autoregression."""


class HeisdPolicy:
    """Keeps one episode's instruction, trajectory and history around the decode loop."""

    def __init__(
        self,
        decoder: HybridDecoder,
        encoder: VisionEncoder | None,
        meter: TrajectoryMeter,
        *,
        gripper_max_m: float,
        clock: Callable[[], float],
    ) -> None:
        """Join decoder, encoder and meter.

        Args:
            decoder: The decode loop of one method.
            encoder: Needed only for observations that come without features.
            meter: Needed only for observations that come without a metric.
            gripper_max_m: Finger gap of an open gripper, metres: the target's state is in metres.
            clock: Returns seconds, never goes back.
        """
        self.decoder = decoder
        self._encoder = encoder
        self._meter = meter
        self._gripper_max_m = gripper_max_m
        self._clock = clock
        self._instruction: str | None = None
        self._prompt: IntArray = np.zeros(0, dtype=np.int64)
        self._history: list[IntArray] = []

    @property
    def instruction(self) -> str | None:
        """The instruction of the current episode, None before the first."""
        return self._instruction

    def reset(self, instruction: str) -> None:
        """Start an episode: everything known about the last one is forgotten.

        Raises:
            DataError: If the instruction is empty.
        """
        if not instruction.strip():
            raise DataError("the instruction is empty; publish what the arm shall do")
        self._prompt = self.decoder.target.prompt(instruction)
        self._instruction = instruction
        self._history.clear()
        self._meter.reset()
        self.decoder.reset()

    def act(self, observation: Observation) -> DecodeResult:
        """Decode the next action; a new instruction starts a new episode.

        Raises:
            DataError: If frames, pose or features are missing or malformed.
            ModelError: If the target cannot answer.
        """
        watch = Stopwatch(self._clock)
        if observation.instruction != self._instruction:
            self.reset(observation.instruction)
        features = self._features(observation)
        watch.lap("vision")
        pose = observation.proprioception
        request = DraftRequest(
            features=features,
            metric=self._metric(observation),
            task=normalise_task(observation.instruction),
            history=self._past(),
            position=None if pose is None else pose.position,
            force=observation.force,
        )
        state = self._state(pose)
        result = self.decoder.step(StepRequest(request, self._prompt, state))
        self._history.append(result.action.tokens)
        stages = {**watch.stage_ms(), **result.report.stage_ms}
        stages["total"] = watch.stage_ms()["total"]
        return dataclasses.replace(
            result, report=dataclasses.replace(result.report, stage_ms=stages)
        )

    def end_episode(self, success: bool) -> None:
        """Close the episode; the next `act` starts a new one."""
        self.decoder.end_episode(success)
        self._instruction = None

    def _features(self, observation: Observation) -> VisualFeatures:
        if observation.features is not None:
            return observation.features
        if self._encoder is None:
            raise DataError("observation without features: give frames and an encoder, or features")
        return self._encoder.encode(observation.frames)

    def _metric(self, observation: Observation) -> TrajectoryMetric:
        if observation.metric is not None:
            return observation.metric
        pose = observation.proprioception
        if pose is None:
            return NO_METRIC
        return self._meter.update(pose.position, pose.stamp_ns, pose.frame_id)

    def _past(self) -> IntArray:
        if not self._history:
            return np.zeros((0, ACTION_DIM), dtype=np.int64)
        return np.stack(self._history)

    def _state(self, proprioception: Proprioception | None) -> Float32Array | None:
        """Return (x, y, z, finger gap) in metres if the target takes a state."""
        if not self.decoder.target.info.state_size:
            return None
        if proprioception is None or not np.all(np.isfinite(proprioception.position)):
            raise DataError("the model needs the measured end-effector pose and gripper opening")
        gap = proprioception.gripper_opening * self._gripper_max_m
        return np.array([*proprioception.position, gap], dtype=np.float32)
