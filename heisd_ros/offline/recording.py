"""A policy that is watched: it acts as it would, and every step leaves a `StepRecord`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heisd_ros.decode.pilot import Policy
from heisd_ros.decode.stopwatch import Stopwatch
from heisd_ros.offline.records import StepRecord
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Action, DecodeResult, Observation

NO_ACTION = Action(np.zeros(0, dtype=np.int64), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Shadow:
    """A second policy that answers every observation and never moves the arm.

    Attributes:
        policy: Usually plain autoregression.
        encoder: Encodes the frames once for both policies.
    """

    policy: Policy
    encoder: VisionEncoder


class RecordingPolicy:
    """Passes everything on to a policy and keeps what came back."""

    def __init__(
        self, policy: Policy, shadow: Shadow | None = None, *, clock: Callable[[], float]
    ) -> None:
        """Watch a policy.

        Args:
            policy: The one whose actions are executed.
            shadow: Asked about the same observations; its time is not charged to the policy.
            clock: Returns seconds, never goes back.
        """
        self._policy = policy
        self._shadow = shadow
        self._clock = clock
        self.rows: list[StepRecord] = []

    def reset(self, instruction: str) -> None:
        """Start an episode; the rows of the last one are forgotten."""
        self.rows = []
        self._policy.reset(instruction)
        if self._shadow:
            self._shadow.policy.reset(instruction)

    def act(self, observation: Observation) -> DecodeResult:
        """Return the policy's action."""
        if self._shadow is None:
            result, other = self._policy.act(observation), NO_ACTION
        else:
            result, other = self._act_with_shadow(observation, self._shadow)
        pose = observation.proprioception
        position = np.full(3, np.nan) if pose is None else pose.position
        action = result.action
        self.rows.append(
            StepRecord(
                result.report,
                action.tokens,
                action.values,
                position,
                result.metric,
                other.tokens,
                other.values,
            )
        )
        return result

    def end_episode(self, success: bool) -> None:
        """Close the episode."""
        self._policy.end_episode(success)
        if self._shadow:
            self._shadow.policy.end_episode(success)

    def _act_with_shadow(
        self, observation: Observation, shadow: Shadow
    ) -> tuple[DecodeResult, Action]:
        watch = Stopwatch(self._clock)
        features = shadow.encoder.encode(observation.frames)
        watch.lap("vision")
        vision_ms = watch.stage_ms()["vision"]
        seen = dataclasses.replace(observation, features=features)
        result = self._policy.act(seen)
        stages = dict(result.report.stage_ms)
        for stage in ("vision", "total"):
            stages[stage] = stages.get(stage, 0.0) + vision_ms
        report = dataclasses.replace(result.report, stage_ms=stages)
        answer = shadow.policy.act(seen)
        return dataclasses.replace(result, report=report), answer.action
