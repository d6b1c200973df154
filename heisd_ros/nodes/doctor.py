"""`heisd doctor`: is everything there that a robot needs, and what must be fixed?

Publishes nothing and moves nothing. Give it the parameter files and the remappings of your nodes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from heisd_ros.config import HeisdConfig, make_config, read_values
from heisd_ros.diagnosis.check_graph import check_graph
from heisd_ros.diagnosis.check_system import check_steps, check_system, has_profile
from heisd_ros.diagnosis.facts import GraphFacts, SystemFacts
from heisd_ros.diagnosis.finding import Finding, exit_code, fail, page, skipped
from heisd_ros.diagnosis.gather import gather_steps, gather_system
from heisd_ros.errors import ConfigError


def main(argv: Sequence[str]) -> int:
    """Run the checks; exit code 1 if one failed."""
    own, ros = split_arguments(argv)
    options = _parser().parse_args(own)
    system = gather_system()
    findings = check_system(system)
    try:
        config = _config(options.params)
    except ConfigError as error:
        findings.append(fail("parameters", str(error), "correct the file"))
    else:
        findings += check_steps(gather_steps(config, load=not options.no_model))
        findings += _graph(config, system, ros, options)
    sys.stdout.write(page(findings) + "\n")
    return exit_code(findings)


def _config(files: Sequence[Path]) -> HeisdConfig:
    values: dict[str, object] = {}
    for file in files:
        values.update(read_values(file))
    return make_config(values)


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what is ours and what follows `--ros-args`, with it."""
    arguments = list(argv)
    place = arguments.index("--ros-args") if "--ros-args" in arguments else len(arguments)
    return arguments[:place], arguments[place:]


def _graph(
    config: HeisdConfig, system: SystemFacts, ros: Sequence[str], options: argparse.Namespace
) -> list[Finding]:
    if options.no_ros:
        return [skipped("ROS graph", "not looked at, as asked")]
    if system.ros_import_error or system.messages_import_error:
        return [skipped("ROS graph", "not looked at: see rclpy above")]
    facts = _listen(config, ros, options.seconds)
    alive = any(topic.publishers for topic in facts.topics.values())
    if not (alive or facts.image_topics or options.robot):
        note = "no topic of a robot is there; start its drivers and run again"
        return [skipped("ROS graph", f"{note} (with --robot this is a failure)")]
    return check_graph(facts, config, profile=has_profile(system))


def _listen(config: HeisdConfig, ros: Sequence[str], seconds: float) -> GraphFacts:
    from heisd_ros.nodes.graph_facts import gather_graph  # rclpy only where it is installed
    from heisd_ros.nodes.runtime import ros_context

    with ros_context(list(ros)) as context:
        return gather_graph(config, context, seconds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heisd doctor",
        description=__doc__,
        epilog="Behind --ros-args: the remappings, namespace and use_sim_time of your nodes.",
    )
    add = parser.add_argument
    add("--params", type=Path, action="append", default=[], help="YAML file; may be repeated")
    add("--seconds", type=float, default=5.0, help="how long to listen to the topics [5]")
    add("--no-model", action="store_true", help="do not load the weights")
    add("--no-ros", action="store_true", help="do not look at the ROS graph")
    add("--robot", action="store_true", help="fail when no robot is there")
    return parser
