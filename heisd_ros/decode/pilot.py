"""From an observation to what may be sent: decide, check, hold. Every failure is a zero command."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from heisd_ros.command.debounce import GripperDebounce
from heisd_ros.command.guard import CommandGuard, GuardReason, GuardResult
from heisd_ros.command.hold import CommandHold
from heisd_ros.config import HeisdConfig
from heisd_ros.types import DecodeResult, EndEffectorCommand, Observation

LATE_RESULT = "late_result"
FATAL_TEXTS = ("device-side assert",)
"""After such an error the accelerator is unusable for this process: only a restart helps."""


class Policy(Protocol):
    """What the pilot needs of a policy; `decode.policy.HeisdPolicy` is the implementation."""

    def reset(self, instruction: str) -> None:
        """Start an episode."""

    def act(self, observation: Observation) -> DecodeResult:
        """Decode the next action."""

    def end_episode(self, success: bool) -> None:
        """Close the episode."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one observation.

    Attributes:
        observation: What it was decided from.
        result: The action and its report; None if the policy failed.
        command: What may be sent: the decision, or zero with the gripper kept.
        guard: What the guard changed or refused.
        reason: Why there is no motion, or why the step fell back; empty when all went well.
        moves: True if the command carries the decision.
    """

    observation: Observation
    result: DecodeResult | None
    command: EndEffectorCommand
    guard: tuple[str, ...]
    reason: str
    moves: bool


def with_vision_time(decision: Decision, vision_ms: float) -> Decision:
    """Return the decision with the time of an encoding that happened elsewhere in its report.

    Args:
        decision: Decided from features; its own vision stage is what handing them over took.
        vision_ms: Milliseconds from the pictures to the features.
    """
    if decision.result is None:
        return decision
    report = decision.result.report
    stages = {"vision": 0.0, "total": 0.0, **report.stage_ms}
    stages.update({name: stages[name] + vision_ms for name in ("vision", "total")})
    result = dataclasses.replace(
        decision.result, report=dataclasses.replace(report, stage_ms=stages)
    )
    return dataclasses.replace(decision, result=result)


class Pilot:
    """Owns policy, guard, debounce and hold of one arm.

    `decide` and `end_episode` belong to one deciding thread; all else may be called from anywhere.

    Attributes:
        counts: How often each reason occurred.
        fatal: Text of an error after which the process should be restarted; empty otherwise.
    """

    def __init__(
        self,
        policy: Policy,
        config: HeisdConfig,
        *,
        now_ns: Callable[[], int],
        steady_ns: Callable[[], int],
        pace: float = 1.0,
    ) -> None:
        """Join the parts.

        Args:
            policy: Decides.
            config: Section `command` is used.
            now_ns: The clock of the stamps, nanoseconds.
            steady_ns: A clock that never jumps, nanoseconds: it limits how long a command lives.
            pace: Seconds of the stamps' clock per second of the steady clock.
        """
        command = config.command
        self._policy = policy
        self._config = command
        self._now_ns, self._steady_ns = now_ns, steady_ns
        self._guard = CommandGuard(command)
        self._hold = CommandHold(round(command.lifetime_s / pace * 1e9), frame_id=command.frame_id)
        self._debounce = GripperDebounce(command.gripper_debounce)
        self._lock = threading.Lock()
        self._instruction = ""
        self._stopped = ""
        self._standing: EndEffectorCommand | None = None
        self._failures = 0
        self.counts: Counter[str] = Counter()
        self.fatal = ""

    @property
    def stopped(self) -> str:
        """Why nothing is decided any more; empty while active."""
        return self._stopped

    @property
    def hold_reason(self) -> str:
        """Why zero is being sent; empty while a decision is held."""
        return self._hold.reason

    def instruct(self, instruction: str) -> None:
        """Change the task: motion decided for another one ends at once."""
        with self._lock:
            if instruction != self._instruction:
                self._instruction = instruction
                self._rest("new_instruction")

    def stop(self, reason: str = "stop_requested") -> None:
        """Send zero until `start`, whatever is decided meanwhile."""
        with self._lock:
            self._stopped = reason
            self._rest(reason)

    def start(self) -> None:
        """Let decisions through again."""
        with self._lock:
            self._failures = 0
            self._stopped = ""

    def flush(self, reason: str) -> None:
        """End the held motion; the next decision moves again."""
        with self._lock:
            self._rest(reason)

    def held(self, stamp_ns: int) -> EndEffectorCommand:
        """Return what to send now: the last decision while it lives, else zero."""
        return self._hold.at(self._steady_ns(), stamp_ns=stamp_ns)

    def released(self, decision: Decision, stamp_ns: int) -> EndEffectorCommand:
        """Return what to send right after a decision: its command, unless motion has ended since.

        Its age counts on the clock of the stamps. So simulation in lockstep, where that clock
        stands still, gets every decision, however slow this process is.

        Args:
            decision: The newest one.
            stamp_ns: Time on the clock of the stamps, nanoseconds.
        """
        with self._lock:
            command = self._standing
            if command is not decision.command or not self._is_alive(command, stamp_ns):
                return self.held(stamp_ns)
            return dataclasses.replace(command, stamp_ns=stamp_ns)

    def decide(self, observation: Observation) -> Decision:
        """Let the policy act and check the outcome; never raises because of the policy."""
        try:
            result = self._policy.act(observation)
        except Exception as error:
            return self._failed(observation, error)
        self._failures = 0
        return self._checked(observation, result)

    def end_episode(self, success: bool) -> None:
        """Tell the policy how the episode ended; motion ends."""
        with self._lock:
            self._rest("episode_end")
        self._policy.end_episode(success)
        self._debounce.reset(opening=self._debounce.opening)

    def _checked(self, observation: Observation, result: DecodeResult) -> Decision:
        pose = observation.proprioception
        with self._lock:
            now_ns = self._now_ns()
            if self._stopped:
                verdict = self._guard.refuse(GuardReason.INACTIVE, now_ns)
            else:
                verdict = self._guard.check_action(
                    result.action,
                    now_ns,
                    observed_ns=observation.stamp_ns,
                    decided_for=observation.instruction,
                    instruction=self._instruction,
                    position=None if pose is None else pose.position,
                )
            command = self._release(verdict)
        guard = tuple(reason.value for reason in verdict.reasons)
        reason = result.report.reason
        if GuardReason.STALE_IMAGE in verdict.reasons:
            reason = LATE_RESULT
        elif not verdict.passed:
            reason = guard[0]
        self.counts.update({*guard, reason} - {""})
        return Decision(observation, result, command, guard, reason, verdict.passed)

    def _release(self, verdict: GuardResult) -> EndEffectorCommand:
        if not verdict.passed:
            self._rest(verdict.reasons[0].value)
            return dataclasses.replace(verdict.command, gripper=self._debounce.opening)
        opening = self._debounce.update(verdict.command.gripper)
        command = dataclasses.replace(verdict.command, gripper=opening)
        self._hold.put(command, self._steady_ns())
        self._standing = command
        return command

    def _rest(self, reason: str) -> None:
        self._standing = None
        self._hold.clear(reason)

    def _is_alive(self, command: EndEffectorCommand, now_ns: int) -> bool:
        return 0 <= now_ns - command.stamp_ns <= self._config.lifetime_s * 1e9

    def _failed(self, observation: Observation, error: Exception) -> Decision:
        text = f"{type(error).__name__}: {error}"
        logging.getLogger(__name__).error("no decision: %s", text)
        self._failures += 1
        if any(fatal in text for fatal in FATAL_TEXTS):
            self.fatal = text
        with self._lock:
            verdict = self._guard.refuse(GuardReason.DECODER_FAILED, self._now_ns())
            command = self._release(verdict)
            if self._failures >= self._config.max_failures:
                self._stopped = "too_many_failures"
        reason = GuardReason.DECODER_FAILED.value
        self.counts[reason] += 1
        return Decision(observation, None, command, (reason,), reason, moves=False)
