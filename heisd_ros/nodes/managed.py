"""Managed nodes: configure reads and loads, activate lets it out, and a failure is told, not fatal.

Transitions run on the node's own thread, or before that thread has been started.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile

from heisd_ros.config import HeisdConfig
from heisd_ros.errors import HeisdError, NotStartedError
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, steady_clock
from heisd_ros.nodes.parameters import NodeParameters
from heisd_ros.nodes.records import to_diagnostics

UNCONFIGURED, INACTIVE, ACTIVE = "unconfigured", "inactive", "active"
SUCCESS, FAILURE, ERROR = (
    TransitionCallbackReturn.SUCCESS,
    TransitionCallbackReturn.FAILURE,
    TransitionCallbackReturn.ERROR,
)
EXIT_ON_FAILURE = "exit"
"""Value of `ros.on_failed_start` that ends a process whose node did not start by itself."""


@dataclass(frozen=True, slots=True)
class Status:
    """A diagnostic status.

    Attributes:
        level: OK, WARN or ERROR of diagnostic_msgs.
        text: Machine words.
        values: Counters by reason, and what is being waited for.
    """

    level: bytes
    text: str
    values: dict[str, object] = field(default_factory=dict)


class ManagedNode(LifecycleNode):
    """A node with the four steps of a managed node; subclasses fill in `_configure` and so on.

    Attributes:
        config: The checked configuration; the defaults until the node is configured.
        failure: Why the last transition failed or the node went inactive; empty if all went well.
    """

    function = "state"
    """What the diagnostics of this node are about."""

    def __init__(
        self,
        name: str,
        *,
        config: HeisdConfig | None = None,
        **options: Any,  # noqa: ANN401  (keyword arguments of rclpy.node.Node)
    ) -> None:
        """Declare the parameters and tell the state once per second; nothing is loaded yet.

        Args:
            name: Name of the node.
            config: Values of parameters that are not overridden; None for the defaults.
            options: Passed on to rclpy.
        """
        super().__init__(name, **options)
        self.config = config or HeisdConfig()
        self.failure = ""
        self._parameters_of_config = NodeParameters(self, config)
        self._while_active: list[Callable[[], object]] = []
        self._while_configured: list[Callable[[], object]] = []
        # rclpy raises for a transition that this state does not have, and answers nothing.
        self._service_change_state.callback = self._on_change_state
        self._state_topic = self.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, qos.EVENTS)
        self.create_timer(1.0, self._tell_status, clock=steady_clock())

    @property
    def state(self) -> str:
        """Label of the lifecycle state: unconfigured, inactive, active or finalized."""
        return str(self._state_machine.current_state[1])  # rclpy has no public getter

    def start_by_itself(self) -> None:
        """Configure and activate if `ros.autostart` says so.

        Raises:
            NotStartedError: If that failed and `ros.on_failed_start` is `exit`.
        """
        settings = self._parameters_of_config
        if not settings.value("ros.autostart") or self.bring_up():
            return
        if settings.value("ros.on_failed_start") == EXIT_ON_FAILURE:
            raise NotStartedError(self.failure)
        self.get_logger().info(f"{self.state}; configure again after changing parameters or files")

    def bring_up(self) -> bool:
        """Configure and activate; return whether the node is active, else `failure` says why."""
        if self.state == UNCONFIGURED:
            self.trigger_configure()
        if self.state == INACTIVE:
            self.trigger_activate()
        return self.state == ACTIVE

    def give_up(self, reason: str) -> None:
        """Go inactive because going on makes no sense; `reason` is a machine word."""
        self.trigger_deactivate()
        self.failure = reason
        self.get_logger().error(f"inactive: {reason}; activate again when the cause is gone")

    def rest(self) -> None:
        """End all output at once; from any thread."""

    def close(self) -> None:
        """Deactivate and clean up whatever is left; after the node's thread has ended."""
        if self.state == ACTIVE:
            self.trigger_deactivate()
        if self.state == INACTIVE:
            self.trigger_cleanup()

    def subscribe(
        self,
        kind: Any,  # noqa: ANN401  (a message class)
        topic: str,
        callback: Callable[[Any], None],
        profile: QoSProfile,
        **options: Any,  # noqa: ANN401  (keyword arguments of create_subscription)
    ) -> None:
        """Subscribe until the node is deactivated."""
        made = self.create_subscription(kind, topic, callback, profile, **options)
        self._while_active.append(partial(self.destroy_subscription, made))

    def every(self, period_s: float, callback: Callable[[], None]) -> None:
        """Call back until the node is deactivated, on a clock that never stands still."""
        made = self.create_timer(period_s, callback, clock=steady_clock())
        self._while_active.append(partial(self.destroy_timer, made))

    def advertise(self, kind: Any, topic: str, profile: QoSProfile = qos.EVENTS) -> Any:  # noqa: ANN401
        """Return a publisher that is silent unless the node is active; until it is cleaned up."""
        made = self.create_lifecycle_publisher(kind, topic, profile)
        self._while_configured.append(partial(self.destroy_lifecycle_publisher, made))
        return made

    def serve(self, kind: Any, name: str, callback: Any) -> None:  # noqa: ANN401
        """Serve until the node is cleaned up."""
        made = self.create_service(kind, name, callback)
        self._while_configured.append(partial(self.destroy_service, made))

    def status(self) -> Status:
        """Return what the diagnostics shall say while the node is active."""
        return Status(DiagnosticStatus.OK, ACTIVE)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read and check the parameters, then load."""
        result = self._attempt("configure", self._read_and_configure)
        if result is not SUCCESS:
            self._attempt("clean up", self._release, keep=True)
            return result
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let the output out; a failure leaves the node inactive and quiet."""
        super().on_activate(state)
        result = self._attempt("activate", self._activate)
        if result is not SUCCESS:
            self._attempt("deactivate", self._quiet, keep=True)
            super().on_deactivate(state)
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Leave the arm at rest, then say nothing more."""
        result = self._attempt("deactivate", self._quiet, otherwise=ERROR)
        super().on_deactivate(state)
        return result

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free what was loaded; parameters can be set again."""
        result = self._attempt("clean up", self._release, otherwise=ERROR)
        return result if result is not SUCCESS else super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Do what is left of deactivating and cleaning up."""
        if state.label == ACTIVE:
            self.on_deactivate(state)
        if state.label in (ACTIVE, INACTIVE):
            self.on_cleanup(state)
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give everything back after a failed transition, so that configuring works again."""
        super().on_deactivate(state)
        return self._attempt("recover", self._release, keep=True)

    def _configure(self) -> None:
        """Load and make publishers from `config`; a HeisdError fails the transition."""

    def _activate(self) -> None:
        """Check once more, then subscribe and publish."""

    def _deactivate(self) -> None:
        """Undo `_activate`, also half of it; the last command is zero."""

    def _cleanup(self) -> None:
        """Undo `_configure`, also half of it."""

    def _read_and_configure(self) -> None:
        self.config = self._parameters_of_config.read()
        self._parameters_of_config.fixed = True
        self._configure()

    def _quiet(self) -> None:
        try:
            self._deactivate()
        finally:
            _undo(self._while_active)

    def _release(self) -> None:
        try:
            self._cleanup()
        finally:
            _undo(self._while_active)
            _undo(self._while_configured)
            self._parameters_of_config.fixed = False

    def _attempt(
        self,
        verb: str,
        step: Callable[[], None],
        *,
        otherwise: TransitionCallbackReturn = FAILURE,
        keep: bool = False,
    ) -> TransitionCallbackReturn:
        """Run a step; a failure is logged and kept in `failure`, unless an earlier one is to stay.

        rclpy swallows what its callbacks raise.
        """
        try:
            step()
        except Exception as error:
            known = isinstance(error, HeisdError)
            text = str(error) if known else f"{type(error).__name__}: {error}"
            message = f"cannot {verb}: {text}"
            self.get_logger().error(message)
            if not known:
                logging.getLogger(__name__).exception("%s: cannot %s", self.get_name(), verb)
            self.failure = self.failure if keep else message
            return otherwise
        self.failure = self.failure if keep else ""
        return SUCCESS

    def _on_change_state(
        self, request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        wanted = request.transition
        possible = {
            number: label for number, label, *_ in self._state_machine.available_transitions
        }
        label = wanted.label or possible.get(wanted.id, "")
        response.success = label in possible.values() and self._trigger(label) == SUCCESS
        if label not in possible.values():
            self.get_logger().error(
                f"no transition {wanted.label or wanted.id} while {self.state}; "
                f"there is {', '.join(possible.values())}"
            )
        return response

    def _trigger(self, label: str) -> TransitionCallbackReturn:
        return getattr(self, f"trigger_{label}")()

    def _tell_status(self) -> None:
        status = self.status() if self.state == ACTIVE else self._idle_status()
        name = f"{self.get_name()}: {self.function}"
        values = {"state": self.state, **status.values}
        self._state_topic.publish(
            to_diagnostics(name, status.level, status.text, values, now_ns(self))
        )

    def _idle_status(self) -> Status:
        if self.failure:
            return Status(DiagnosticStatus.ERROR, self.failure)
        return Status(DiagnosticStatus.WARN, self.state)


def _undo(steps: list[Callable[[], object]]) -> None:
    while steps:
        steps.pop()()
