"""The border vocabulary: frozen values that cross from one room to another.

Arrays inside are treated as read-only. Units are SI; rotations are quaternions (x, y, z, w).

| letter | meaning                                     |
|--------|---------------------------------------------|
| V      | camera views, in configured order           |
| P      | image patches of one view                   |
| D      | channels of one patch (both towers joined)  |
| K      | retrieved neighbours                        |
| N      | nodes of a draft tree                       |
| w      | window length of the trajectory             |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
ImageArray = NDArray[np.uint8]

ACTION_DIM = 7
"""Degrees of freedom of one action: x y z, rx ry rz, gripper (HeiSD section 2)."""


class DraftKind(str, Enum):
    """Where the draft of a step came from; `AR` means that nothing was drafted."""

    AR = "ar"
    RETRIEVAL = "retrieval"
    DRAFTER = "drafter"
    KINEMATIC = "kinematic"
    LOOKAHEAD = "lookahead"
    JACOBI = "jacobi"


@dataclass(frozen=True, slots=True)
class Frame:
    """One camera picture.

    Attributes:
        image: uint8 (H, W, 3), RGB, upright.
        camera: Name of the camera, e.g. `third_person` or `wrist`.
        stamp_ns: Capture time in nanoseconds of the node clock.
    """

    image: ImageArray
    camera: str
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class Proprioception:
    """Measured robot state.

    Attributes:
        position: float64 (3,), end-effector position in metres, base frame.
        orientation: float64 (4,), unit quaternion x y z w, base frame.
        gripper_opening: Distance between the fingers over its maximum, [0, 1], 1 = open.
        stamp_ns: Measurement time in nanoseconds.
        frame_id: Frame of `position`.
    """

    position: FloatArray
    orientation: FloatArray
    gripper_opening: float
    stamp_ns: int = 0
    frame_id: str = "base"


@dataclass(frozen=True, slots=True)
class VisualFeatures:
    """What the vision encoder made of one set of frames.

    Attributes:
        patches: (V, P, D), a float32 array or the encoder's own device tensor. Only the
            target model looks inside.
        embedding: float32 (E,), unit norm, the retrieval query (4352 for OpenVLA-7B, two views).
        stamp_ns: Stamp of the oldest frame used.
    """

    patches: Any
    embedding: Float32Array
    stamp_ns: int = 0


@dataclass(frozen=True, slots=True)
class TrajectoryMetric:
    """The kinematic metric of the last w end-effector positions (Eq. 4-8).

    Attributes:
        curvature_radius: R, metres, may be inf on a straight line with a fitted circle.
        displacement: D, metres.
        fused: F in [0, 1]; nan while there are fewer than three samples.
        straightness: Chord over path length, [0, 1]; 0 when standing still.
        speed: Mean speed over the window, m/s.
        samples: Positions in the window.
        stamp_ns: Stamp of the newest position.
    """

    curvature_radius: float
    displacement: float
    fused: float
    straightness: float
    speed: float
    samples: int
    stamp_ns: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything a policy may look at in one control step.

    A caller that has already encoded the frames passes `features`; one that has already measured
    the trajectory passes `metric`. The policy fills in what is missing. `arrived_ns` is when the
    pictures arrived here, nanoseconds of a clock that never jumps; None where that means nothing.
    `force` is the norm of the newest wrench's force, newtons; None without a fresh one.
    """

    frames: tuple[Frame, ...]
    proprioception: Proprioception | None
    instruction: str
    features: VisualFeatures | None = None
    metric: TrajectoryMetric | None = None
    stamp_ns: int = 0
    arrived_ns: int | None = None
    force: float | None = None


class TokenTree(Protocol):
    """A tree of draft tokens; `heisd_ros.draft.tree.DraftTree` is the implementation.

    Node i has token `tokens[i]`, parent `parent[i]` (-1: the committed prefix) and depth
    `depth[i]` (0 for children of the prefix). Parents always come before their children.
    """

    @property
    def tokens(self) -> IntArray:
        """int64 (N,)."""

    @property
    def parent(self) -> IntArray:
        """int64 (N,), -1 for a child of the prefix."""

    @property
    def depth(self) -> IntArray:
        """int64 (N,), 0-based."""

    def attention_mask(self) -> BoolArray:
        """Bool (N, N): row i is True at node i and its ancestors."""

    def position_ids(self, prefix_length: int) -> IntArray:
        """int64 (N,): prefix_length + depth; siblings share a position."""

    def __len__(self) -> int:
        """Return N."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The K nearest demonstrated steps, best first.

    Attributes:
        score: float32 (K,), cosine similarity.
        row: int64 (K,), row number in the store.
        episode: int64 (K,).
        step: int64 (K,), index of the step in its episode.
        action: float64 (K, 7), model convention and units (gripper 1 = open).
        lookahead: float64 (K, L, 7), the actions of the following steps, zero-padded.
        valid_length: int64 (K,), how many rows of `lookahead` are real.
        position: float64 (K, 3), end-effector position in metres, nan if unknown.
        feature: float32 (K, d), lm_head input of the target at each step; None if not stored.
    """

    score: Float32Array
    row: IntArray
    episode: IntArray
    step: IntArray
    action: FloatArray
    lookahead: FloatArray
    valid_length: IntArray
    position: FloatArray
    feature: Float32Array | None = None

    def __len__(self) -> int:
        """Return K, the number of neighbours found."""
        return int(self.score.shape[0])

    def take(self, places: IntArray) -> Hits:
        """Return some of the neighbours, int64 (n,) places in the order wanted."""
        return Hits(
            score=self.score[places],
            row=self.row[places],
            episode=self.episode[places],
            step=self.step[places],
            action=self.action[places],
            lookahead=self.lookahead[places],
            valid_length=self.valid_length[places],
            position=self.position[places],
            feature=None if self.feature is None else self.feature[places],
        )


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """What a draft source may use.

    Attributes:
        features: The visual features of this step.
        metric: The kinematic metric of this step.
        task: The instruction, normalised (lower case, single spaces): the store's task key.
        history: int64 (T, 7), tokens of the actions decoded so far in this episode, oldest first.
        position: float64 (3,), measured end-effector position in metres; None if unknown.
        force: Norm of the measured force, newtons; None without a fresh wrench.
    """

    features: VisualFeatures
    metric: TrajectoryMetric
    task: str
    history: IntArray
    position: FloatArray | None = None
    force: float | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal: one tree, and what is known about where it came from.

    Attributes:
        kind: The source.
        tree: The draft tree; `None` with a reason means that the source had nothing to propose,
            `None` without one that it drafts after the prefill, from the target's features.
        scores: float32 (K,), similarity of each chain, best first; empty if not retrieved.
        chains: int64 (K, 7), the whole candidate actions as tokens, best first.
        actions: float64 (K, 7), the same in action units.
        reason: Why the source has nothing, a short machine word; empty otherwise. Beside a tree:
            why the leading one of several sources had nothing.
        features: float32 (K, d), lm_head input stored with each neighbour; None if not stored.
    """

    kind: DraftKind
    tree: TokenTree | None
    scores: Float32Array
    chains: IntArray
    actions: FloatArray
    reason: str = ""
    features: Float32Array | None = None

    @classmethod
    def nothing(cls, kind: DraftKind, reason: str = "") -> Draft:
        """Return the draft of a source that has nothing to propose, or proposes it later."""
        return cls(
            kind,
            None,
            np.zeros(0, dtype=np.float32),
            np.zeros((0, ACTION_DIM), dtype=np.int64),
            np.zeros((0, ACTION_DIM)),
            reason,
        )


@dataclass(frozen=True, slots=True)
class Verification:
    """The target model's answer to one forward pass.

    Attributes:
        target_next: int64 (1+N,), greedy next token after the prefix (row 0) and after each node.
        hidden: (1+N, d) lm_head inputs, array or device tensor; `None` if not kept.
        margin: float32 (1+N,), logit gap between the best and the second-best token.
    """

    target_next: IntArray
    hidden: Any = None
    margin: Float32Array | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Which part of a draft was accepted.

    Attributes:
        tokens: int64 (k,), accepted draft tokens followed by the target's own next token.
        accept_length: k; 1 means that no draft token was accepted.
        path: int64 (k-1,), accepted nodes from the root down; their K/V rows are kept.
        rejected_sequence: 0 position, 1 rotation, 2 gripper; `None` when nothing was rejected.
        bias: int64 (k-1,), |draft - target| of each accepted token, in bins.
    """

    tokens: IntArray
    accept_length: int
    path: IntArray
    rejected_sequence: int | None
    bias: IntArray


@dataclass(frozen=True, slots=True)
class Verified:
    """One verification from both sides: what was asked, answered, and accepted.

    Attributes:
        tree: The draft tree.
        answer: The target's answer to it.
        accepted: What a rule accepted of it.
        known: Levels at the root that were decided before: 1 behind the first forward of an action.
    """

    tree: TokenTree
    answer: Verification
    accepted: Acceptance
    known: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """One decoded action.

    Attributes:
        tokens: int64 (7,), token ids.
        values: float64 (7,), action units (pose delta per step), gripper 1 = open.
    """

    tokens: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class EndEffectorCommand:
    """What the arm receives.

    Attributes:
        linear: float64 (3,), m/s in `frame_id`.
        angular: float64 (3,), rad/s in `frame_id`.
        gripper: Wanted opening, [0, 1], 1 = open.
        frame_id: Named frame of the twist; never empty.
        stamp_ns: Time the command was made, nanoseconds.
        observed_ns: Stamp of the oldest picture it was decided from, nanoseconds.
        instruction: The instruction it was decided for.
    """

    linear: FloatArray
    angular: FloatArray
    gripper: float
    frame_id: str
    stamp_ns: int
    observed_ns: int = 0
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """The record of one decoded step; one row of every table and plot.

    Attributes:
        kind: Source of the draft that was used.
        skipped: True when the draft was executed without verification.
        accept_length: Tokens gained per draft verification (defined in `decode/report.py`).
        forwards: Forward passes of the target model in this step.
        stage_ms: Milliseconds per stage: vision, retrieval, draft, prefill, decode, total.
        fused: F of the step, nan if unknown.
        nodes: Draft nodes that were verified.
        top_score: Best similarity, nan if nothing was retrieved.
        reason: Why the step fell back or stopped, a short machine word; empty when all went well.
        prefill_nodes: Those of them that were verified inside the prefill.
        unverified: Tokens executed that the target did not decide: all 7 of a skipped step, those
            filled in by a filter, none otherwise.
        vetoes: Why a step was verified and not skipped, as the skip rule names it; empty if it was
            skipped, or if the rule weighs nothing.
        scores: Similarity of every neighbour that was drafted, best first; empty if none was.
        spread: How far their position tokens lie apart: half ranges, summed, in bins; nan if none.
        gripper_consensus: Share of them that want the gripper as the best one does, (0, 1]; nan if
            none.
    """

    kind: DraftKind
    skipped: bool
    accept_length: float
    forwards: int
    stage_ms: dict[str, float]
    fused: float = float("nan")
    nodes: int = 0
    top_score: float = float("nan")
    reason: str = ""
    prefill_nodes: int = 0
    unverified: int = 0
    vetoes: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    spread: float = float("nan")
    gripper_consensus: float = float("nan")


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """An action and the report of how it was decoded."""

    action: Action
    report: DecodeReport
    metric: TrajectoryMetric | None = None


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """How one episode ended; a crash is not a failure.

    Attributes:
        task: Name or instruction of the task.
        init: Index of the initial state, or the seed.
        success: True if the simulator or a person said so.
        steps: Control steps executed.
        crash: The exception's text if the episode ended in an exception, else empty.
        reports: One report per step.
    """

    task: str
    init: int
    success: bool
    steps: int
    crash: str = ""
    reports: tuple[DecodeReport, ...] = field(default=())
