"""The composition root: the only place that joins concrete classes (they are in `composition/`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from heisd_ros.composition.components import (
    Components,
    build_components,
    build_encoder,
    build_random_draft_head,
    build_shape,
    build_target,
    checkpoint_dir,
    free_memory,
    hardware,
)
from heisd_ros.composition.drafts import build_continuations, build_drafter, build_sources
from heisd_ros.composition.rules import build_rule, build_schedule, build_skip
from heisd_ros.composition.stores import NONE, build_store, embedding_facts
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.decoder import HybridDecoder
from heisd_ros.decode.methods import Method, method_config, method_named
from heisd_ros.decode.policy import HeisdPolicy
from heisd_ros.decode.selector import BoundarySelector, FixedSelector, Selector
from heisd_ros.protocols import Environment
from heisd_ros.trajectory.metric import TrajectoryMeter

__all__ = [
    "NONE",
    "Components",
    "build_components",
    "build_decoder",
    "build_drafter",
    "build_encoder",
    "build_environment",
    "build_policy",
    "build_random_draft_head",
    "build_rule",
    "build_schedule",
    "build_shape",
    "build_skip",
    "build_store",
    "build_target",
    "checkpoint_dir",
    "embedding_facts",
    "free_memory",
    "hardware",
]


def build_policy(
    config: HeisdConfig,
    components: Components | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> HeisdPolicy:
    """Build the policy of `config.decode.method`; loads what `components` does not bring.

    Args:
        config: All of it.
        components: A loaded model and store to share.
        clock: Times the stages; returns seconds.
    """
    parts = components or build_components(config)
    return HeisdPolicy(
        build_decoder(config, parts, clock=clock),
        parts.encoder,
        TrajectoryMeter(method_config(config).trajectory),
        gripper_max_m=config.command.gripper_max_m,
        clock=clock,
    )


def build_decoder(
    config: HeisdConfig, parts: Components, *, clock: Callable[[], float] = time.perf_counter
) -> HybridDecoder:
    """Turn a named method into one configured decode loop.

    Raises:
        ConfigError: If the method needs a drafter and there is none.
        ModelError: If the drafter does not fit the target.
    """
    config = method_config(config)
    method = method_named(config.decode.method)
    return HybridDecoder(
        parts.target,
        parts.tokenizer,
        parts.statistics,
        selector=_selector(config, method),
        sources=build_sources(config, method, parts),
        continuations=build_continuations(config, method, parts),
        schedule=build_schedule(config.verify, parts.tokenizer),
        skip=build_skip(config.skip, suite=config.simulation.suite, tokenizer=parts.tokenizer),
        clock=clock,
    )


def build_environment(config: HeisdConfig) -> Environment:
    """Load the configured simulated task."""
    from heisd_ros.simulation.libero import LiberoEnvironment  # MuJoCo only when needed

    simulation = config.simulation
    return LiberoEnvironment(simulation.suite, simulation.task, image_size=simulation.image_size)


def _selector(config: HeisdConfig, method: Method) -> Selector:
    if method.fixed is not None:
        return FixedSelector(method.fixed)
    trajectory = config.trajectory
    return BoundarySelector(
        trajectory.threshold, hysteresis=trajectory.hysteresis, dwell=trajectory.dwell
    )
