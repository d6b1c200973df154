"""From an observation to what may be sent: decide, check, hold. Every failure is a zero command."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from heisd_ros.command.arming import Arming
from heisd_ros.command.debounce import GripperDebounce
from heisd_ros.command.guard import CommandGuard, GuardResult
from heisd_ros.command.hold import STALE, CommandHold
from heisd_ros.command.reasons import Reason
from heisd_ros.command.tail import ZeroTail
from heisd_ros.config import HeisdConfig
from heisd_ros.types import DecodeResult, EndEffectorCommand, Observation

LATE_RESULT = Reason.LATE_RESULT.value
FATAL_TEXTS = ("device-side assert",)
"""After such an error the accelerator is unusable for this process: only a restart helps."""
SILENT = (Reason.DRY_RUN, Reason.DISARMED)
"""While nothing may move for these reasons, nothing is said either, once the zeros are said."""


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
        wanted: What the guard would let through if nothing were stopped: what a dry run shows.
    """

    observation: Observation
    result: DecodeResult | None
    command: EndEffectorCommand
    guard: tuple[str, ...]
    reason: str
    moves: bool
    wanted: EndEffectorCommand | None = None


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
        arming: Whether motion may leave; to be fed with what is heard of stops and switches.
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
        lockstep: bool = False,
        arming: Arming | None = None,
    ) -> None:
        """Join the parts.

        Args:
            policy: Decides.
            config: Sections `command` and `arming` are used.
            now_ns: The clock of the stamps, nanoseconds.
            steady_ns: A clock that never jumps, nanoseconds: it limits how long a command lives.
            pace: Seconds of the stamps' clock per second of the steady clock.
            lockstep: Whether the clock of the stamps waits for each decision.
            arming: Whether motion may leave; None for a simulated arm.
        """
        command = config.command
        self._policy = policy
        self._config = command
        self._now_ns, self._steady_ns, self._pace = now_ns, steady_ns, pace
        self._lockstep = lockstep
        self.arming = arming or Arming(config.arming, simulated=True)
        self._guard = CommandGuard(command)
        self._hold = CommandHold(round(command.lifetime_s / pace * 1e9), frame_id=command.frame_id)
        self._debounce = GripperDebounce(command.gripper_debounce)
        self._tail = ZeroTail(command.rest_zeros)
        self._lock = threading.Lock()
        self._instruction = ""
        self._stopped = ""
        self._standing: EndEffectorCommand | None = None
        self._blocked: Reason | None = None
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
                self._debounce.reset(opening=self._debounce.opening)
                self._rest(Reason.NEW_INSTRUCTION.value)

    def stop(self, reason: str = Reason.STOP_REQUESTED.value) -> None:
        """Send zero until `start`, whatever is decided meanwhile."""
        with self._lock:
            self._stopped = reason
            self._rest(reason)
            self._tail.restart()

    def start(self) -> None:
        """Let decisions through again."""
        with self._lock:
            self._failures = 0
            self._stopped = ""

    def flush(self, reason: str) -> None:
        """End the held motion; the next decision moves again."""
        with self._lock:
            self._rest(reason)

    def next_command(
        self, stamp_ns: int, decision: Decision | None = None
    ) -> EndEffectorCommand | None:
        """Return what to publish now, None for silence; the guard takes it for published.

        That is a new decision, the last one while it lives and may move, or zero. At rest the
        configuration decides between zeros and silence. A dry run is silent, so that somebody else
        can move the arm.

        Whoever calls this publishes before anybody calls it again.

        Args:
            stamp_ns: Time on the clock of the stamps, nanoseconds.
            decision: One that has just been made; nothing else is looked at if motion has not been
                ended since. Its age counts on the clock of the stamps. So simulation in lockstep,
                where that clock stands still, gets every decision, however slow this process is.
        """
        with self._lock:
            command = None if decision is None else self._released(decision, stamp_ns)
            unseen = False
            if command is None:
                command = self._held(stamp_ns)
                # An arm in lockstep acts on decisions only. It never sees the zeros that are said
                # while its time stands still; how many there are depends on this machine.
                unseen = self._lockstep and self._hold.reason == STALE
            silent = self._config.rest == "silence" or self._blocked in SILENT
            if not self._tail.passes(command, silent=silent):
                return None
            if not unseen:
                self._guard.sent(command, self._now_ns())
            return command

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
            self._rest(Reason.EPISODE_END.value)
        self._policy.end_episode(success)
        self._debounce.reset(opening=self._debounce.opening)

    def _checked(self, observation: Observation, result: DecodeResult) -> Decision:
        with self._lock:
            verdict = self._verdict(observation, result)
            wanted = verdict.command
            block = Reason.INACTIVE if self._stopped else self._enforce_arming()
            if block is not None and verdict.passed:
                verdict = self._guard.refuse(block, self._now_ns())
            command = self._release(verdict)
        guard = tuple(reason.value for reason in verdict.reasons)
        reason = result.report.reason
        if Reason.STALE_IMAGE in verdict.reasons:
            reason = LATE_RESULT
        elif not verdict.passed:
            reason = guard[0]
        self.counts.update({*guard, reason} - {""})
        return Decision(observation, result, command, guard, reason, verdict.passed, wanted)

    def _verdict(self, observation: Observation, result: DecodeResult) -> GuardResult:
        pose, arrived_ns = observation.proprioception, observation.arrived_ns
        age_ns = None
        if arrived_ns is not None:
            age_ns = round((self._steady_ns() - arrived_ns) * self._pace)
        return self._guard.check_action(
            result.action,
            self._now_ns(),
            observed_ns=observation.stamp_ns,
            decided_for=observation.instruction,
            instruction=self._instruction,
            position=None if pose is None else pose.position,
            position_frame="" if pose is None else pose.frame_id,
            arrival_age_ns=age_ns,
        )

    def _enforce_arming(self) -> Reason | None:
        """End the motion if nothing may leave; return why, None if motion may leave."""
        block = self.arming.block(self._steady_ns())
        if block is not None:
            self._rest(block.value)
            if block is not self._blocked:
                self.counts[block.value] += 1
                self._tail.restart()
        self._blocked = block
        return block

    def _released(self, decision: Decision, stamp_ns: int) -> EndEffectorCommand | None:
        """Return the decision's command unless motion has been ended since, or it is too old."""
        self._enforce_arming()
        command = self._standing
        if command is not decision.command or not self._is_alive(command, stamp_ns):
            return None
        return dataclasses.replace(command, stamp_ns=stamp_ns)

    def _held(self, stamp_ns: int) -> EndEffectorCommand:
        if not self._stopped:
            self._enforce_arming()
        return self._hold.at(self._steady_ns(), stamp_ns=stamp_ns)

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
            verdict = self._guard.refuse(Reason.DECODER_FAILED, self._now_ns())
            command = self._release(verdict)
            if self._failures >= self._config.max_failures:
                self._stopped = Reason.TOO_MANY_FAILURES.value
        reason = Reason.DECODER_FAILED.value
        self.counts[reason] += 1
        return Decision(observation, None, command, (reason,), reason, moves=False)
