"""How far two sets of decisions about the same pictures agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.command.command import to_command
from heisd_ros.config import CommandConfig
from heisd_ros.demonstrations.bag_decisions import RecordedDecision
from heisd_ros.types import Action, FloatArray


@dataclass(frozen=True, slots=True)
class Agreement:
    """Replayed decisions beside recorded ones.

    Attributes:
        compared: Decisions that have a recorded counterpart.
        same_actions: Share whose seven tokens are all equal; nan without recorded tokens.
        same_tokens: Share of equal tokens; nan without recorded tokens.
        largest_bin: Largest difference of one token, bins; -1 without recorded tokens.
        linear: Mean distance of the linear velocities, m/s; nan without recorded commands.
        angular: Mean distance of the angular velocities, rad/s; nan likewise.
    """

    compared: int
    same_actions: float
    same_tokens: float
    largest_bin: int
    linear: float
    angular: float

    def sentence(self) -> str:
        """Return the figures as a sentence."""
        if not self.compared:
            return "The bag holds no command to compare the decisions with."
        parts = []
        if math.isfinite(self.same_actions):
            parts.append(
                f"{100 * self.same_actions:.1f} % of {self.compared} actions have the seven "
                f"tokens that were recorded, {100 * self.same_tokens:.1f} % of the single tokens "
                f"are equal, the largest difference is {self.largest_bin} bins"
            )
        if math.isfinite(self.linear):
            parts.append(
                f"the commanded velocities differ by {self.linear:.4f} m/s and "
                f"{self.angular:.4f} rad/s on average"
            )
        return f"Compared with the recording: {'; '.join(parts)}."


def compare_decisions(
    replayed: Sequence[tuple[int, Action]],
    recorded: Sequence[RecordedDecision],
    twists: Sequence[tuple[int, FloatArray]],
    config: CommandConfig,
) -> Agreement:
    """Compare replayed actions with the recorded decisions about the same pictures.

    Args:
        replayed: (Stamp of the oldest picture in nanoseconds, action).
        recorded: Decisions of the bag.
        twists: (Stamp, velocities) of the bag: where it holds no decisions, the first twist
            within a control period after the picture is taken.
        config: Rate and scales that turn an action into velocities.
    """
    by_stamp = {decision.image_ns: decision for decision in recorded if decision.decided}
    pairs = [(action, by_stamp[stamp]) for stamp, action in replayed if stamp in by_stamp]
    tokens = np.array([[a.tokens, d.tokens] for a, d in pairs], dtype=np.int64).reshape(-1, 2, 7)
    apart = np.abs(tokens[:, 0] - tokens[:, 1])
    if recorded:
        commands = [(action, decision.twist) for action, decision in pairs]
    else:
        commands = _following(replayed, twists, round(1e9 / config.control_hz))
    gaps = np.array([_gap(action, twist, config) for action, twist in commands]).reshape(-1, 2)
    gaps = gaps[np.isfinite(gaps).all(axis=1)]
    return Agreement(
        compared=len(commands),
        same_actions=float((apart == 0).all(axis=1).mean()) if pairs else math.nan,
        same_tokens=float((apart == 0).mean()) if pairs else math.nan,
        largest_bin=int(apart.max()) if pairs else -1,
        linear=float(gaps[:, 0].mean()) if len(gaps) else math.nan,
        angular=float(gaps[:, 1].mean()) if len(gaps) else math.nan,
    )


def _following(
    replayed: Sequence[tuple[int, Action]],
    twists: Sequence[tuple[int, FloatArray]],
    period_ns: int,
) -> list[tuple[Action, FloatArray]]:
    stamps = np.array([stamp for stamp, _ in twists], dtype=np.int64)
    found = []
    for stamp, action in replayed:
        place = int(np.searchsorted(stamps, stamp))
        if place < len(twists) and twists[place][0] - stamp <= period_ns:
            found.append((action, twists[place][1]))
    return found


def _gap(action: Action, twist: FloatArray, config: CommandConfig) -> tuple[float, float]:
    """Return the distances of the linear and of the angular velocities, m/s and rad/s."""
    command = to_command(
        action,
        config.control_hz,
        config.frame_id,
        translation_scale=config.translation_scale,
        rotation_scale=config.rotation_scale,
    )
    linear = float(np.linalg.norm(command.linear - twist[:3]))
    return linear, float(np.linalg.norm(command.angular - twist[3:]))
