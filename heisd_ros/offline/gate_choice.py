"""Chooses window, weight, kinds and threshold of F from judged drafts, and says what it is worth.

The setting with the largest AUC on one half of the episodes is taken. The threshold minimises the
expected step time x T_ret + (1 - x) T_below there, x the share of steps above it: a step above
costs what its draft deserved, one below what the method does without a draft. Both are measured
again on the other half. Our own; the paper sets them by hand.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heisd_ros.config import TrajectoryConfig
from heisd_ros.offline import kinematic_calibration as kinematic
from heisd_ros.offline.gate_study import (
    Gate,
    Study,
    Track,
    fused_of,
    halves,
    labels_of,
    study,
)
from heisd_ros.offline.kinematic_calibration import Calibration
from heisd_ros.offline.latency_model import DeviceProfile, autoregressive, draft_in_prefill
from heisd_ros.simulation.libero import CONTROL_HZ
from heisd_ros.types import ACTION_DIM, BoolArray, FloatArray

CHOSEN, SPEED = 0, 2
"""Places of the gates in `Study.gates`."""

TREE_NODES = 90
"""N of five recombined candidates."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Time of a step by what becomes of it, ms.

    Attributes:
        accepted: Above the threshold, the draft accepted whole.
        rejected: Above the threshold, decoded on behind the prefill.
        below: Below the threshold.
    """

    accepted: float
    rejected: float
    below: float

    @classmethod
    def of(
        cls, profile: DeviceProfile, *, rejected: float = 6.0, below: float | None = None
    ) -> StepCosts:
        """Return the costs on a device.

        Args:
            profile: The device.
            rejected: Forwards behind the prefill after a rejection; all 6 is the worst case.
            below: Time of a step below the threshold, ms; None: autoregression.
        """
        return cls(
            accepted=draft_in_prefill(profile, TREE_NODES, 0),
            rejected=draft_in_prefill(profile, TREE_NODES, min(rejected, ACTION_DIM - 1)),
            below=autoregressive(profile) if below is None else below,
        )

    def mean(self, above: BoolArray, good: BoolArray) -> float:
        """Return the mean time of steps, ms.

        Args:
            above: (n,), whether the step is above the threshold.
            good: (n,), whether its draft is accepted.
        """
        drafted = np.where(good, self.accepted, self.rejected)
        return float(np.where(above, drafted, self.below).mean())


@dataclass(frozen=True, slots=True)
class GateChoice:
    """What was chosen.

    Attributes:
        study: Gates and their AUC on held-out episodes.
        threshold: Of F, [0, 1].
        costs: What it was chosen for.
        share: Share of held-out steps above it, [0, 1].
        time_ms: Mean time of a held-out step with it.
        always_ms: The same if every step drafts.
        never_ms: The same if none does.
    """

    study: Study
    threshold: float
    costs: StepCosts
    share: float
    time_ms: float
    always_ms: float
    never_ms: float

    @property
    def verdict(self) -> str:
        """What F is worth, in one sentence."""
        chosen, speed = self.study.gates[CHOSEN], self.study.gates[SPEED]
        if chosen.over_speed.low > 0.0:
            word = "better than"
        elif chosen.over_speed.high < 0.0:
            word = "worse than"
        else:
            word = "no better than"
        use = "" if chosen.interval.low > 0.5 else " F does not tell good drafts from bad ones."
        return f"F is {word} the speed alone ({_said(chosen)} against {_said(speed)}).{use}"


def choose(
    tracks: Sequence[Track], config: TrajectoryConfig, costs: StepCosts, *, seed: int = 0
) -> GateChoice:
    """Choose on the even episodes, judge on the odd ones.

    Args:
        tracks: Drafts of many episodes.
        config: The setting in use, for comparison.
        costs: Time of a step by its outcome.
        seed: Of the bootstrap.

    Raises:
        DataError: If one half has only good or only bad drafts.
    """
    result = study(tracks, config, seed=seed)
    fit, held = halves(tracks)
    threshold = cheapest(np.concatenate(fused_of(fit, fit, result.chosen)), _good(fit), costs)
    above = np.concatenate(fused_of(fit, held, result.chosen)) > threshold
    good = _good(held)
    return GateChoice(
        study=result,
        threshold=threshold,
        costs=costs,
        share=float(above.mean()),
        time_ms=costs.mean(above, good),
        always_ms=costs.mean(np.ones_like(good), good),
        never_ms=costs.mean(np.zeros_like(good), good),
    )


def cheapest(fused: FloatArray, good: BoolArray, costs: StepCosts) -> float:
    """Return the threshold of F with the least mean time; of equal ones the largest.

    Args:
        fused: (n,), F of each step, [0, 1].
        good: (n,), whether its draft is accepted.
        costs: Time of a step by its outcome.
    """
    tried = np.unique(np.concatenate([[0.0, 1.0], np.quantile(fused, np.arange(101) / 100.0)]))
    times = np.array([costs.mean(fused > theta, good) for theta in tried])
    return float(tried[np.flatnonzero(times <= times.min() + 1e-9)[-1]])


def described(choice: GateChoice) -> list[str]:
    """Return the choice as lines for the head of a configuration file."""
    result, costs = choice.study, choice.costs
    lines = [
        f"Chosen on the even episodes, judged on {result.episodes} odd ones ({result.steps} steps, "
        f"{100 * result.good_share:.1f} % of the drafts good).",
        choice.verdict,
        "AUC on the odd episodes, 95 % by bootstrap over episodes, and minus the speed gate's:",
    ]
    for gate in result.gates:
        over = gate.over_speed
        lines.append(f"  {gate.name}: {_said(gate)}, {over.low:+.3f} to {over.high:+.3f}")
    lines += [
        f"Threshold: least mean step time for {costs.accepted:.0f} ms (draft accepted), "
        f"{costs.rejected:.0f} ms (rejected), {costs.below:.0f} ms (below).",
        f"On the odd episodes: {100 * choice.share:.0f} % above, {choice.time_ms:.1f} ms per step; "
        f"a draft in every step {choice.always_ms:.1f} ms, in none {choice.never_ms:.1f} ms.",
    ]
    return lines


def calibrated(choice: GateChoice, tracks: Sequence[Track]) -> Calibration:
    """Return the chosen setting with the ranges that the threshold was chosen for.

    Args:
        choice: What was chosen.
        tracks: What it was chosen from.
    """
    fit, _ = halves(tracks)
    positions = [kinematic.Track(track.positions, CONTROL_HZ) for track in fit]
    made = kinematic.calibrate_trajectory(positions, choice.study.chosen)
    config = dataclasses.replace(made.config, threshold=choice.threshold)
    return dataclasses.replace(made, config=config, percentile=math.nan)


def _good(tracks: Sequence[Track]) -> BoolArray:
    return np.concatenate([labels_of(track) for track in tracks])


def _said(gate: Gate) -> str:
    return f"{gate.auc:.3f} [{gate.interval.low:.3f}, {gate.interval.high:.3f}]"
