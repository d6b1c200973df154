"""Features, state and instruction in, twist and gripper command out."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger

from heisd_ros.build import build_policy, free_memory
from heisd_ros.command.arming import Arming
from heisd_ros.command.reasons import Reason
from heisd_ros.config import ArmingConfig, HeisdConfig
from heisd_ros.decode.pilot import Decision, Pilot, Policy
from heisd_ros.errors import ConfigError
from heisd_ros.msg import EpisodeStatus
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import now_ns, on_time_step, uses_sim_time
from heisd_ros.nodes.decision_loop import DecisionLoop
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.gripper_output import GripperOutput, make_gripper_output
from heisd_ros.nodes.identity import check_policy, without_self_check
from heisd_ros.nodes.managed import ACTIVE, INACTIVE, ManagedNode, Status
from heisd_ros.nodes.runtime import EXIT_FATAL, run_node
from heisd_ros.nodes.stops import StopInputs
from heisd_ros.nodes.task_server import DEADLINE, FAILED, NEW_INSTRUCTION, SUCCESS, TaskServer

CLOSE_TIMEOUT_S = 1.5
"""How long a decision that is being made may delay the end of the process."""
TOO_MANY_FAILURES = Reason.TOO_MANY_FAILURES.value


class DecoderNode(ManagedNode):
    """States, tasks and stops around the decision loop.

    Only an active decoder hears anything; an instruction does not survive its deactivation.
    """

    function = "decisions"

    def __init__(
        self,
        *,
        config: HeisdConfig | None = None,
        policy: Policy | None = None,
        exchange: FeatureExchange | None = None,
        on_decision: Callable[[Decision], None] | None = None,
        **options: Any,  # noqa: ANN401  (keyword arguments of rclpy.node.Node)
    ) -> None:
        """Declare the parameters.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            policy: None builds the configured one when the node is configured.
            exchange: Where the patches of a perception node in this process are.
            on_decision: Called on the deciding thread after each decision has been published.
            options: Passed on to rclpy.
        """
        super().__init__("decoder_node", config=config, **options)
        self._given_policy = policy
        self._policy: Policy | None = None
        self._loop: DecisionLoop | None = None
        self._tasks: TaskServer | None = None
        self._exchange = exchange
        self._gripper_output: GripperOutput | None = None
        self._on_decision = on_decision
        # Nothing moves before the node is configured, and a stop is heard in every state.
        self._arming = Arming(ArmingConfig(start="disarmed"), simulated=False)
        self._stops = StopInputs(self, self._arming, self._say)

    @property
    def pilot(self) -> Pilot:
        """Policy, guard and hold; there is one while the node is configured."""
        return self._deciding.pilot

    @property
    def fatal(self) -> str:
        """Text of an error after which only a restart helps; empty otherwise."""
        loop = self._loop
        return "" if loop is None else loop.pilot.fatal

    def rest(self) -> None:
        """Leave the arm at rest: the last command is zero, and nothing follows."""
        loop = self._loop
        if loop is not None:
            loop.rest(Reason.SHUTDOWN.value)

    def status(self) -> Status:
        """Return counters by reason, what is being waited for, and who else moves the arm."""
        loop = self._deciding
        loop.health.watch_clock(self.get_logger())
        loop.rivals.look()
        status = loop.health.status()
        if self._gripper_output is None:
            return status
        counts = self._gripper_output.counts
        return dataclasses.replace(status, values={**status.values, **counts})

    def _configure(self) -> None:
        config = self.config
        self._policy = self._given_policy or build_policy(without_self_check(config))
        self._arming.configure(config.arming, simulated=uses_sim_time(self))
        self._gripper_output = make_gripper_output(self, config.gripper)
        if self._gripper_output is not None:
            self._while_configured.append(self._gripper_output.close)
        self._loop = DecisionLoop(
            self,
            self._policy,
            config,
            arming=self._arming,
            exchange=self._exchange,
            gripper=self._gripper_output,
            after=self._after_decision,
        )
        self.serve(Trigger, topics.STOP, self._on_stop)
        self.serve(Trigger, topics.START, self._on_start)
        self.serve(SetBool, topics.REPORT_SUCCESS, self._on_report_success)
        self._tasks = TaskServer(
            self, ready=self._is_active, begin=self._instruct, end=self._on_task_end
        )
        self._while_configured.append(self._tasks.destroy)

    def _activate(self) -> None:
        if self.config.model.self_check:
            check_policy(self._policy)
        loop = self._deciding
        loop.start(INACTIVE, TOO_MANY_FAILURES)
        self.subscribe(String, topics.INSTRUCTION, self._on_instruction, qos.EVENTS)
        self.subscribe(EpisodeStatus, topics.EPISODE_STATUS, self._on_episode_status, qos.EVENTS)
        for heard in loop.inputs.subscriptions():
            self.subscribe(heard.kind, heard.topic, heard.callback, heard.profile, **heard.options)
        self.every(1.0 / self.config.command.publish_hz, self._tick)
        if uses_sim_time(self):
            handle = on_time_step(self, loop.after_time_step)
            self._while_active.append(handle.unregister)

    def _deactivate(self) -> None:
        if self._loop is not None:
            self._loop.rest(INACTIVE)
            self._finish_task(INACTIVE)
            self._loop.forget()

    def _cleanup(self) -> None:
        if self._loop is not None and not self._loop.close(CLOSE_TIMEOUT_S):
            self.get_logger().warning("a decision is still being made; its model stays loaded")
        self._policy = self._loop = None
        free_memory()

    @property
    def _deciding(self) -> DecisionLoop:
        if self._loop is None:
            raise ConfigError("the decoder has no pilot yet; configure the node first")
        return self._loop

    def _is_active(self) -> bool:
        return self.state == ACTIVE

    def _on_instruction(self, message: String) -> None:
        instruction = message.data.strip()
        if instruction != self._deciding.assembler.instruction:
            self._instruct(instruction)
            self._finish_task(NEW_INSTRUCTION)
        self._deciding.decide()

    def _instruct(self, instruction: str) -> None:
        self._deciding.instruct(instruction)

    def _finish_task(self, reason: str) -> None:
        if self._tasks is not None:
            self._tasks.finish(reason)

    def _on_task_end(self, reason: str) -> None:
        """Rest; a deadline is a failure to learn from, a cancellation says nothing."""
        self._instruct("")
        if reason == DEADLINE:
            self._deciding.end_episode(False, now_ns(self))

    def _on_report_success(
        self, request: SetBool.Request, response: SetBool.Response
    ) -> SetBool.Response:
        response.success = self._is_active() and bool(self._deciding.assembler.instruction)
        response.message = "no episode is running"
        if response.success:
            self._judge_episode(bool(request.data), now_ns(self))
            self._instruct("")
            response.message = "the episode is closed; instruct again"
        return response

    def _on_episode_status(self, message: EpisodeStatus) -> None:
        if message.done:
            self._judge_episode(message.success, convert.to_ns(message.header.stamp))

    def _judge_episode(self, success: bool, stamp_ns: int) -> None:
        self._deciding.end_episode(success, stamp_ns)
        self._finish_task(SUCCESS if success else FAILED)

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:  # noqa: ARG002
        self._deciding.stop()
        response.success, response.message = True, "zero commands until start is called"
        return response

    def _on_start(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:  # noqa: ARG002
        self.pilot.start()
        response.success, response.message = True, "deciding"
        return response

    def _after_decision(self, decision: Decision) -> None:
        if self._tasks is not None:
            self._tasks.note(decision)
        if self._on_decision is not None:
            self._on_decision(decision)

    def _tick(self) -> None:
        loop = self._deciding
        loop.tick()
        if self._tasks is not None:
            self._tasks.tick()
        if loop.hopeless:
            self.give_up(TOO_MANY_FAILURES)

    def _say(self) -> None:
        """Let out at once what a stop has changed."""
        if self._loop is not None:
            self._loop.output.say()


def watch_fatal(node: DecoderNode, stop: threading.Event) -> int:
    """Wait until the process is told to stop or only a restart can help; return the exit code."""
    while not stop.wait(0.2):
        if node.fatal:
            node.get_logger().fatal(node.fatal)
            return EXIT_FATAL
    return 0


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node(lambda context: DecoderNode(context=context), args, watch_fatal)
