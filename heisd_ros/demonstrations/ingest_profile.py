"""What the numbers and pictures of a foreign data set mean: said by the user, stored, printed.

A wrong answer here still gives a store that looks right and drafts that are not. So nothing is
guessed from shapes: what neither the format nor the user says is an error that names the option.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from heisd_ros.action_space.gripper import MAX_OPENING_M
from heisd_ros.errors import ConfigError

FLIPS = ("none", "v", "180")
OBSERVATIONS = ("before", "after")
GRIPPERS = ("open_is_one", "closed_is_one", "minus_one_open", "plus_one_open", "position_m")
ACTIONS = ("delta", "absolute", "twist")
ROTATIONS = ("axis_angle", "euler_xyz", "quaternion_xyzw")
NO_OPS = ("keep", "drop")
STATES = ("none", "axis_angle_fingers", "quaternion_gap")
SUCCESSES = ("recorded", "assume")

REASONS = {
    "flip": "LIBERO's own files are upside down, RLDS copies are turned already; give what makes a "
    "picture as the served model sees it",
    "observation": "raw LIBERO records the picture after the action of its row, most others before",
    "gripper": "signs differ: LIBERO has -1 = open, OpenVLA's statistics 1 = open",
    "action": "a change of pose per step, an absolute pose, or a velocity look alike in an array",
    "control_hz": "the file does not say how many steps a second has, and a change of pose means "
    "another speed at another rate",
    "rotation": "the orientation of an absolute pose can be spelt in three ways",
    "translation_scale": "metres per action unit of the served checkpoint",
    "rotation_scale": "radians per action unit of the served checkpoint",
    "state": "a change of pose needs the measured pose, and the layout of the state is not known",
}
CHOICES = {
    "flip": FLIPS,
    "observation": OBSERVATIONS,
    "gripper": GRIPPERS,
    "action": ACTIONS,
    "rotation": ROTATIONS,
    "no_ops": NO_OPS,
    "state": STATES,
    "success": SUCCESSES,
}
OPTIONS = {"control_hz": "--rate"}
"""Options that are not spelt like their field."""


@dataclass(frozen=True, slots=True)
class IngestProfile:
    """How to read a data set.

    Attributes:
        flip: none, v (upside down) or 180 (turned by half): what has to be done to its pictures.
        observation: Whether row t holds what was seen before or after action t. After: action
            t + 1 belongs to it, and the first action of an episode is lost.
        gripper: Meaning of the last action value: open_is_one (0 closed), closed_is_one (0 open),
            minus_one_open (+1 closed; LIBERO), plus_one_open (-1 closed), position_m.
        action: delta (change of pose per step, in action units of the served model), absolute
            (target pose, metres) or twist (m/s and rad/s).
        control_hz: Steps per second.
        rotation: Spelling of an absolute orientation; empty for the others.
        translation_scale: Metres per action unit; needed for absolute and twist, else 0.
        rotation_scale: Radians per action unit; likewise.
        no_ops: drop leaves out steps that neither move nor switch the gripper.
        state: Layout of the state vector: none (unknown, positions become nan),
            axis_angle_fingers (3 + 3 + 2, LIBERO) or quaternion_gap (3 + 4 + 1, ours).
        success: recorded takes the verdict of the file, assume believes every episode.
        image_size: Side that pictures are resized to, pixels; 0 leaves them alone.
        gripper_max_m: Finger distance of an open gripper for position_m, metres.
    """

    flip: str
    observation: str
    gripper: str
    action: str
    control_hz: float
    rotation: str = ""
    translation_scale: float = 0.0
    rotation_scale: float = 0.0
    no_ops: str = "keep"
    state: str = "none"
    success: str = "recorded"
    image_size: int = 0
    gripper_max_m: float = MAX_OPENING_M

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known and not (name == "rotation" and value == ""):
                raise ConfigError(
                    f"{_option(name)} must be one of {', '.join(known)}; got {value!r}"
                )
        for name in ("control_hz", "gripper_max_m"):
            _check_positive(name, getattr(self, name))
        if self.action != "delta":
            for name in ("translation_scale", "rotation_scale"):
                _check_positive(name, getattr(self, name))
        if self.image_size < 0:
            raise ConfigError(f"--image-size must not be negative, got {self.image_size}")

    def to_text(self) -> str:
        """Return the profile as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    def lines(self) -> list[str]:
        """Return one line per fact, for people."""
        facts = asdict(self)
        if self.action == "delta":
            facts = {k: v for k, v in facts.items() if not k.endswith("_scale") and k != "rotation"}
        if self.gripper != "position_m":
            del facts["gripper_max_m"]
        return [f"  {name:<17} {value}" for name, value in facts.items()]


PRESETS: dict[str, dict[str, object]] = {
    # As downloaded: pictures upside down, observation after the action.
    "libero_original": {
        "flip": "180", "observation": "after", "gripper": "minus_one_open", "action": "delta",
        "control_hz": 20.0,
    },
    # Replayed by OpenVLA's script: observation before the action, still upside down.
    "libero_regenerated": {
        "flip": "180", "observation": "before", "gripper": "minus_one_open", "action": "delta",
        "control_hz": 20.0,
    },
    # modified_libero_rlds: the pictures are turned already.
    "libero_rlds": {
        "flip": "none", "observation": "before", "gripper": "minus_one_open", "action": "delta",
        "control_hz": 20.0, "state": "axis_angle_fingers",
    },
    # LeRobot mirrors of the same set: they say 10 frames a second, LIBERO steps at 20.
    "libero_lerobot": {
        "flip": "none", "observation": "before", "gripper": "minus_one_open", "action": "delta",
        "control_hz": 20.0, "state": "axis_angle_fingers",
    },
    # What `heisd export` writes.
    "heisd": {
        "flip": "none", "observation": "before", "gripper": "open_is_one", "action": "delta",
        "state": "quaternion_gap",
    },
}  # fmt: skip
"""Answers for well-known data sets; single options override them."""


def resolve_profile(
    given: Mapping[str, Any], settled: Mapping[str, Any], *, preset: str = "", source: str = ""
) -> IngestProfile:
    """Return the profile of a data set, or say which options are missing.

    Args:
        given: What the user said; None stands for not said.
        settled: What the format or the file says by itself.
        preset: Name in `PRESETS`; stronger than the file, weaker than the user.
        source: Name of the data set for the message.

    Raises:
        ConfigError: If something is unknown, out of range, or said by nobody.
    """
    if preset and preset not in PRESETS:
        raise ConfigError(f"--preset must be one of {', '.join(PRESETS)}; got {preset!r}")
    values: dict[str, Any] = {**settled, **PRESETS.get(preset, {})}
    values.update({name: value for name, value in given.items() if value is not None})
    missing = [name for name in _needed(values) if values.get(name) in (None, "")]
    if missing:
        options = "; ".join(_explained(name) for name in missing)
        raise ConfigError(
            f"{source or 'the data set'} is ambiguous. Give {options}. "
            f"Or give --preset {'|'.join(PRESETS)}"
        )
    known = {field.name for field in fields(IngestProfile)}
    profile = IngestProfile(**{name: v for name, v in values.items() if name in known})
    if profile.action == "absolute" and profile.state == "none":
        raise ConfigError(f"{source or 'the data set'} is ambiguous. Give {_explained('state')}")
    return profile


def profile_from_text(text: str) -> IngestProfile:
    """Return the profile that `to_text` wrote.

    Raises:
        ConfigError: If the text is something else.
    """
    try:
        return IngestProfile(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"expected an ingest profile as JSON, got {text[:80]!r}") from error


def with_rate(profile: IngestProfile, control_hz: float) -> IngestProfile:
    """Return the profile with another rate."""
    return replace(profile, control_hz=control_hz)


def _needed(values: Mapping[str, Any]) -> list[str]:
    names = ["flip", "observation", "gripper", "action", "control_hz"]
    if values.get("action") in ("absolute", "twist"):
        names += ["translation_scale", "rotation_scale"]
    if values.get("action") == "absolute":
        names.append("rotation")
    return names


def _explained(name: str) -> str:
    choices = "|".join(CHOICES[name]) if name in CHOICES else "NUMBER"
    return f"{_option(name)} {choices} ({REASONS[name]})"


def _option(name: str) -> str:
    return OPTIONS.get(name, "--" + name.replace("_", "-"))


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigError(f"{_option(name)} must be positive and finite, got {value}")
