"""Writes docs/ros_interface.md, config/heisd.yaml and config/heisd.policy.xml.

From topics, messages and configuration. `python -m heisd_ros.nodes.describe` rewrites them; tests
keep them current. Needs no ROS.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

from heisd_ros.config import FieldSpec, HeisdConfig, field_spec, parameter_names
from heisd_ros.nodes.security_policy import POLICY, policy_xml
from heisd_ros.nodes.topics import ENDPOINTS
from heisd_ros.share import share_dir

INTERFACE = Path("docs") / "ros_interface.md"
DEFAULTS = Path("config") / "heisd.yaml"
_NOTE = "python -m heisd_ros.nodes.describe"


def interface_page(root: Path) -> str:
    """Return the page of topics, services, messages and parameters.

    Args:
        root: Folder that holds msg/.
    """
    lines = [
        "# ROS interface",
        "",
        f"Written by `{_NOTE}`; do not edit. All names are relative unless they begin with `/`:",
        "namespaces and remappings apply. Every parameter exists on every node and can be set",
        "while the node is unconfigured; `recorder_node` and `simulation_node` keep what they",
        "began with.",
        "",
        "## Topics, services and actions",
        "",
        "| node | | name | type | content |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {e.node} | {e.direction} | `{e.name}` | {e.kind} | {e.help} |" for e in ENDPOINTS]
    lines += [
        "",
        "`heisd_node` is all of them in one process; `recorder_node` records all topics.",
        "",
        "`perception_node`, `trajectory_node`, `decoder_node` and their supervisor `heisd_node`",
        "are managed nodes (lifecycle): configure reads, checks and loads; activate checks the",
        "model and subscribes; deactivate leaves the arm at rest; cleanup frees the model. With",
        "`ros.autostart` they do the first two by themselves.",
    ]
    lines += ["", "## Messages", ""]
    for path in [*sorted((root / "msg").glob("*")), *sorted((root / "action").glob("*"))]:
        lines += [
            f"### heisd_ros/{path.parent.name}/{path.stem}",
            "",
            "```",
            path.read_text().rstrip(),
            "```",
            "",
        ]
    return "\n".join([*lines, "## Parameters", "", *_parameter_rows(), ""])


def default_yaml() -> str:
    """Return a parameter file with every field, its default and its help."""
    lines = [
        f"# Every parameter with its default. Written by `{_NOTE}`; do not edit:",
        "# put what your robot needs into a second file, see embodiments/.",
        "/**:",
        "  ros__parameters:",
    ]
    for name, kind in get_type_hints(HeisdConfig).items():
        lines += [f"    # {_first_line(kind)}", f"    {name}:"]
        for item in dataclasses.fields(kind):
            spec = field_spec(item)
            lines += [f"      # {spec.help}{_limits(spec, item.default)}"]
            lines += [f"      {item.name}: {yaml_value(item.default)}"]
    return "\n".join(lines) + "\n"


def yaml_value(value: Any) -> str:  # noqa: ANN401  (any parameter type)
    """Return a value as both YAML readers, PyYAML and rcl, understand it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(yaml_value(item) for item in value)}]"
    text = repr(value)
    # PyYAML takes 1e-06 for a string: the mantissa needs a point.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _parameter_rows() -> list[str]:
    rows = [
        "| parameter | default | range | meaning | source of the default |",
        "|---|---|---|---|---|",
    ]
    for name, (_, item) in parameter_names().items():
        spec = field_spec(item)
        limits = _limits(spec, item.default).strip(" ()")
        rows.append(
            f"| `{name}` | `{yaml_value(item.default)}` | {limits} | {spec.help} | {spec.source} |"
        )
    return rows


def _limits(spec: FieldSpec, default: Any) -> str:  # noqa: ANN401  (any parameter type)
    if spec.choices:
        return f" ({', '.join(spec.choices)})"
    if spec.low is None and spec.high is None:
        return ""
    number = int if isinstance(default, int) else float
    low = "-inf" if spec.low is None else number(spec.low)
    high = "inf" if spec.high is None else number(spec.high)
    return f" ({low} .. {high})"


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def main() -> int:
    """Rewrite the files in the checkout."""
    root = share_dir()
    (root / INTERFACE).write_text(interface_page(root), encoding="utf-8")
    (root / DEFAULTS).write_text(default_yaml(), encoding="utf-8")
    (root / POLICY).write_text(policy_xml(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
