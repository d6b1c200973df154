"""Every parameter of a decoder process with values it must refuse, set by service."""

from __future__ import annotations

import math
from typing import Any

from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import DescribeParameters, GetParameters, SetParameters
from rclpy.parameter import Parameter
from ros_fakes import wait_until

from bench.reliability.outcome import Figure, Outcome, Row, Settings, all_of, none_of
from bench.reliability.world import START_S, Operator, World, need
from heisd_ros.config import HeisdConfig, to_flat

NODE = "decoder_node"
BATCH = 25
WRONG = {
    bool: ["yes", 2, 1.5],
    int: [math.nan, math.inf, 0.5, "many", True, -(10**12), 10**12],
    float: [math.nan, math.inf, -math.inf, "fast", True, -1e30, 1e30],
    str: [7, 1.5, True],
    tuple: ["a", 3, True],
}


def fuzz(settings: Settings) -> Outcome:
    """Set wrong values, misspelt names, and whole numbers where a fraction is meant."""
    flat = to_flat(HeisdConfig())
    wrong = [(name, value) for name, old in flat.items() for value in WRONG[type(old)]]
    wrong += [(f"{name[:-1]}", 1) for name in flat if name[:-1] not in flat]
    whole = [(name, round(old)) for name, old in flat.items() if isinstance(old, float)]
    with World(settings.logs) as world:
        robot = world.operator
        world.start(NODE, "-p", "ros.autostart:=false")
        need(wait_until(lambda: robot.diagnosis(NODE), START_S), "the node")
        before = _values(robot, list(flat))
        refused, reasons, changed = _refusals(robot, wrong, before)
        accepted = sum(result.successful for result in _set(robot, whole))
        in_range = sum(_is_possible(name, value) for name, value in whole)
        documented, ranged = _descriptions(robot, flat)
        deaths = world.deaths()
    numbers = sum(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in flat.values()
    )
    return Outcome(
        f"{len(wrong)} values of {len(flat)} parameters",
        (
            all_of("wrong values and names refused", refused, len(wrong)),
            all_of("refusals with a reason", reasons, len(wrong)),
            none_of("parameters changed by them", changed),
            all_of("whole numbers taken for fractions, where in range", accepted, in_range),
            all_of("parameters with a description", documented, len(flat)),
            all_of("numbers with a range", ranged, numbers),
            none_of("processes that ended", deaths),
            Figure("parameters", len(flat)),
        ),
    )


def _refusals(robot: Operator, wrong: list[tuple[str, Any]], before: list[Any]):
    results = _set(robot, wrong)
    refused = [result for result in results if not result.successful]
    for (name, value), result in zip(wrong, results, strict=True):
        if result.successful:
            print(f"    accepted: {name} = {value!r}")
    names = list(to_flat(HeisdConfig()))
    after = _values(robot, names)
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    return len(refused), sum(bool(result.reason) for result in refused), changed


def _is_possible(name: str, value: int) -> bool:
    from heisd_ros.config import checked_value
    from heisd_ros.errors import ConfigError

    try:
        checked_value(name, value)
    except ConfigError:
        return False
    return True


def _set(robot: Operator, pairs: list[tuple[str, Any]]) -> list[Any]:
    results = []
    for start in range(0, len(pairs), BATCH):
        part = [Parameter(n, value=v).to_parameter_msg() for n, v in pairs[start : start + BATCH]]
        results += robot.ask(f"{NODE}/set_parameters", SetParameters, parameters=part).results
    return results


def _values(robot: Operator, names: list[str]) -> list[str]:
    answer = robot.ask(f"{NODE}/get_parameters", GetParameters, names=names)
    return [repr(value) for value in answer.values]


def _descriptions(robot: Operator, flat: dict[str, Any]) -> tuple[int, int]:
    answer = robot.ask(f"{NODE}/describe_parameters", DescribeParameters, names=list(flat))
    numeric = (ParameterType.PARAMETER_DOUBLE, ParameterType.PARAMETER_INTEGER)
    described = sum(bool(found.description) for found in answer.descriptors)
    ranged = sum(
        bool(found.floating_point_range or found.integer_range)
        for found in answer.descriptors
        if found.type in numeric
    )
    return described, ranged


ROWS = (
    Row(
        "parameter_fuzz",
        "Wrong values for every parameter, misspelt names, whole numbers for fractions",
        "all wrong ones refused with a reason, nothing changed; all documented and with ranges",
        fuzz,
    ),
)
