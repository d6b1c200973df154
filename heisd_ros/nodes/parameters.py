"""The configuration as ROS parameters, declared from the fields of `heisd_ros.config`."""

from __future__ import annotations

from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from heisd_ros.config import (
    FieldSpec,
    HeisdConfig,
    checked_value,
    field_spec,
    make_config,
    parameter_names,
    to_flat,
)
from heisd_ros.errors import ConfigError

FOREIGN_PREFIXES = ("use_sim_time", "qos_overrides.", "start_type_description_service")
"""Parameters that rclpy itself declares."""


class NodeParameters:
    """Every configuration field as a parameter of one node: settable until the node is configured.

    An integer is accepted for a floating-point field, also in lists.

    Attributes:
        fixed: While True every change is refused, with the reason.
    """

    def __init__(self, node: Node, base: HeisdConfig | None = None) -> None:
        """Declare all fields with the overrides of command line and parameter file.

        An override that is wrong is kept for `read` to refuse, so that the node can say so; its
        parameter has the base value meanwhile.

        Args:
            node: The node whose overrides are read.
            base: Values of what is not overridden; None for the defaults.
        """
        self.fixed = False
        self._node = node
        self._known = known = parameter_names()
        self._wrong: dict[str, Any] = {}
        given = self._given()
        values = to_flat(base or HeisdConfig())
        self._wrong.update({name: value for name, value in given.items() if name not in known})
        for name, default in values.items():
            value = self._checked_or_noted(name, given[name], default) if name in given else default
            _, item = known[name]
            descriptor = describe(name, field_spec(item), item.default)
            node.declare_parameter(name, _wire_value(value), descriptor, ignore_override=True)
        node.add_pre_set_parameters_callback(self._convert)
        node.add_on_set_parameters_callback(self._judge)
        node.add_post_set_parameters_callback(self._forget_faults)

    def read(self) -> HeisdConfig:
        """Return the checked whole.

        Raises:
            ConfigError: For an unknown name (the nearest known one is named), a wrong type, or a
                value out of range.
        """
        values = {name: self.value(name) for name in self._known}
        return make_config({**values, **self._wrong})

    def value(self, name: str) -> Any:  # noqa: ANN401  (any parameter type)
        """Return the value of one field; that of the base if its override is wrong."""
        return self._node.get_parameter(name).value

    def _given(self) -> dict[str, Any]:
        # rclpy offers no public way to see overrides of parameters that nobody declares.
        return {
            name: parameter.value
            for name, parameter in self._node._parameter_overrides.items()
            if not name.startswith(FOREIGN_PREFIXES)
        }

    def _checked_or_noted(self, name: str, value: Any, default: Any) -> Any:  # noqa: ANN401
        try:
            return checked_value(name, value, self._known)
        except ConfigError:
            self._wrong[name] = value
            return default

    def _convert(self, parameters: list[Parameter]) -> list[Parameter]:
        """Turn what is given for our fields into the field's own type; leave wrong values alone."""
        return [self._converted(parameter) for parameter in parameters]

    def _converted(self, parameter: Parameter) -> Parameter:
        try:
            value = checked_value(parameter.name, parameter.value, self._known)
        except ConfigError:
            return parameter
        return Parameter(parameter.name, value=_wire_value(value))

    def _judge(self, parameters: list[Parameter]) -> SetParametersResult:
        for parameter in parameters:
            if parameter.name not in self._known:
                continue
            if self.fixed:
                reason = f"{parameter.name} is read-only until the node is cleaned up"
                return SetParametersResult(successful=False, reason=reason)
            try:
                checked_value(parameter.name, parameter.value, self._known)
            except ConfigError as error:
                return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _forget_faults(self, parameters: list[Parameter]) -> None:
        for parameter in parameters:
            self._wrong.pop(parameter.name, None)


def read_config(node: Node, base: HeisdConfig | None = None) -> HeisdConfig:
    """Declare every configuration field as a parameter that stays as it is; return the whole.

    Args:
        node: The node whose overrides (command line, parameter file) are read.
        base: Values of what is not overridden; None for the defaults.

    Raises:
        ConfigError: For an unknown name (the nearest known one is named), a wrong type, or a
            value out of range.
    """
    parameters = NodeParameters(node, base)
    parameters.fixed = True
    return parameters.read()


def to_overrides(config: HeisdConfig) -> list[Parameter]:
    """Return the whole configuration as overrides, which win over command line and files."""
    return [Parameter(name, value=_wire_value(value)) for name, value in to_flat(config).items()]


def describe(name: str, spec: FieldSpec, default: Any) -> ParameterDescriptor:  # noqa: ANN401
    """Return help, range and choices of a field as a parameter descriptor."""
    descriptor = ParameterDescriptor(
        name=name,
        description=f"{spec.help} Source of the default: {spec.source}.",
        additional_constraints=f"one of {', '.join(spec.choices)}" if spec.choices else "",
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
