"""From what is heard to what is said: decides on a worker thread, says what the pilot holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from heisd_ros.command.arming import Arming
from heisd_ros.command.reasons import Reason
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.assembler import ObservationAssembler
from heisd_ros.decode.pilot import Decision, Pilot, Policy, with_vision_time
from heisd_ros.nodes.clock import now_ns, steady_ns, uses_sim_time
from heisd_ros.nodes.command_output import CommandOutput
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.gripper_output import GripperOutput
from heisd_ros.nodes.health import DecoderHealth
from heisd_ros.nodes.identity import policy_fingerprint
from heisd_ros.nodes.managed import ManagedNode
from heisd_ros.nodes.rivals import Rivals
from heisd_ros.nodes.robot_inputs import RobotInputs
from heisd_ros.nodes.worker import LatestWorker
from heisd_ros.types import Observation


class DecisionLoop:
    """Everything that holds a policy: it exists while the decoder is configured, and no longer.

    Whatever ends a motion says so at once, before anything else is done about it. All methods but
    `rest` belong to the thread of the node.

    Attributes:
        pilot: Policy, guard and hold.
        assembler: Joins what belongs to one picture, and knows the instruction.
        inputs: What is heard of robot and pictures.
        output: What is said.
        rivals: Who else says something.
        health: What the diagnostics say.
        hopeless: Whether so many decisions failed in a row that going on makes no sense.
    """

    def __init__(
        self,
        node: ManagedNode,
        policy: Policy,
        config: HeisdConfig,
        *,
        arming: Arming,
        exchange: FeatureExchange | None,
        gripper: GripperOutput | None,
        after: Callable[[Decision], None],
    ) -> None:
        """Make pilot, worker and publishers; nothing is heard or said yet.

        Args:
            node: Owner of all publishers and subscriptions.
            policy: Decides.
            config: Of the node.
            arming: Whether motion may leave.
            exchange: Where the patches of a perception node in this process are.
            gripper: A gripper controller; None if there is none.
            after: Called on the deciding thread after each decision has been published.
        """
        self._node, self._after = node, after
        simulated = uses_sim_time(node)
        lockstep = simulated and config.simulation.clock == "lockstep"
        self.pilot = Pilot(
            policy,
            config,
            now_ns=partial(now_ns, node),
            steady_ns=steady_ns,
            pace=config.simulation.factor if simulated else 1.0,
            lockstep=lockstep,
            arming=arming,
        )
        self.assembler = ObservationAssembler(
            patience_s=config.perception.pairing_tolerance_s,
            oldest_s=config.command.image_timeout_s,
        )
        self.inputs = RobotInputs(
            node,
            self.assembler,
            config,
            counts=self.pilot.counts,
            fingerprint=policy_fingerprint(policy),
            exchange=exchange,
            lockstep=lockstep,
            then=self.decide,
        )
        self.output = CommandOutput(node, self.pilot, config.command, gripper)
        self._worker = LatestWorker("decide")
        self.rivals = Rivals(node, self.output.moving_topics, self.pilot.counts)
        self.health = DecoderHealth(
            self.pilot, self.assembler, self._worker, self.rivals, config, simulated=simulated
        )
        self.hopeless = False
        self._ended_ns = -1

    def start(self, *after: str) -> None:
        """Let commands out; a stop for one of these reasons is over."""
        if self.pilot.stopped in after:
            self.pilot.start()
        self.hopeless = False
        self.output.open()

    def rest(self, reason: str) -> None:
        """Say the last command, zero; a stop that was asked for stays one. From any thread."""
        self.pilot.stop(self.pilot.stopped or reason)
        self.output.say()
        self.output.close()

    def forget(self) -> None:
        """Forget what was heard, the instruction too."""
        self.pilot.instruct("")
        self.assembler.clear()
        self.assembler.instruction = ""

    def close(self, timeout_s: float) -> bool:
        """End the deciding thread; return False if it is still deciding then."""
        return self._worker.close(timeout_s)

    def instruct(self, instruction: str) -> None:
        """Change the task; empty text is a rest."""
        self.assembler.instruction = instruction
        self.pilot.instruct(instruction)
        self.output.say()

    def stop(self) -> None:
        """Say zero until the pilot is started again."""
        self.pilot.stop()
        self.output.say()

    def end_episode(self, success: bool, stamp_ns: int) -> None:
        """Rest, and learn from the episode when the deciding thread has time.

        Args:
            success: How it ended.
            stamp_ns: Stamp of its last status, nanoseconds.
        """
        self._flush(Reason.EPISODE_END)
        self._worker.enqueue(partial(self._end_episode, success, stamp_ns))

    def after_time_step(self, went_back: bool) -> None:
        """Go on after a step of simulated time."""
        if went_back:
            self.assembler.clear()
            self._flush(Reason.CLOCK_BACK)
            self.pilot.counts[Reason.CLOCK_BACK.value] += 1
        self.decide()

    def tick(self) -> None:
        """Say what is held, then see whether there is something to decide from."""
        self.output.say()
        self.decide()
        self.health.watch(self._node.get_logger())

    def decide(self) -> None:
        """Begin a decision if everything that it needs has been heard."""
        observation = self.assembler.take(
            now_ns(self._node), expect_metric=self.inputs.expects_metric
        )
        if observation is not None:
            self.inputs.note(observation)
            self._worker.submit(partial(self._act, observation))

    def _act(self, observation: Observation) -> None:
        vision_ms = self.inputs.vision_ms.take(observation.stamp_ns) or 0.0
        decision = with_vision_time(self.pilot.decide(observation), vision_ms)
        stamp_ns = self.output.say(decision)
        if stamp_ns is None:
            return
        self.output.tell(decision, stamp_ns)
        # Only now: the report of the last failed decision is out.
        self.hopeless = self.pilot.stopped == Reason.TOO_MANY_FAILURES.value
        self._after(decision)

    def _end_episode(self, success: bool, stamp_ns: int) -> None:
        if stamp_ns != self._ended_ns:
            self._ended_ns = stamp_ns
            self.pilot.end_episode(success)
            self.output.say()
        self.output.tell_end(stamp_ns)

    def _flush(self, reason: Reason) -> None:
        """End the motion now; the next decision moves again."""
        self.pilot.flush(reason.value)
        self.output.say()
