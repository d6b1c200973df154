"""All nodes in one process: the patch features never leave it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

from heisd_ros.build import build_components, build_policy, free_memory
from heisd_ros.closing import Closing
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.pilot import Decision, Policy
from heisd_ros.errors import ConfigError, NotStartedError
from heisd_ros.nodes.decoder_node import DecoderNode
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.identity import without_self_check
from heisd_ros.nodes.managed import ACTIVE, UNCONFIGURED, ManagedNode, Status
from heisd_ros.nodes.parameters import to_overrides
from heisd_ros.nodes.perception_node import PerceptionNode
from heisd_ros.nodes.runtime import EXIT_FATAL, NodeThread, ros_context, run_node
from heisd_ros.nodes.simulation_node import SimulationNode, play_configured
from heisd_ros.nodes.trajectory_node import TrajectoryNode
from heisd_ros.protocols import Environment, VisionEncoder
from heisd_ros.types import EpisodeOutcome

OnReport = Callable[[Decision], None]

POLL_S = 0.1


class ComposedGraph(Closing):
    """Perception, trajectory and decoder, and the simulation if there is one, each in its thread.

    Attributes:
        decoder: The decoder node.
        simulation: The simulation node; None on a real robot.
    """

    def __init__(
        self,
        config: HeisdConfig,
        context: Context,
        *,
        with_simulation: bool,
        environment: Environment | None = None,
        policy: Policy | None = None,
        encoder: VisionEncoder | None = None,
        on_report: OnReport | None = None,
        active: bool = True,
    ) -> None:
        """Load the model, make the nodes, configure them, and activate them if wanted.

        Args:
            config: Of all nodes.
            context: An initialised context.
            with_simulation: Whether an environment is the robot; time is simulated then.
            environment: None builds the configured one, in the thread that plays the episodes.
            policy: None builds the configured one.
            encoder: None takes that of the policy's checkpoint.
            on_report: Called on the deciding thread after each decision.
            active: False leaves the nodes inactive.

        Raises:
            HeisdError: If something cannot be loaded, or a node refuses.
        """
        if policy is None or encoder is None:
            components = build_components(without_self_check(config))
            policy = policy or build_policy(config, components)
            encoder = encoder or components.encoder
        exchange = FeatureExchange()
        time_source = Parameter("use_sim_time", value=with_simulation)
        options: dict[str, Any] = {
            "context": context,
            # Whatever the process was started with has been read already.
            "parameter_overrides": [*to_overrides(config), time_source],
            # Parameters are the same on all nodes: one node answers for them, and each executor
            # has six services less to wait for.
            "start_parameter_services": False,
        }
        self._managed: list[ManagedNode] = []
        self._nodes: list[Any] = []
        self._threads: list[NodeThread] = []
        self.simulation: SimulationNode | None = None
        try:
            self.decoder = DecoderNode(
                policy=policy, exchange=exchange, on_decision=on_report, **options
            )
            self._manage(self.decoder)
            self._manage(PerceptionNode(encoder=encoder, exchange=exchange, **options))
            self._manage(TrajectoryNode(**options))
            if with_simulation:
                self.simulation = SimulationNode(
                    config=config, context=context, environment=environment
                )
                self._start(self.simulation)
            if active:
                self.activate()
        except BaseException:
            self.close()
            raise

    def activate(self) -> None:
        """Activate the nodes that are not active, the decoder first: it checks the model.

        Raises:
            NotStartedError: If one of them refuses; all are inactive then.
        """
        for node, thread in zip(self._managed, self._threads, strict=False):
            if not thread.call(node.bring_up):
                self.deactivate()
                raise NotStartedError(f"{node.get_name()} {node.failure}")

    def deactivate(self) -> None:
        """Deactivate the nodes that are active, the decoder first: the arm rests."""
        for node, thread in zip(self._managed, self._threads, strict=False):
            if node.state == ACTIVE:
                thread.call(node.trigger_deactivate)

    def states(self) -> dict[str, str]:
        """Return the lifecycle state of each managed node."""
        return {node.get_name(): node.state for node in self._managed}

    def rest(self) -> None:
        """End all output at once; the last command on the wire is zero."""
        for node in self._managed:
            node.rest()

    def close(self) -> None:
        """Stop and free everything; the last command on the wire is zero."""
        self.rest()
        stopped = [thread.stop() for thread in self._threads]
        for node, done in zip(self._nodes, stopped, strict=True):
            if done:
                getattr(node, "close", _nothing)()
                node.destroy_node()
        self._managed.clear()
        self._nodes.clear()
        self._threads.clear()

    def _manage(self, node: ManagedNode) -> None:
        self._managed.append(node)
        self._start(node)
        self._threads[-1].call(node.trigger_configure)
        if node.state == UNCONFIGURED:
            raise NotStartedError(f"{node.get_name()} {node.failure}")

    def _start(self, node: Node) -> None:
        self._nodes.append(node)
        self._threads.append(NodeThread(node))


def run_composed(
    config: HeisdConfig,
    *,
    environment: Environment | None = None,
    policy: Policy | None = None,
    encoder: VisionEncoder | None = None,
    on_report: OnReport | None = None,
    domain_id: int | None = None,
) -> EpisodeOutcome:
    """Play one simulated episode through the real nodes and topics, in this process.

    Args:
        config: Of all nodes; `simulation.init` is the initial state.
        environment: None builds the configured one; it is closed at the end.
        policy: None builds the configured one.
        encoder: None takes that of the policy's checkpoint.
        on_report: Called on the deciding thread after each decision.
        domain_id: ROS domain; None takes that of the process.
    """
    stop = threading.Event()
    with ExitStack() as stack:
        context = stack.enter_context(ros_context([], domain_id=domain_id))
        graph = stack.enter_context(
            ComposedGraph(
                config,
                context,
                with_simulation=True,
                environment=environment,
                policy=policy,
                encoder=encoder,
                on_report=on_report,
            )
        )
        assert graph.simulation is not None
        return graph.simulation.play_episode(config.simulation.init, stop)


class HeisdNode(ManagedNode):
    """Supervises the composed nodes: its own transitions are theirs.

    Attributes:
        graph: The composed nodes; there are some while this node is configured.
    """

    function = "nodes"

    def __init__(self, *, config: HeisdConfig | None = None, **options: Any) -> None:  # noqa: ANN401
        """Declare the parameters of the process.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            options: Passed on to rclpy.
        """
        super().__init__("heisd_node", config=config, **options)
        self.graph: ComposedGraph | None = None
        self._closing = False

    @property
    def fatal(self) -> str:
        """Text of an error after which only a restart helps; empty otherwise."""
        return "" if self.graph is None else self.graph.decoder.fatal

    def rest(self) -> None:
        """End all output at once; the last command on the wire is zero."""
        if self.graph is not None:
            self.graph.rest()

    def close(self) -> None:
        """Close the composed nodes."""
        self._closing = True
        super().close()

    def status(self) -> Status:
        """Return the states of the composed nodes; an error if one has gone inactive by itself."""
        states = {} if self.graph is None else self.graph.states()
        idle = [name for name, state in states.items() if state != ACTIVE]
        if idle:
            return Status(DiagnosticStatus.ERROR, f"inactive: {', '.join(idle)}", {**states})
        return Status(DiagnosticStatus.OK, ACTIVE, {**states})

    def _configure(self) -> None:
        self.graph = ComposedGraph(
            self.config,
            self.context,
            with_simulation=self.config.simulation.episodes > 0,
            active=False,
        )

    def _activate(self) -> None:
        if self.graph is not None:
            self.graph.activate()

    def _deactivate(self) -> None:
        if self.graph is not None:
            self.graph.deactivate()

    def _cleanup(self) -> None:
        if self.graph is None:
            return
        if self.graph.simulation is not None and not self._closing:
            raise ConfigError("the simulation runs until the process ends")
        self.graph.close()
        self.graph = None
        free_memory()


def work(node: HeisdNode, stop: threading.Event) -> int:
    """Play the configured episodes, or wait for a signal on a real robot; return the exit code."""
    while not stop.wait(POLL_S):
        if node.fatal:
            node.get_logger().fatal(node.fatal)
            return EXIT_FATAL
        simulation = node.graph and node.graph.simulation
        if simulation and node.state == ACTIVE:
            return play_configured(simulation, stop)
    return 0


def main(args: Sequence[str] | None = None) -> int:
    """Run all nodes in one process."""
    return run_node(lambda context: HeisdNode(context=context), args, work)


def _nothing() -> None:
    """Close a node that has nothing to close."""
