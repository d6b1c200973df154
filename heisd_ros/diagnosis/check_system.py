"""Checks of what is installed and of what can be loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence

from heisd_ros.diagnosis.facts import StepFacts, SystemFacts
from heisd_ros.diagnosis.finding import Finding, fail, ok, skipped, warn

OLDEST_PYTHON = (3, 10)
NEEDED = {
    "numpy": ((1, 26), "pip install 'numpy>=1.26'"),
    "torch": ((2, 5), "pip install 'heisd_ros[models]'"),
    "transformers": ((4, 57), "pip install 'heisd_ros[models]'"),
}
OPTIONAL = {"rosbags": "bags", "rich": "monitor", "qdrant-client": "qdrant"}
NEWEST_TRANSFORMERS = 6
"""The first major version that pyproject.toml excludes."""
FAST_DDS = "rmw_fastrtps_cpp"
PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")


def check_system(facts: SystemFacts) -> list[Finding]:
    """Return findings on Python, packages, ROS and its middleware."""
    return [
        _python(facts),
        *(_package(facts, name) for name in NEEDED),
        *_optional(facts),
        _ros(facts),
        *_profile(facts),
        *_security(facts),
    ]


def check_steps(steps: Sequence[StepFacts]) -> list[Finding]:
    """Return one finding per loading step; our own errors already say what to do."""
    found = []
    for step in steps:
        if step.skipped:
            found.append(skipped(step.name, step.text))
        elif step.failed:
            text, _, remedy = step.text.rpartition("; ")
            found.append(fail(step.name, text or step.text, remedy if text else "see the message"))
        else:
            found.append(ok(step.name, step.text))
    return found


def has_profile(facts: SystemFacts) -> bool:
    """Return whether a Fast DDS profile file is named and exists."""
    return facts.profile_readable and any(name in facts.environment for name in PROFILE_VARIABLES)


def _python(facts: SystemFacts) -> Finding:
    version = ".".join(map(str, facts.python))
    if facts.python[:2] < OLDEST_PYTHON:
        return fail("python", version, "use Python 3.10 or newer")
    return ok("python", version)


def _package(facts: SystemFacts, name: str) -> Finding:
    oldest, remedy = NEEDED[name]
    version = facts.packages.get(name, "")
    if not version:
        return fail(name, "not installed", remedy)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < oldest:
        least = ".".join(map(str, oldest))
        return fail(name, f"{version}, older than {least}", remedy)
    if name == "transformers" and numbers[0] >= NEWEST_TRANSFORMERS:
        return warn(name, f"{version}, newer than what we run", "pip install 'transformers<6'")
    return ok(name, version)


def _optional(facts: SystemFacts) -> list[Finding]:
    found = []
    for name, extra in OPTIONAL.items():
        version = facts.packages.get(name, "")
        missing = skipped(name, f"not installed; only for pip install 'heisd_ros[{extra}]'")
        found.append(ok(name, version) if version else missing)
    return found


def _ros(facts: SystemFacts) -> Finding:
    if facts.ros_import_error:
        return skipped("rclpy", f"{facts.ros_import_error}; topics and clocks were not checked")
    if facts.messages_import_error:
        return fail(
            "heisd_ros.msg",
            facts.messages_import_error,
            "install the package in this environment (pip install . or colcon build, then source)",
        )
    domain = facts.environment.get("ROS_DOMAIN_ID", "0")
    return ok("rclpy", f"{facts.packages.get('rclpy', '') or 'found'}, domain {domain}")


def _profile(facts: SystemFacts) -> list[Finding]:
    named = [facts.environment[name] for name in PROFILE_VARIABLES if name in facts.environment]
    if facts.ros_import_error or not named:
        return []  # whether one is needed depends on the pictures
    if not facts.profile_readable:
        return [fail("Fast DDS profile", f"{named[0]} does not exist", "correct or unset it")]
    return [ok("Fast DDS profile", named[0])]


def _security(facts: SystemFacts) -> list[Finding]:
    if facts.environment.get("ROS_SECURITY_ENABLE", "").lower() != "true":
        return []
    if facts.environment.get("ROS_SECURITY_STRATEGY") != "Enforce":
        return [
            warn(
                "SROS 2",
                "on, but nodes without keys start unsecured",
                "export ROS_SECURITY_STRATEGY=Enforce",
            )
        ]
    return [
        ok("SROS 2", f"enforced, keystore {facts.environment.get('ROS_SECURITY_KEYSTORE', '')}")
    ]
