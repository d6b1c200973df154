"""Features, state and instruction in, twist and gripper command out."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from geometry_msgs.msg import TwistStamped
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger

from heisd_ros.build import build_policy, free_memory
from heisd_ros.command.arming import Arming
from heisd_ros.command.reasons import Reason
from heisd_ros.config import ArmingConfig, HeisdConfig
from heisd_ros.decode.assembler import ObservationAssembler
from heisd_ros.decode.pilot import Decision, Pilot, Policy, with_vision_time
from heisd_ros.errors import ConfigError
from heisd_ros.msg import DecodeReport, EpisodeStatus, GripperCommand
from heisd_ros.nodes import conversions as convert
from heisd_ros.nodes import qos, topics
from heisd_ros.nodes.clock import StampSource, now_ns, on_time_step, steady_ns, uses_sim_time
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.gripper_output import GripperOutput, make_gripper_output
from heisd_ros.nodes.health import DecoderHealth
from heisd_ros.nodes.identity import check_policy, policy_fingerprint, without_self_check
from heisd_ros.nodes.managed import ACTIVE, INACTIVE, ManagedNode, Status
from heisd_ros.nodes.records import decision_to_report, episode_end_report
from heisd_ros.nodes.robot_inputs import RobotInputs
from heisd_ros.nodes.runtime import EXIT_FATAL, run_node
from heisd_ros.nodes.stops import StopInputs
from heisd_ros.nodes.task_server import DEADLINE, FAILED, NEW_INSTRUCTION, SUCCESS, TaskServer
from heisd_ros.nodes.worker import LatestWorker
from heisd_ros.types import EndEffectorCommand, Observation

CLOSE_TIMEOUT_S = 1.5
"""How long a decision that is being made may delay the end of the process."""
TOO_MANY_FAILURES = Reason.TOO_MANY_FAILURES.value


class DecoderNode(ManagedNode):
    """Decides on a worker thread and publishes what the pilot holds at a fixed rate.

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
        self._pilot: Pilot | None = None
        self._worker: LatestWorker | None = None
        self._exchange = exchange
        self._gripper_output: GripperOutput | None = None
        self._on_decision = on_decision
        self._wire = threading.Lock()
        self._stamps = StampSource(partial(now_ns, self))
        self._closed = True
        self._hopeless = False
        self._sequence = 0
        self._ended_ns = -1
        # Nothing moves before the node is configured, and a stop is heard in every state.
        self._arming = Arming(ArmingConfig(start="disarmed"), simulated=False)
        self._stops = StopInputs(self, self._arming, self._publish_held)

    @property
    def pilot(self) -> Pilot:
        """Policy, guard and hold; there is one while the node is configured."""
        if self._pilot is None:
            raise ConfigError("the decoder has no pilot yet; configure the node first")
        return self._pilot

    @property
    def fatal(self) -> str:
        """Text of an error after which only a restart helps; empty otherwise."""
        return "" if self._pilot is None else self._pilot.fatal

    def rest(self) -> None:
        """Leave the arm at rest: the last command is zero, and nothing follows."""
        if self._pilot is not None:
            self._end_output("shutdown")

    def status(self) -> Status:
        """Return counters by reason, and what is being waited for."""
        self._health.watch_clock(self.get_logger())
        status = self._health.status()
        if self._gripper_output is None:
            return status
        counts = self._gripper_output.counts
        return dataclasses.replace(status, values={**status.values, **counts})

    def _configure(self) -> None:
        config = self.config
        self._policy = self._given_policy or build_policy(without_self_check(config))
        simulated = uses_sim_time(self)
        self._arming.configure(config.arming, simulated=simulated)
        self._pilot = Pilot(
            self._policy,
            config,
            now_ns=partial(now_ns, self),
            steady_ns=steady_ns,
            pace=config.simulation.factor if simulated else 1.0,
            arming=self._arming,
        )
        self._assembler = ObservationAssembler(
            patience_s=config.perception.pairing_tolerance_s,
            oldest_s=config.command.image_timeout_s,
        )
        self._inputs = RobotInputs(
            self,
            self._assembler,
            config,
            counts=self._pilot.counts,
            fingerprint=policy_fingerprint(self._policy),
            exchange=self._exchange,
            lockstep=simulated and config.simulation.clock == "lockstep",
            then=self._decide,
        )
        self._worker = LatestWorker("decide")
        self._health = DecoderHealth(
            self._pilot, self._assembler, self._worker, config, simulated=simulated
        )
        self._twist = self.advertise(TwistStamped, topics.TWIST)
        self._gripper = self.advertise(GripperCommand, topics.GRIPPER)
        self._wanted = self.advertise(TwistStamped, topics.WANTED)
        self._report = self.advertise(DecodeReport, topics.DECODE_REPORT)
        self._gripper_output = make_gripper_output(self, config.gripper)
        if self._gripper_output is not None:
            self._while_configured.append(self._gripper_output.close)
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
        if self.pilot.stopped in (INACTIVE, TOO_MANY_FAILURES):
            self.pilot.start()
        self._hopeless = False
        self._closed = False
        self.subscribe(String, topics.INSTRUCTION, self._on_instruction, qos.EVENTS)
        self.subscribe(EpisodeStatus, topics.EPISODE_STATUS, self._on_episode_status, qos.EVENTS)
        for kind, topic, callback, profile in self._inputs.subscriptions():
            self.subscribe(kind, topic, callback, profile)
        self.every(1.0 / self.config.command.publish_hz, self._tick)
        if uses_sim_time(self):
            self._while_active.append(on_time_step(self, self._on_time_step).unregister)

    def _deactivate(self) -> None:
        if self._pilot is None:
            return
        self._end_output(INACTIVE)
        self._tasks.finish(INACTIVE)
        self._pilot.instruct("")
        self._assembler.clear()
        self._assembler.instruction = ""

    def _cleanup(self) -> None:
        if self._worker is not None and not self._worker.close(CLOSE_TIMEOUT_S):
            self.get_logger().warning("a decision is still being made; its model stays loaded")
        self._worker = self._pilot = self._policy = None
        free_memory()

    def _end_output(self, reason: str) -> None:
        """Send the last command, zero; a stop that was asked for stays one."""
        self.pilot.stop(self.pilot.stopped or reason)
        self._publish_held()
        with self._wire:
            self._closed = True

    def _is_active(self) -> bool:
        return self.state == ACTIVE

    def _on_instruction(self, message: String) -> None:
        instruction = message.data.strip()
        if instruction != self._assembler.instruction:
            self._tasks.finish(NEW_INSTRUCTION)
        self._instruct(instruction)
        self._decide()

    def _instruct(self, instruction: str) -> None:
        self._assembler.instruction = instruction
        self.pilot.instruct(instruction)

    def _on_task_end(self, reason: str) -> None:
        """Rest; a deadline is a failure to learn from, a cancellation says nothing."""
        if reason == DEADLINE:
            self._work().enqueue(partial(self._end_episode, False, now_ns(self)))
        self._instruct("")

    def _on_report_success(
        self, request: SetBool.Request, response: SetBool.Response
    ) -> SetBool.Response:
        response.success = self._is_active() and bool(self._assembler.instruction)
        response.message = "no episode is running"
        if response.success:
            self._judge_episode(bool(request.data), now_ns(self))
            self._instruct("")
            response.message = "the episode is closed; instruct again"
        return response

    def _judge_episode(self, success: bool, stamp_ns: int) -> None:
        self._work().enqueue(partial(self._end_episode, success, stamp_ns))
        self._tasks.finish(SUCCESS if success else FAILED)

    def _on_episode_status(self, message: EpisodeStatus) -> None:
        if message.done:
            self._judge_episode(message.success, convert.to_ns(message.header.stamp))

    def _on_time_step(self, went_back: bool) -> None:
        if went_back:
            self._assembler.clear()
            self.pilot.flush("clock_back")
            self.pilot.counts["clock_back"] += 1
        self._decide()

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:  # noqa: ARG002
        self.pilot.stop()
        self._publish_held()
        response.success, response.message = True, "zero commands until start is called"
        return response

    def _on_start(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:  # noqa: ARG002
        self.pilot.start()
        response.success, response.message = True, "deciding"
        return response

    def _decide(self) -> None:
        expect_metric = self.count_publishers(topics.TRAJECTORY_METRIC) > 0
        observation = self._assembler.take(now_ns(self), expect_metric=expect_metric)
        if observation is not None:
            self._work().submit(partial(self._act, self.pilot, observation))

    def _act(self, pilot: Pilot, observation: Observation) -> None:
        vision_ms = self._inputs.vision_ms.take(observation.stamp_ns) or 0.0
        decision = with_vision_time(pilot.decide(observation), vision_ms)
        with self._wire:
            if self._closed:
                return
            stamp_ns = self._stamps.next_ns()
            self._send(pilot, pilot.released(decision, stamp_ns))
            self._show(pilot, decision, stamp_ns)
            self._report.publish(decision_to_report(decision, stamp_ns, self._sequence))
            self._sequence += 1
        # Only now: the report of the last failed decision is out.
        self._hopeless = pilot.stopped == TOO_MANY_FAILURES
        self._tasks.note(decision)
        if self._on_decision is not None:
            self._on_decision(decision)

    def _end_episode(self, success: bool, stamp_ns: int) -> None:
        if stamp_ns != self._ended_ns:
            self._ended_ns = stamp_ns
            self.pilot.end_episode(success)
        with self._wire:
            if not self._closed:
                self._report.publish(episode_end_report(stamp_ns, self._stamps.next_ns()))

    def _tick(self) -> None:
        self._decide()
        self._publish_held()
        self._tasks.tick()
        self._health.watch(self.get_logger())
        if self._hopeless:
            self.give_up(TOO_MANY_FAILURES)

    def _publish_held(self) -> None:
        with self._wire:
            if not self._closed:
                self._send(self.pilot, self.pilot.held(self._stamps.next_ns()))

    def _work(self) -> LatestWorker:
        assert self._worker is not None, "only an active node hears anything"
        return self._worker

    def _send(self, pilot: Pilot, command: EndEffectorCommand) -> None:
        if pilot.sends(command):
            self._twist.publish(convert.command_to_twist(command))
            self._gripper.publish(convert.command_to_gripper(command, self.config.command))

    def _show(self, pilot: Pilot, decision: Decision, stamp_ns: int) -> None:
        """Publish what was decided though it may not move, and tell the gripper if it does."""
        if decision.wanted is not None:
            wanted = dataclasses.replace(decision.wanted, stamp_ns=stamp_ns)
            self._wanted.publish(convert.command_to_twist(wanted))
        if self._gripper_output is not None and decision.moves and not pilot.hold_reason:
            self._gripper_output.want(decision.command.gripper)


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
