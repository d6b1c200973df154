"""The one place for configuration: its schema. YAML holds values, nodes declare from these fields.

Every field has a default, a help text with its unit, bounds, and the source of the default.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from heisd_ros.errors import ConfigError

T = TypeVar("T")
Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What is known about one configuration field beside its type and default."""

    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    source: str = "our decision"


def option(
    default: Any,  # noqa: ANN401  (any scalar or tuple; the annotation of the field is the type)
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    source: str = "our decision",
) -> Any:  # noqa: ANN401
    """Declare a field with default, help (with unit), bounds and the source of the default."""
    spec = FieldSpec(help, low, high, choices, source)
    return field(default=default, metadata={"spec": spec})


@dataclass(frozen=True)
class ModelConfig:
    """The target model."""

    checkpoint: str = option("", "Folder of the checkpoint; empty: the small one we ship.")
    statistics_key: str = option("", "Key of the action statistics; needed if there are several.")
    device: str = option("auto", "Torch device: auto, cpu, cuda, cuda:0 ... [-].")
    dtype: str = option(
        "auto",
        "Weight type; int8 and nf4 quantise the language model and need bitsandbytes [-].",
        choices=("auto", "float32", "bfloat16", "float16", "int8", "nf4"),
    )
    threads: int = option(0, "Torch threads on the CPU [-]; 0: torch's choice.", low=0, high=256)
    self_check: bool = option(True, "Refuse to start if two pictures give the same features.")
    compile: bool = option(
        False, "Compile the language model on fixed shapes: minutes at first, faster on a GPU."
    )
    token_reuse: bool = option(
        False,
        "Keep the K/V rows of patches that did not change since the step before; lossy.",
        source="VLA-Cache",
    )
    token_reuse_similarity: float = option(
        0.98,
        "Smallest cosine of a patch's centred features with those its row was made of [-].",
        low=-1.0,
        high=1.0,
    )
    token_reuse_share: float = option(
        0.55,
        "Largest share of the patches reused in one step [-].",
        low=0.0,
        high=1.0,
        source="VLA-Cache: 140 of 256",
    )
    token_reuse_relevant: float = option(
        0.25,
        "Share of the patches never reused, those the text looks at most; 0: none [-].",
        low=0.0,
        high=1.0,
    )
    token_reuse_refresh: int = option(
        8, "Every so many steps all rows are run again [steps].", low=1, high=1000
    )


@dataclass(frozen=True)
class PerceptionConfig:
    """Cameras and pictures."""

    cameras: tuple[str, ...] = option(
        ("third_person", "wrist"), "Camera names in view order; the first is fed to the model."
    )
    rotate_deg: int = option(
        0, "Rotation of every picture before encoding [deg].", low=0, high=270, source="OpenVLA"
    )
    crop_area: float = option(
        1.0, "Area kept by the centre crop [-].", low=0.1, high=1.0, source="OpenVLA LIBERO: 0.9"
    )
    pairing_tolerance_s: float = option(
        0.05, "Largest stamp difference of one set of frames [s].", low=0.0, high=1.0
    )
    pool: str = option(
        "mean",
        "Pooling of the DINO patches in the retrieval embedding [-].",
        choices=("mean", "last_patch"),
        source="our decision; last_patch: the published code",
    )
    normalise: str = option(
        "blocks",
        "Unit norm of each tower and view in the retrieval embedding, or of the whole [-].",
        choices=("blocks", "whole"),
        source="our decision; whole: the published code",
    )


@dataclass(frozen=True)
class TrajectoryConfig:
    """Window, metric and boundary (Eq. 4-8)."""

    window: int = option(
        15, "Positions in the sliding window w [-].", low=3, high=200, source="HeiSD"
    )
    alpha: float = option(0.5, "Weight of the radius in F [-].", low=0.0, high=1.0, source="HeiSD")
    radius: str = option(
        "centroid",
        "Kind of curvature radius [-].",
        choices=("centroid", "taubin", "lsq"),
        source="the published code reduces to centroid",
    )
    displacement: str = option(
        "path",
        "Kind of displacement [-].",
        choices=("path", "last_to_all", "chord"),
        source="Eq. 7",
    )
    radius_low: float = option(0.0, "Radius that normalises to 0 [m].", low=0.0, high=10.0)
    radius_high: float = option(
        0.04, "Radius that normalises to 1 (95th percentile) [m].", low=1e-6, high=10.0
    )
    displacement_low: float = option(
        0.0, "Displacement that normalises to 0 [m].", low=0.0, high=100.0
    )
    displacement_high: float = option(
        0.15, "Displacement that normalises to 1 (95th percentile) [m].", low=1e-6, high=100.0
    )
    threshold: float = option(
        0.2, "F above it selects retrieval [-].", low=0.0, high=1.0, source="calibration"
    )
    hysteresis: float = option(
        0.9, "Retrieval is left only below threshold times this [-].", low=0.0, high=1.0
    )
    dwell: int = option(2, "Fewest steps in one mode [steps].", low=0, high=100)
    max_speed: float = option(
        2.0, "A faster pose is a teleport: the window is cleared [m/s].", low=0.01, high=100.0
    )
    max_gap_s: float = option(
        2.0, "A longer pause between two poses clears the window [s].", low=0.01, high=100.0
    )
    max_radius: float = option(
        10.0, "Radius reported for a straight line with a fitted circle [m].", low=0.01, high=1e4
    )


@dataclass(frozen=True)
class RetrievalConfig:
    """The demonstration store."""

    store: str = option(
        "",
        "Folder of the store, or grpc[s]:// or http[s]://host:port/collection of a Qdrant server; "
        "empty: the one we ship; none: no retrieval.",
    )
    top_k: int = option(5, "Neighbours per query K [-].", low=1, high=32, source="HeiSD scripts")
    min_score: float = option(
        -1.0, "Neighbours below this cosine are dropped [-].", low=-1.0, high=1.0
    )
    timeout_s: float = option(
        0.05, "Longest wait for a server's answer; then the step goes on [s].", low=0.001, high=10.0
    )
    pause_s: float = option(
        1.0, "After a failure a server is left alone for this long [s].", low=0.0, high=60.0
    )


@dataclass(frozen=True)
class DraftConfig:
    """The draft tree."""

    recombine: bool = option(
        True, "Let every position sequence meet every rotation sequence.", source="HeiSD"
    )
    max_nodes: int = option(96, "Largest draft tree [nodes].", low=6, high=1024)
    drafter: str = option(
        "", "Folder of the draft head; empty: the one we ship, for our model; none: no drafter."
    )
    drafter_nodes: int = option(
        50, "Nodes of a drafter's tree with its root [nodes].", low=2, high=1024, source="Spec-VLA"
    )
    drafter_depth: int = option(
        4, "Expansions behind a tree's first level [-].", low=0, high=5, source="Spec-VLA"
    )
    drafter_top_k: int = option(
        8, "Candidates per node and width of the beam [-].", low=1, high=64, source="Spec-VLA"
    )


@dataclass(frozen=True)
class VerifyConfig:
    """The acceptance rule (HeiSD section 4.3)."""

    rule: str = option(
        "sequence_relaxed",
        "Acceptance rule [-].",
        choices=("exact", "token_relaxed", "sequence_relaxed"),
        source="HeiSD",
    )
    sequence_budget: int = option(
        30, "Largest summed bias of one sequence [bins].", low=0, high=1000, source="HeiSD"
    )
    token_budget: int = option(
        15, "Largest bias of one token [bins].", low=0, high=255, source="HeiSD"
    )
    strict: bool = option(False, "Compare with < instead of <=.", source="the published code: true")
    drafter_rule: str = option(
        "token_relaxed",
        "Acceptance rule of steps below the boundary [-].",
        choices=("exact", "token_relaxed", "kinematic", "decaying"),
        source="Spec-VLA; kinematic, decaying: KERV",
    )
    drafter_tolerance: int = option(
        9,
        "Largest bias of one token there [bins].",
        low=0,
        high=255,
        source="Spec-VLA",
    )
    tighten: bool = option(False, "Smaller budgets at rest and near contact (WA-style).")
    tighten_min_scale: float = option(
        0.5, "Share of the budgets that is left at rest [-].", low=0.0, high=1.0
    )
    tighten_reference: float = option(
        0.2, "F from which the budgets are whole [-].", low=1e-3, high=1.0
    )
    tighten_min_height: float = option(
        -10.0,
        "An end effector below this height counts as near contact, frame of the pose [m].",
        low=-10.0,
        high=10.0,
    )
    tighten_max_force: float = option(
        0.0,
        "A force above this, or an unknown one, counts as near contact; 0: no wrench is used [N].",
        low=0.0,
        high=10000.0,
    )
    tighten_contact_scale: float = option(
        0.3, "Further factor near contact; 0: exact [-].", low=0.0, high=1.0
    )
    tighten_contact_steps: int = option(
        8, "Steps around a transition that count as near [steps].", low=0, high=100
    )


@dataclass(frozen=True)
class SkipConfig:
    """Which drafts are executed unverified (HeiSD Algorithm 1)."""

    rule: str = option(
        "never",
        "never; always: retrieval alone; schedule: the published code's fixed run; adaptive: "
        "learned thresholds; audited: adaptive while audits bound the deviation [-].",
        choices=("never", "always", "schedule", "adaptive", "audited"),
    )
    thresholds: str = option(
        "", "File of `heisd calibrate --skip`; empty: the one we ship for simulation.suite."
    )
    learned: str = option(
        "calibrated",
        "Which of its thresholds [-].",
        choices=("paper", "calibrated"),
        source="our decision; paper: Algorithm 1",
    )
    state: str = option(
        "",
        "File that keeps what the feedback after each task learned, for one process at a time; "
        "empty: forgotten at the end.",
    )
    state_fresh: bool = option(False, "Start anew, whatever skip.state holds.")
    max_consecutive: int = option(
        2, "Most skips in a row [steps].", low=0, high=100, source="the published code"
    )
    min_score: float = option(
        0.90, "Smallest cosine of the best neighbour [-].", low=-1.0, high=1.0
    )
    max_spread: float = option(
        30.0, "Largest disagreement of the neighbours' position [bins].", low=0.0, high=765.0
    )
    audit_rate: float = option(
        0.1, "Probability of verifying a step that would be skipped [-].", low=1e-3, high=1.0
    )
    max_deviation: int = option(
        15, "Largest harmless deviation of an unverified token [bins].", low=0, high=255
    )
    max_share: float = option(
        0.05, "Largest tolerated share of unverified steps beyond it [-].", low=1e-4, high=0.999
    )
    seed: int = option(0, "Seed of the audits [-].", low=0, high=2**31 - 1)


@dataclass(frozen=True)
class DecodeConfig:
    """The decode loop."""

    method: str = option("heisd", "Named method, see heisd_ros.decode.methods [-].")


@dataclass(frozen=True)
class CommandConfig:
    """From action to command, and what may reach the arm."""

    frame_id: str = option("base", "Frame of the twist; the robot's planning frame.")
    control_hz: float = option(
        5.0, "Decisions per second: a pose delta lasts 1/control_hz [Hz].", low=0.1, high=200.0
    )
    publish_hz: float = option(
        50.0,
        "Commands per second on the wire [Hz].",
        low=1.0,
        high=500.0,
        source="MoveIt Servo: 0.1 s",
    )
    translation_scale: float = option(
        1.0, "Metres per action unit [m]; LIBERO 0.05.", low=1e-6, high=10.0
    )
    rotation_scale: float = option(
        1.0, "Radians per action unit [rad]; LIBERO 0.5.", low=1e-6, high=10.0
    )
    max_linear: float = option(
        0.25, "Largest norm of the linear velocity [m/s].", low=1e-3, high=10.0
    )
    max_angular: float = option(
        0.8, "Largest norm of the angular velocity [rad/s].", low=1e-3, high=50.0
    )
    max_linear_step: float = option(
        0.5, "Largest change of the linear velocity between decisions [m/s].", low=1e-3, high=20.0
    )
    max_angular_step: float = option(
        1.6,
        "Largest change of the angular velocity between decisions [rad/s].",
        low=1e-3,
        high=100.0,
    )
    rate_margin: float = option(
        2.0,
        "Decisions may come this much faster than control_hz; beyond it they share the step "
        "limits [-].",
        low=1.0,
        high=100.0,
    )
    workspace_low: tuple[float, ...] = option(
        (-10.0, -10.0, -10.0), "Lower corner of the workspace box [m]."
    )
    workspace_high: tuple[float, ...] = option(
        (10.0, 10.0, 10.0), "Upper corner of the workspace box [m]."
    )
    lifetime_s: float = option(
        0.3, "A decision is held this long, then zero [s].", low=0.02, high=10.0
    )
    image_timeout_s: float = option(
        0.5, "A picture older than this decides nothing [s].", low=0.01, high=10.0
    )
    gripper_convention: str = option(
        "open_is_one",
        "What the gripper topic carries [-].",
        choices=("open_is_one", "minus_one_open", "position_m"),
    )
    gripper_max_m: float = option(
        0.08, "Finger distance when open, for position_m [m].", low=1e-3, high=1.0
    )
    gripper_debounce: int = option(
        1, "Equal decisions before the gripper switches [steps].", low=1, high=20
    )
    max_failures: int = option(
        3, "Failed decisions in a row before deciding stops [steps].", low=1, high=1000
    )
    rest: str = option(
        "zeros",
        "What is sent at rest: zeros all the time, or rest_zeros of them and then silence [-].",
        choices=("zeros", "silence"),
    )
    rest_zeros: int = option(
        4, "Zero commands after the last motion, before silence [-].", low=1, high=1000
    )


@dataclass(frozen=True)
class ArmingConfig:
    """Whether decisions may move the arm."""

    start: str = option(
        "auto",
        "State at start; disarmed: a dry run until armed. auto: armed if time is simulated [-].",
        choices=("auto", "armed", "disarmed"),
    )
    deadman: bool = option(False, "Move only while the deadman topic says true.")
    deadman_timeout_s: float = option(
        0.2, "A held dead man's switch counts this long [s].", low=0.02, high=5.0
    )
    estop_timeout_s: float = option(
        0.0,
        "Silence of the estop topic that disarms [s]; 0: it need not be heard.",
        low=0.0,
        high=60.0,
    )


@dataclass(frozen=True)
class GripperConfig:
    """How the gripper controller is spoken to, beside the gripper_cmd topic."""

    output: str = option(
        "none",
        "What the controller takes; none: only our gripper_cmd topic [-].",
        choices=(
            "none",
            "float64_multi_array",
            "joint_trajectory",
            "parallel_gripper_action",
            "gripper_action",
        ),
    )
    controller: str = option(
        "gripper_controller",
        "Name of the controller: <name>/commands, /joint_trajectory or /gripper_cmd [-].",
        source="ros2_controllers",
    )
    joints: tuple[str, ...] = option(
        ("panda_finger_joint1",), "Joints of the controller, all sent the same position [-]."
    )
    open_position: float = option(
        0.04, "Joint position when open [m or rad].", low=-10.0, high=10.0
    )
    closed_position: float = option(
        0.0, "Joint position when closed [m or rad].", low=-10.0, high=10.0
    )
    max_effort: float = option(20.0, "Largest effort of a goal [N or Nm].", low=0.0, high=1000.0)
    move_time_s: float = option(
        0.5, "Time a trajectory has for opening or closing [s].", low=0.01, high=60.0
    )
    deadline_s: float = option(
        2.0, "A goal without a result is given up after this [s].", low=0.05, high=60.0
    )


@dataclass(frozen=True)
class ServoConfig:
    """How MoveIt Servo is spoken to."""

    node: str = option("servo_node", "Name of Servo's node [-].", source="MoveIt Servo")
    units: str = option(
        "speed_units",
        "command_in_type of Servo: m/s and rad/s, or shares of its scale [-].",
        choices=("speed_units", "unitless"),
    )
    scale_linear: float = option(
        0.4, "Servo's scale.linear [m/s].", low=1e-3, high=10.0, source="MoveIt Servo"
    )
    scale_rotational: float = option(
        0.8, "Servo's scale.rotational [rad/s].", low=1e-3, high=50.0, source="MoveIt Servo"
    )
    timeout_s: float = option(
        0.1,
        "Servo's incoming_command_timeout; older twists are not passed on [s].",
        low=0.01,
        high=10.0,
        source="MoveIt Servo",
    )
    switch_command_type: bool = option(
        True, "Ask Servo to take twists before the first one; Servo of Humble has no such service."
    )


@dataclass(frozen=True)
class SimulationConfig:
    """LIBERO as the robot."""

    suite: str = option("libero_spatial", "LIBERO suite [-].")
    task: int = option(0, "Task number in the suite [-].", low=0, high=129)
    init: int = option(0, "Official initial state [-].", low=0, high=49)
    clock: str = option("lockstep", "Who drives time [-].", choices=("lockstep", "realtime"))
    factor: float = option(
        1.0, "Simulated seconds per second in realtime [-].", low=0.01, high=100.0
    )
    image_size: int = option(
        96, "Side of the pictures [px]; what the model was trained on.", low=32, high=1024
    )
    max_steps: int = option(
        220, "Control steps before the episode counts as failed [steps].", low=1, high=10000
    )
    episodes: int = option(
        0,
        "Episodes before the process ends; 0: no end, and no simulation in heisd_node [-].",
        low=0,
        high=100000,
    )
    timeout_s: float = option(
        10.0, "Longest wait for a decision in lockstep, wall time [s].", low=0.1, high=600.0
    )


@dataclass(frozen=True)
class RosConfig:
    """How the nodes meet the robot's topics."""

    autostart: bool = option(True, "Configure and activate as soon as the process starts.")
    on_failed_start: str = option(
        "stay",
        "After a failed autostart the node stays, to be configured again, or the process exits.",
        choices=("stay", "exit"),
    )
    image_transport: str = option(
        "raw", "Transport of the camera topics [-].", choices=("raw", "compressed")
    )
    camera_reliability: str = option(
        "best_effort",
        "Reliability asked of the cameras; best_effort hears every camera [-].",
        choices=("best_effort", "reliable"),
        source="REP-2003",
    )
    finger_joints: tuple[str, ...] = option(
        ("panda_finger_joint1", "panda_finger_joint2"),
        "Joints in joint_states whose sum is the finger distance [-].",
    )


@dataclass(frozen=True)
class RecordConfig:
    """The recorder: what went over the topics, as an MCAP bag."""

    folder: str = option("", "Folder of the bag, new; empty: runs/<date>-<time> [-].")
    episodes: int = option(
        0, "Finished episodes before the process ends; 0: no end [-].", low=0, high=100000
    )
    patches: bool = option(False, "Keep the patch features of every picture: large.")


@dataclass(frozen=True)
class HeisdConfig:
    """All sections; the root of every command, node and test."""

    model: ModelConfig = field(default_factory=ModelConfig)
    perception: PerceptionConfig = field(default_factory=PerceptionConfig)
    trajectory: TrajectoryConfig = field(default_factory=TrajectoryConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    draft: DraftConfig = field(default_factory=DraftConfig)
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    skip: SkipConfig = field(default_factory=SkipConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    command: CommandConfig = field(default_factory=CommandConfig)
    arming: ArmingConfig = field(default_factory=ArmingConfig)
    gripper: GripperConfig = field(default_factory=GripperConfig)
    servo: ServoConfig = field(default_factory=ServoConfig)
    simulation: SimulationConfig = field(default_factory=SimulationConfig)
    ros: RosConfig = field(default_factory=RosConfig)
    record: RecordConfig = field(default_factory=RecordConfig)


def field_spec(item: dataclasses.Field[Any]) -> FieldSpec:
    """Return help, bounds and choices of a configuration field."""
    spec = item.metadata["spec"]
    assert isinstance(spec, FieldSpec)
    return spec


def parameter_names() -> dict[str, tuple[type, dataclasses.Field[Any]]]:
    """Return `section.field` -> (section class, field) for every configuration field."""
    names: dict[str, tuple[type, dataclasses.Field[Any]]] = {}
    for section in dataclasses.fields(HeisdConfig):
        kind = get_type_hints(HeisdConfig)[section.name]
        for item in dataclasses.fields(kind):
            names[f"{section.name}.{item.name}"] = (kind, item)
    return names


def load_config(
    path: str | Path | None = None, overrides: Mapping[str, Any] | None = None
) -> HeisdConfig:
    """Read a configuration.

    Args:
        path: YAML file, either `section: {field: value}` or a ROS parameter file whose nodes carry
            such sections (`/**: {ros__parameters: ...}`); None for the defaults.
        overrides: `section.field` -> value, applied last.

    Raises:
        ConfigError: For an unknown key (the nearest known one is named), a wrong type, or a value
            out of range.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values.update(_read_yaml(Path(path)))
    values.update(overrides or {})
    return make_config(values)


def read_values(path: str | Path) -> dict[str, Any]:
    """Return `section.field` -> value of what a file says, unchecked; to lay files over another.

    Raises:
        ConfigError: If the file is missing or holds no sections.
    """
    return _read_yaml(Path(path))


def make_config(values: Mapping[str, Any]) -> HeisdConfig:
    """Build a checked configuration from `section.field` -> value."""
    known = parameter_names()
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        checked = checked_value(name, value, known)
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = checked
    parts = {
        name: kind(**sections.get(name, {})) for name, kind in get_type_hints(HeisdConfig).items()
    }
    config = HeisdConfig(**parts)
    _check_together(config)
    return config


def checked_value(
    name: str,
    value: Any,  # noqa: ANN401  (any scalar or list)
    known: Mapping[str, tuple[type, dataclasses.Field[Any]]] | None = None,
) -> Any:  # noqa: ANN401
    """Return the value of one `section.field` in the field's own type.

    Args:
        name: `section.field`.
        value: As it came from a file, a person or another program.
        known: `parameter_names()`, for callers that check many.

    Raises:
        ConfigError: For an unknown name (the nearest known one is named), a wrong type, or a value
            out of range.
    """
    known = known or parameter_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown configuration key {name!r}{hint}")
    _, item = known[name]
    return _checked(name, value, item)


def to_flat(config: HeisdConfig) -> dict[str, Any]:
    """Return `section.field` -> value, the inverse of `make_config`."""
    return {
        f"{section.name}.{item.name}": getattr(getattr(config, section.name), item.name)
        for section in dataclasses.fields(config)
        for item in dataclasses.fields(getattr(config, section.name))
    }


def replace(config: HeisdConfig, **overrides: Any) -> HeisdConfig:  # noqa: ANN401
    """Return a copy with `section__field=value` replaced, checked again."""
    flat = to_flat(config)
    flat.update({name.replace("__", ".", 1): value for name, value in overrides.items()})
    return make_config(flat)


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"configuration file {path} does not exist")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, got {type(content).__name__}")
    trees = [content]
    if all(isinstance(node, dict) and "ros__parameters" in node for node in content.values()):
        trees = [node["ros__parameters"] for node in content.values()]
    flat: dict[str, Any] = {}
    for tree in trees:
        for section, fields in tree.items():
            if isinstance(fields, dict):
                flat.update({f"{section}.{key}": value for key, value in fields.items()})
            elif "." in section:
                flat[section] = fields
            elif section != "use_sim_time":
                raise ConfigError(
                    f"{path}: {section!r} must be a section of fields, got {fields!r}"
                )
    return flat


def _checked(name: str, value: Any, item: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    """Return the value in the field's own type, or raise ConfigError naming the range."""
    spec = field_spec(item)
    default = item.default
    if isinstance(default, tuple):
        return _checked_tuple(name, value, default)
    if isinstance(default, (bool, str)):
        if not isinstance(value, type(default)):
            raise ConfigError(f"{name} must be {type(default).__name__}, got {value!r}")
        if spec.choices and value not in spec.choices:
            raise ConfigError(f"{name} must be one of {', '.join(spec.choices)}; got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number, got {value!r}")
    if isinstance(default, int) and not float(value).is_integer():
        raise ConfigError(f"{name} must be a whole number, got {value!r}")
    number = int(value) if isinstance(default, int) else float(value)
    low, high = spec.low, spec.high
    outside = (low is not None and number < low) or (high is not None and number > high)
    if not math.isfinite(number) or outside:
        raise ConfigError(f"{name} must be in [{low}, {high}], got {value!r} ({spec.help})")
    return number


def _checked_tuple(name: str, value: Any, default: tuple[Scalar, ...]) -> tuple[Scalar, ...]:  # noqa: ANN401
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise ConfigError(f"{name} must be a list, got {value!r}")
    items = tuple(value)
    if isinstance(default[0], str):
        if not items or not all(isinstance(entry, str) and entry for entry in items):
            raise ConfigError(f"{name} must be a list of names, got {value!r}")
        return items
    if len(items) != len(default):
        raise ConfigError(f"{name} must have {len(default)} numbers, got {len(items)}: {value!r}")
    if not all(isinstance(entry, (int, float)) and math.isfinite(entry) for entry in items):
        raise ConfigError(f"{name} must hold finite numbers, got {value!r}")
    return tuple(float(entry) for entry in items)


def _check_together(config: HeisdConfig) -> None:
    """Refuse values that are fine alone and wrong together."""
    trajectory, command = config.trajectory, config.command
    for what in ("radius", "displacement"):
        low, high = getattr(trajectory, f"{what}_low"), getattr(trajectory, f"{what}_high")
        if low >= high:
            raise ConfigError(f"trajectory.{what}_low ({low}) must be below {what}_high ({high})")
    draft = config.draft
    if draft.drafter_nodes > draft.max_nodes:
        raise ConfigError(
            f"draft.drafter_nodes ({draft.drafter_nodes}) must be at most draft.max_nodes "
            f"({draft.max_nodes}): no forward could take the drafter's tree"
        )
    if command.lifetime_s < 2.0 / command.publish_hz:
        raise ConfigError(
            f"command.lifetime_s ({command.lifetime_s}) must be at least two command periods "
            f"(2/{command.publish_hz} s)"
        )
    if any(a >= b for a, b in zip(command.workspace_low, command.workspace_high, strict=True)):
        raise ConfigError("command.workspace_low must be below workspace_high on every axis")
    if config.perception.rotate_deg % 90:
        raise ConfigError(
            f"perception.rotate_deg must be 0, 90, 180 or 270, got {config.perception.rotate_deg}"
        )
    if not command.frame_id:
        raise ConfigError("command.frame_id must name a frame")
    gripper = config.gripper
    if gripper.open_position == gripper.closed_position:
        raise ConfigError(
            f"gripper.open_position and closed_position are both {gripper.open_position}: "
            "the fingers would never move"
        )
