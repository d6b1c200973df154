"""Writes the SROS 2 policy: what each node may publish, hear, serve and ask, and nothing else.

From the same table as the interface page, with what rclpy adds to every node. Needs no ROS.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from heisd_ros.config import HeisdConfig
from heisd_ros.nodes.topics import ENDPOINTS, image_topic

POLICY = Path("config") / "heisd.policy.xml"
ENCLAVE = "/heisd"
MANAGED = ("perception_node", "trajectory_node", "decoder_node", "heisd_node")
PARAMETER_SERVICES = tuple(
    f"~/{name}"
    for name in (
        "describe_parameters",
        "get_parameter_types",
        "get_parameters",
        "list_parameters",
        "set_parameters",
        "set_parameters_atomically",
        "get_type_description",
    )
)
LIFECYCLE_SERVICES = tuple(
    f"~/{name}"
    for name in (
        "change_state",
        "get_available_states",
        "get_available_transitions",
        "get_state",
        "get_transition_graph",
    )
)
LOG, PARAMETER_EVENTS, CLOCK = "/rosout", "/parameter_events", "/clock"


def permissions(node: str) -> dict[tuple[str, str], list[str]]:
    """Return what one node may do, with the default configuration.

    Args:
        node: Name of the node.

    Returns:
        (`topics`, `publish`), (`services`, `reply`) and so on -> names as the policy writes them.
    """
    managed = node in MANAGED
    allowed = {
        ("topics", "publish"): [*_names(node, "out"), LOG, PARAMETER_EVENTS],
        ("topics", "subscribe"): [*_names(node, "in"), PARAMETER_EVENTS, CLOCK],
        ("services", "reply"): [*_names(node, "service"), *PARAMETER_SERVICES],
        ("services", "request"): [],
        ("actions", "execute"): _names(node, "action"),
        ("actions", "call"): [],
    }
    if managed:
        allowed["topics", "publish"].append("~/transition_event")
        allowed["services", "reply"] += LIFECYCLE_SERVICES
    for key, names in _asks(HeisdConfig()).get(node, {}).items():
        allowed[key] += names
    return {key: sorted(set(names)) for key, names in allowed.items() if names}


def nodes() -> list[str]:
    """Return the names of all nodes of the package."""
    return sorted({row.node for row in ENDPOINTS} | {"recorder_node"})


def policy_xml() -> str:
    """Return the policy of one enclave for all nodes, in the root namespace."""
    root = ElementTree.Element("policy", version="0.2.0")
    enclave = ElementTree.SubElement(ElementTree.SubElement(root, "enclaves"), "enclave")
    enclave.set("path", ENCLAVE)
    profiles = ElementTree.SubElement(enclave, "profiles")
    for node in nodes():
        profile = ElementTree.SubElement(profiles, "profile", ns="/", node=node)
        for (kind, right), names in permissions(node).items():
            listed = ElementTree.SubElement(profile, kind, {right: "ALLOW"})
            for name in names:
                ElementTree.SubElement(listed, kind[:-1]).text = name
    ElementTree.indent(root)
    note = "<!-- Written by python -m heisd_ros.nodes.describe; see docs/security_ros.md. -->"
    return f"{note}\n{ElementTree.tostring(root, encoding='unicode')}\n"


def _names(node: str, direction: str) -> list[str]:
    rows = [row.name for row in ENDPOINTS if (row.node, row.direction) == (node, direction)]
    return list(_filled(rows))


def _filled(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        if "<camera>" not in name:
            yield name
            continue
        for camera in HeisdConfig().perception.cameras:
            yield name.replace("<camera>", camera)
            yield image_topic(camera, "compressed")


def _asks(config: HeisdConfig) -> dict[str, dict[tuple[str, str], list[str]]]:
    """What the interface table does not list: what our nodes ask others to do, or record."""
    servo, gripper = config.servo.node, config.gripper.controller
    heard = {row.name for row in ENDPOINTS if row.direction in ("in", "out")}
    recorded = [name for name in _filled(sorted(heard)) if not name.startswith(f"{servo}/")]
    return {
        "servo_adapter_node": {
            ("services", "request"): [f"{servo}/switch_command_type", f"{servo}/get_parameters"]
        },
        "decoder_node": {
            ("topics", "publish"): [f"{gripper}/commands", f"{gripper}/joint_trajectory"],
            ("actions", "call"): [f"{gripper}/gripper_cmd"],
        },
        "recorder_node": {
            ("topics", "subscribe"): [name for name in recorded if not name.startswith("~")]
        },
    }
