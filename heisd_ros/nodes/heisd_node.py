"""All nodes in one process: the patch features never leave it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

from heisd_ros.build import build_components, build_environment, build_policy
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.pilot import Decision, Policy
from heisd_ros.nodes.decoder_node import DecoderNode, watch_fatal
from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.nodes.parameters import read_config
from heisd_ros.nodes.perception_node import PerceptionNode
from heisd_ros.nodes.runtime import NodeThread, ros_context, run_node
from heisd_ros.nodes.simulation_node import SimulationNode, play_configured
from heisd_ros.nodes.trajectory_node import TrajectoryNode
from heisd_ros.protocols import Environment, VisionEncoder
from heisd_ros.types import EpisodeOutcome

OnReport = Callable[[Decision], None]


class ComposedGraph:
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
    ) -> None:
        """Build and start the nodes.

        Args:
            config: Of all nodes.
            context: An initialised context.
            with_simulation: Whether an environment is the robot; time is simulated then.
            environment: None builds the configured one, in the calling thread.
            policy: None builds the configured one.
            encoder: None takes that of the policy's checkpoint.
            on_report: Called on the deciding thread after each decision.
        """
        if policy is None or encoder is None:
            components = build_components(config)
            policy = policy or build_policy(config, components)
            encoder = encoder or components.encoder
        if with_simulation and environment is None:
            environment = build_environment(config)
        exchange = FeatureExchange()
        options: dict[str, Any] = {
            "config": config,
            "context": context,
            "parameter_overrides": [Parameter("use_sim_time", value=with_simulation)],
            # Parameters are read-only and the same on all nodes: one node answers for them, and
            # each executor has six services less to wait for.
            "start_parameter_services": False,
        }
        self._nodes: list[Any] = []
        self._threads: list[NodeThread] = []
        self.decoder = DecoderNode(
            policy=policy, exchange=exchange, on_decision=on_report, **options
        )
        self._start(self.decoder)
        self._start(PerceptionNode(encoder=encoder, exchange=exchange, **options))
        self._start(TrajectoryNode(**options))
        self.simulation: SimulationNode | None = None
        if with_simulation:
            self.simulation = SimulationNode(
                config=config, context=context, environment=environment
            )
            self._start(self.simulation)

    def close(self) -> None:
        """Stop and free everything; the last command on the wire is zero."""
        for node in self._nodes:
            getattr(node, "close", _nothing)()
        for thread in self._threads:
            thread.stop()
        for node in self._nodes:
            node.destroy_node()
        self._nodes.clear()
        self._threads.clear()

    def __enter__(self) -> ComposedGraph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

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


class HeisdNode(Node):
    """Reads the parameters of the process and owns the composed nodes."""

    def __init__(self, *, config: HeisdConfig | None = None, **options: Any) -> None:  # noqa: ANN401
        """Read the configuration, build and start the nodes.

        Args:
            config: Values of parameters that are not overridden; None for the defaults.
            options: Passed on to rclpy.
        """
        super().__init__("heisd_node", **options)
        self.config = read_config(self, config)
        self.graph = ComposedGraph(
            self.config, self.context, with_simulation=self.config.simulation.episodes > 0
        )

    def close(self) -> None:
        """Close the composed nodes."""
        self.graph.close()


def work(node: HeisdNode, stop: threading.Event) -> int:
    """Play the configured episodes, or wait for a signal on a real robot; return the exit code."""
    if node.graph.simulation is not None:
        return play_configured(node.graph.simulation, stop)
    return watch_fatal(node.graph.decoder, stop)


def main(args: Sequence[str] | None = None) -> int:
    """Run all nodes in one process."""
    return run_node(lambda context: HeisdNode(context=context), args, work)


def _nothing() -> None:
    """Close a node that has nothing to close."""
