"""Play one episode with a policy; success, failure and crash are three different endings."""

from __future__ import annotations

import logging
from typing import Protocol

from heisd_ros.command.command import to_command
from heisd_ros.protocols import Environment
from heisd_ros.simulation.libero import FRAME_ID, ROTATION_SCALE, TRANSLATION_SCALE
from heisd_ros.types import DecodeReport, DecodeResult, EpisodeOutcome, Observation

MAX_STEPS = {
    "libero_spatial": 220,
    "libero_object": 280,
    "libero_goal": 300,
    "libero_10": 520,
    "libero_90": 400,
}
"""Control steps after which an episode counts as failed (OpenVLA's evaluation protocol)."""

_log = logging.getLogger(__name__)


class Policy(Protocol):
    """What plays an episode; `decode.policy.HeisdPolicy` is one."""

    def reset(self, instruction: str) -> None:
        """Start an episode."""

    def act(self, observation: Observation) -> DecodeResult:
        """Decide the next action."""

    def end_episode(self, success: bool) -> None:
        """Learn how the episode ended."""


def rollout(
    env: Environment,
    policy: Policy,
    seed: int,
    max_steps: int,
    *,
    translation_scale: float = TRANSLATION_SCALE,
    rotation_scale: float = ROTATION_SCALE,
    frame_id: str = FRAME_ID,
) -> EpisodeOutcome:
    """Play the episode of a seed until the task is solved, the steps are used up, or a crash.

    An exception of the policy or of the simulator ends the episode as a crash: it says nothing
    about the method, and no success rate may count it.

    Args:
        env: The environment.
        policy: The policy.
        seed: Passed to `env.reset`.
        max_steps: Control steps after which the episode has failed.
        translation_scale: Metres per action unit.
        rotation_scale: Radians per action unit.
        frame_id: Frame of the commands.
    """
    reports: list[DecodeReport] = []
    success = False
    crash = ""
    try:
        observation = env.reset(seed)
        policy.reset(env.instruction)
        while len(reports) < max_steps and not success:
            result = policy.act(observation)
            command = to_command(
                result.action,
                env.control_hz,
                frame_id,
                translation_scale=translation_scale,
                rotation_scale=rotation_scale,
                stamp_ns=observation.stamp_ns,
                observed_ns=observation.stamp_ns,
                instruction=env.instruction,
            )
            step = env.step(command)
            observation, success = step.observation, step.success
            reports.append(result.report)
        policy.end_episode(success)
    except Exception as error:  # recorded with its text, never counted as a failure
        _log.exception("episode %d crashed after %d steps", seed, len(reports))
        crash = f"{type(error).__name__}: {error}"
    return EpisodeOutcome(
        task=env.instruction,
        init=seed,
        success=success and not crash,
        steps=len(reports),
        crash=crash,
        reports=tuple(reports),
    )
