"""Gathers facts that need no ROS graph: versions, environment, and what can be loaded."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from heisd_ros.action_space.statistics import ActionStatistics, statistics_keys
from heisd_ros.build import build_drafter, build_store, build_target, checkpoint_dir
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.methods import method_named
from heisd_ros.diagnosis.check_system import NEEDED, OPTIONAL, PROFILE_VARIABLES
from heisd_ros.diagnosis.facts import StepFacts, SystemFacts
from heisd_ros.errors import HeisdError
from heisd_ros.protocols import TargetModel

ROS_DISTRIBUTIONS = ("ros-jazzy-rclpy", "ros-kilted-rclpy", "ros-rclpy")
VARIABLES = (
    *("ROS_DOMAIN_ID", "RMW_IMPLEMENTATION", "ROS_AUTOMATIC_DISCOVERY_RANGE"),
    *("ROS_SECURITY_ENABLE", "ROS_SECURITY_STRATEGY", "ROS_SECURITY_KEYSTORE"),
    *PROFILE_VARIABLES,
)


def gather_system(environment: Mapping[str, str] | None = None) -> SystemFacts:
    """Return what is installed.

    Args:
        environment: None for that of the process.
    """
    values = os.environ if environment is None else environment
    known = {name: values[name] for name in VARIABLES if values.get(name)}
    profiles = [known[name] for name in PROFILE_VARIABLES if name in known]
    packages = {name: _version(name) for name in (*NEEDED, *OPTIONAL)}
    packages["rclpy"] = next(filter(None, map(_version, ROS_DISTRIBUTIONS)), "")
    return SystemFacts(
        python=(sys.version_info.major, sys.version_info.minor, sys.version_info.micro),
        packages=packages,
        ros_import_error=_import_error("rclpy"),
        messages_import_error=_import_error("heisd_ros.msg"),
        environment=known,
        profile_readable=bool(profiles) and Path(profiles[0]).is_file(),
    )


def gather_steps(config: HeisdConfig, *, load: bool) -> list[StepFacts]:
    """Return how far the configured model, store and drafter can be loaded.

    Args:
        config: Of the nodes.
        load: False stops after the folder and the statistics, which is quick; True also loads the
            weights, runs the self-check, and compares the store with the encoder.
    """
    steps = [_step("checkpoint", lambda: str(checkpoint_dir(config)))]
    if not steps[0].failed:
        steps.append(_step("statistics", lambda: _statistics(config)))
    if any(step.failed for step in steps):
        why = "not tried: see above"
    elif not load:
        why = "not loaded, as asked"
    else:
        return [*steps, *_loaded(config)]
    names = ("model", "demonstrations", "drafter")
    return steps + [StepFacts(name, why, skipped=True) for name in names]


def _loaded(config: HeisdConfig) -> Iterator[StepFacts]:
    targets: list[TargetModel] = []

    def model() -> str:
        target = build_target(config)
        targets.append(target)
        checked = "self-check passed" if config.model.self_check else "self-check is switched off"
        return f"{target.device}, {target.dtype}, encoder {target.info.fingerprint}, {checked}"

    yield _step("model", model)
    if not targets:
        return
    yield _step("demonstrations", lambda: _store(config, targets[0]))
    yield _step("drafter", lambda: _drafter(config, targets[0]))


def _store(config: HeisdConfig, target: TargetModel) -> str:
    if not method_named(config.decode.method).needs_store:
        return f"method {config.decode.method} uses none"
    store = build_store(config, target.info.fingerprint)
    if store is None:
        return "switched off (retrieval.store none)"
    manifest = getattr(store, "manifest", None)
    size = f"{manifest.rows} steps of {len(manifest.tasks)} tasks, " if manifest else ""
    return f"{size}made by this encoder"


def _drafter(config: HeisdConfig, target: TargetModel) -> str:
    if not method_named(config.decode.method).uses_drafter:
        return f"method {config.decode.method} uses none"
    return "fits the model" if build_drafter(config, target) else "none; Jacobi decoding instead"


def _statistics(config: HeisdConfig) -> str:
    folder = checkpoint_dir(config)
    statistics = ActionStatistics.load(folder, config.model.statistics_key)
    return f"key {statistics.key!r} of {', '.join(statistics_keys(folder))}"


def _step(name: str, load: Callable[[], str]) -> StepFacts:
    try:
        return StepFacts(name, load())
    except HeisdError as error:
        return StepFacts(name, str(error), failed=True)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _import_error(module: str) -> str:
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"{module} cannot be imported: {str(error).splitlines()[0]}"
    return ""
