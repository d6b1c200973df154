"""The task as an action: instruction and deadline in, progress out, success or the reason back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from rclpy.action.server import ActionServer, CancelResponse, GoalEvent, GoalResponse
from rclpy.node import Node

from heisd_ros.action import ExecuteTask
from heisd_ros.decode.pilot import Decision
from heisd_ros.nodes import topics
from heisd_ros.nodes.clock import now_ns
from heisd_ros.types import DecodeReport

SUCCESS, FAILED, DEADLINE = "success", "failure", "deadline"
CANCELED, REPLACED, NEW_INSTRUCTION = "canceled", "replaced", "new_instruction"
SECOND_NS = 1_000_000_000
Answer = TypeVar("Answer")


class TaskServer:
    """Serves one goal at a time; a new one replaces it. All but `note` on the thread of the node.

    The goal ends when `finish` is called: by whoever hears of success, or by `tick`.
    """

    def __init__(
        self,
        node: Node,
        *,
        ready: Callable[[], bool],
        begin: Callable[[str], None],
        end: Callable[[str], None],
    ) -> None:
        """Offer the action.

        Args:
            node: Owner.
            ready: Whether a goal can be accepted now.
            begin: Called with the instruction of a new goal.
            end: Called with the reason when a goal ends by cancellation or deadline.
        """
        self._node, self._ready, self._begin, self._end = node, ready, begin, end
        self._goal: Any = None
        self._deadline_ns = 0
        self._newest: DecodeReport | None = None
        self._steps = self._told = 0
        self._server = ActionServer(
            node,
            ExecuteTask,
            topics.EXECUTE_TASK,
            execute_callback=partial(_return, ExecuteTask.Result()),
            goal_callback=self._judge,
            handle_accepted_callback=self._accept,
            cancel_callback=partial(_return, CancelResponse.ACCEPT),
        )

    @property
    def busy(self) -> bool:
        """Whether a goal is being worked on."""
        return self._goal is not None

    def note(self, decision: Decision) -> None:
        """Take a decision, for the feedback; from the deciding thread."""
        self._newest = None if decision.result is None else decision.result.report
        self._steps += 1

    def tick(self) -> None:
        """Publish feedback, and end the goal if it was cancelled or its time is up."""
        if self._goal is None:
            return
        if self._steps != self._told:
            self._publish_feedback()
        if self._goal.is_cancel_requested:
            self._stop(CANCELED)
        elif self._deadline_ns and now_ns(self._node) >= self._deadline_ns:
            self._stop(DEADLINE)

    def finish(self, reason: str) -> None:
        """End the goal, if there is one, with success or why not."""
        goal, self._goal = self._goal, None
        if goal is None:
            return
        if reason == SUCCESS:
            goal.succeed()
        elif goal.is_cancel_requested:
            goal.canceled()
        else:
            goal.abort()
        result = ExecuteTask.Result(success=reason == SUCCESS, reason=reason, steps=self._steps)
        if self._node.executor is not None:  # else nobody is there to send it
            self._server.notify_execute(goal, partial(_return, result))

    def destroy(self) -> None:
        """Withdraw the action."""
        self._server.destroy()

    def _judge(self, request: ExecuteTask.Goal) -> GoalResponse:
        if self._ready() and request.instruction.strip() and request.deadline_s >= 0.0:
            return GoalResponse.ACCEPT
        self._node.get_logger().warning(
            "task refused: the decoder must be active, the instruction not empty and the deadline "
            f">= 0; got {request.instruction!r} and {request.deadline_s} s"
        )
        return GoalResponse.REJECT

    def _accept(self, goal: Any) -> None:  # noqa: ANN401  (ServerGoalHandle)
        mark_executing(goal)
        self._begin(goal.request.instruction.strip())  # motion for the old goal ends first
        self.finish(REPLACED)
        deadline_ns = round(goal.request.deadline_s * SECOND_NS)
        self._deadline_ns = now_ns(self._node) + deadline_ns if deadline_ns else 0
        self._steps = self._told = 0
        self._goal = goal

    def _stop(self, reason: str) -> None:
        self._end(reason)
        self.finish(reason)

    def _publish_feedback(self) -> None:
        self._told = self._steps
        report = self._newest
        if report is None:
            return
        self._goal.publish_feedback(
            ExecuteTask.Feedback(
                mode=report.kind.value,
                skipped=bool(report.skipped),
                fused=float(report.fused),
                steps=self._steps,
                latency_ms=float(report.stage_ms.get("total", 0.0)),
            )
        )


def mark_executing(goal: Any) -> None:  # noqa: ANN401  (ServerGoalHandle)
    """Let clients see a goal as executing; the only place that uses what rclpy calls private.

    The public `goal.execute()` wants an execute callback that lasts as long as the goal. A blocking
    one would stop this node's executor, and a waiting coroutine keeps it turning without a pause:
    the goal is led by `tick` instead.
    """
    goal._update_state(GoalEvent.EXECUTE)


def _return(answer: Answer, goal: Any) -> Answer:  # noqa: ANN401, ARG001
    return answer
