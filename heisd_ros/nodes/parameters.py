"""The configuration as ROS parameters, declared from the fields of `heisd_ros.config`."""

from __future__ import annotations

from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from heisd_ros.config import (
    FieldSpec,
    HeisdConfig,
    field_spec,
    make_config,
    parameter_names,
    to_flat,
)

FOREIGN_PREFIXES = ("use_sim_time", "qos_overrides.", "start_type_description_service")
"""Parameters that rclpy itself declares."""


def read_config(node: Node, base: HeisdConfig | None = None) -> HeisdConfig:
    """Declare every configuration field as a read-only parameter and return the checked whole.

    An integer is accepted for a floating-point field, also in lists.

    Args:
        node: The node whose overrides (command line, parameter file) are read.
        base: Values of what is not overridden; None for the defaults.

    Raises:
        ConfigError: For an unknown name (the nearest known one is named), a wrong type, or a
            value out of range.
    """
    # rclpy offers no public way to see overrides of parameters that nobody declares.
    overrides = {
        name: parameter.value
        for name, parameter in node._parameter_overrides.items()
        if not name.startswith(FOREIGN_PREFIXES)
    }
    config = make_config({**to_flat(base or HeisdConfig()), **overrides})
    known = parameter_names()
    for name, value in to_flat(config).items():
        _, item = known[name]
        descriptor = describe(name, field_spec(item), item.default)
        node.declare_parameter(name, _wire_value(value), descriptor, ignore_override=True)
    return config


def describe(name: str, spec: FieldSpec, default: Any) -> ParameterDescriptor:  # noqa: ANN401
    """Return help, range and choices of a field as a parameter descriptor."""
    descriptor = ParameterDescriptor(
        name=name,
        description=f"{spec.help} Source of the default: {spec.source}.",
        additional_constraints=f"one of {', '.join(spec.choices)}" if spec.choices else "",
        read_only=True,
    )
    bounded = spec.low is not None and spec.high is not None
    if bounded and isinstance(default, int):
        descriptor.integer_range = [
            IntegerRange(from_value=int(spec.low or 0), to_value=int(spec.high or 0), step=1)
        ]
    elif bounded and isinstance(default, float):
        descriptor.floating_point_range = [
            FloatingPointRange(from_value=spec.low or 0.0, to_value=spec.high or 0.0, step=0.0)
        ]
    return descriptor


def _wire_value(value: Any) -> Any:  # noqa: ANN401  (any parameter type)
    return list(value) if isinstance(value, tuple) else value
