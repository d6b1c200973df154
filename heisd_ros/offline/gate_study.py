"""Does the fused metric tell which drafts are good? `python -m heisd_ros.offline.gate_study`.

The boundary of HeiSD section 4.2 supposes that retrieved drafts are good where F is high. An
evaluation with `--shadow-ar` can be asked: every step of `retrieval_only` has the executed Top-1
draft and autoregression's action on the same observation. A draft counts as good if the
sequence-wise rule would accept it. F is compared with gates that need no curvature, by the area
under the ROC curve (AUC); window and weight are chosen on the even initial states and judged on
the odd ones, with a bootstrap over episodes.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heisd_ros.action_space.layout import SEQUENCE_SLICES
from heisd_ros.action_space.layout import Sequence as ActionSequence
from heisd_ros.config import TrajectoryConfig, VerifyConfig
from heisd_ros.errors import DataError
from heisd_ros.offline.evaluation_plan import EPISODES
from heisd_ros.offline.intervals import Interval, auc
from heisd_ros.offline.records import EpisodeRecord, read_records
from heisd_ros.offline.run_summary import GRIPPER_FLIP
from heisd_ros.simulation.libero import CONTROL_HZ
from heisd_ros.trajectory.metric import TrajectoryMeter, fused_metric
from heisd_ros.trajectory.normaliser import PercentileNormaliser
from heisd_ros.types import BoolArray, FloatArray

WINDOWS = (5, 9, 15, 21)
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
RADII = ("centroid", "taubin")
DISPLACEMENTS = ("path", "last_to_all")
RESAMPLES = 1000
SMALLEST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Track:
    """One episode of drafts.

    Attributes:
        init: Initial state.
        positions: float64 (T, 3), metres.
        good: bool (T,), whether the draft would have been accepted.
        score: float64 (T,), similarity of the draft.
    """

    init: int
    positions: FloatArray
    good: BoolArray
    score: FloatArray


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate and how well it orders the drafts of the held-out episodes.

    Attributes:
        name: What it is.
        auc: Probability that a good draft has the larger value, [0, 1].
        interval: Bootstrap interval of `auc`, 95 %.
        over_speed: Bootstrap interval of `auc` minus that of the speed gate.
    """

    name: str
    auc: float
    interval: Interval
    over_speed: Interval


@dataclass(frozen=True, slots=True)
class Study:
    """What came out.

    Attributes:
        gates: The chosen F, the configured F, and the simple gates.
        episodes: Held-out episodes.
        steps: Steps in them with a metric.
        good_share: Share of good drafts among them.
        chosen: The setting with the largest AUC on the other half.
    """

    gates: tuple[Gate, ...]
    episodes: int
    steps: int
    good_share: float
    chosen: TrajectoryConfig


@dataclass(frozen=True, slots=True)
class _Kinematics:
    """R (metres), D (metres) and mean speed (m/s) of every step of one track."""

    radius: FloatArray
    displacement: FloatArray
    speed: FloatArray


def tracks_of(records: Sequence[EpisodeRecord], rule: VerifyConfig) -> list[Track]:
    """Return the drafts of the records that carry a shadow."""
    found = []
    for record in records:
        rows = [row for row in record.rows if len(row.shadow_tokens)]
        if not rows or record.crash:
            continue
        bias = np.array([np.abs(row.tokens - row.shadow_tokens) for row in rows])
        found.append(
            Track(
                record.key.init,
                np.array([row.position for row in rows]),
                acceptable(bias, rule),
                np.array([row.report.top_score for row in rows]),
            )
        )
    return found


def acceptable(bias: FloatArray, rule: VerifyConfig) -> BoolArray:
    """Return bool (n,), whether both sequences pass the budgets and the gripper agrees.

    Args:
        bias: (n, 7), bins.
        rule: The budgets.
    """
    within = np.less if rule.strict else np.less_equal
    good = bias[:, -1] < GRIPPER_FLIP
    for sequence in (ActionSequence.POSITION, ActionSequence.ROTATION):
        part = bias[:, SEQUENCE_SLICES[sequence]]
        good &= within(part.sum(axis=1), rule.sequence_budget)
        good &= within(part.max(axis=1), rule.token_budget)
    return np.asarray(good, dtype=np.bool_)


def study(tracks: Sequence[Track], config: TrajectoryConfig, *, seed: int = 0) -> Study:
    """Choose the setting on even initial states, judge it and the simple gates on odd ones.

    Args:
        tracks: Drafts of many episodes.
        config: The setting in use; its window, weight and kinds compete.
        seed: Of the bootstrap.

    Raises:
        DataError: If one half has no drafts, or only good or only bad ones.
    """
    fit, held = halves(tracks)
    labels = [labels_of(track) for track in held]
    for half in (fit, held):
        every = np.concatenate([labels_of(track) for track in half]) if half else np.zeros(0, bool)
        if every.all() or not every.any():
            raise DataError(
                "the study needs good and bad drafts from even and odd initial states, got "
                f"{int(every.sum())} good of {len(every)}; evaluate retrieval_only with --shadow-ar"
            )
    chosen = _best(fit, config)
    speed = [_metrics(track, config).speed for track in held]
    candidates = {
        f"F chosen ({_named(chosen)})": fused_of(fit, held, chosen),
        f"F configured ({_named(config)})": fused_of(fit, held, config),
        "speed": speed,
        "similarity of the Top-1": [track.score[SMALLEST_SAMPLES - 1 :] for track in held],
    }
    picks = _resamples(len(held), seed)
    every = np.concatenate(labels)
    return Study(
        gates=tuple(
            _judge(name, values, speed, labels, picks) for name, values in candidates.items()
        ),
        episodes=len(held),
        steps=len(every),
        good_share=float(every.mean()),
        chosen=chosen,
    )


def halves(tracks: Sequence[Track]) -> tuple[list[Track], list[Track]]:
    """Return the episodes that choose (even initial states) and those that judge (odd ones)."""
    return [t for t in tracks if t.init % 2 == 0], [t for t in tracks if t.init % 2 == 1]


def table(result: Study) -> str:
    """Return the study as Markdown."""
    lines = ["| gate | AUC | 95 % interval | minus speed gate, 95 % |", "| --- | --- | --- | --- |"]
    for gate in result.gates:
        inside, over = gate.interval, gate.over_speed
        lines.append(
            f"| {gate.name} | {gate.auc:.3f} | {inside.low:.3f} to {inside.high:.3f} "
            f"| {over.low:+.3f} to {over.high:+.3f} |"
        )
    lines += [
        "",
        f"{result.steps} steps of {result.episodes} held-out episodes, "
        f"{100 * result.good_share:.0f} % of the drafts good.",
    ]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the study of one run."""
    parser = argparse.ArgumentParser(prog="python -m heisd_ros.offline.gate_study")
    parser.add_argument("run", type=Path, help="folder of `heisd evaluate --shadow-ar`")
    parser.add_argument("--method", default="retrieval_only", help="label of the drafts")
    parser.add_argument("--window", type=int, default=TrajectoryConfig.window)
    options = parser.parse_args(argv)
    records = [r for r in read_records(options.run / EPISODES) if r.key.method == options.method]
    config = TrajectoryConfig(window=options.window)
    sys.stdout.write(table(study(tracks_of(records, VerifyConfig()), config)))
    return 0


def _best(tracks: Sequence[Track], config: TrajectoryConfig) -> TrajectoryConfig:
    labels = np.concatenate([labels_of(track) for track in tracks])
    best, highest = config, -1.0
    for window, radius, displacement in itertools.product(WINDOWS, RADII, DISPLACEMENTS):
        tried = dataclasses.replace(config, window=window, radius=radius, displacement=displacement)
        known = [_metrics(track, tried) for track in tracks]
        try:
            normaliser = _ranges(known)
        except DataError:  # straight tracks have no finite circle: nothing to normalise
            continue
        for alpha in ALPHAS:
            fused = [_fuse(one, alpha, normaliser) for one in known]
            reached = auc(np.concatenate(fused), labels)
            if reached > highest:
                best, highest = dataclasses.replace(tried, alpha=alpha), reached
    return best


def fused_of(
    fit: Sequence[Track], tracks: Sequence[Track], config: TrajectoryConfig
) -> list[FloatArray]:
    """Return F of every step of some tracks, with ranges fitted to others."""
    normaliser = _ranges([_metrics(track, config) for track in fit])
    return [_fuse(_metrics(track, config), config.alpha, normaliser) for track in tracks]


def _ranges(known: Sequence[_Kinematics]) -> PercentileNormaliser:
    return PercentileNormaliser.fit(
        np.concatenate([one.radius for one in known]),
        np.concatenate([one.displacement for one in known]),
    )


def _fuse(known: _Kinematics, alpha: float, normaliser: PercentileNormaliser) -> FloatArray:
    pairs = zip(known.radius, known.displacement, strict=True)
    return np.array([fused_metric(r, d, alpha, normaliser) for r, d in pairs])


def _named(config: TrajectoryConfig) -> str:
    kinds = f"{config.radius}, {config.displacement}"
    return f"w={config.window}, alpha={config.alpha:g}, {kinds}"


def _metrics(track: Track, config: TrajectoryConfig) -> _Kinematics:
    """Return the kinematics of every step from the third on."""
    meter = TrajectoryMeter(config)
    found = [
        meter.update(position, round(step * 1e9 / CONTROL_HZ))
        for step, position in enumerate(track.positions)
    ][SMALLEST_SAMPLES - 1 :]
    return _Kinematics(
        np.array([metric.curvature_radius for metric in found]),
        np.array([metric.displacement for metric in found]),
        np.array([metric.speed for metric in found]),
    )


def labels_of(track: Track) -> BoolArray:
    """Return whether the draft was good, of every step that has a metric."""
    return track.good[SMALLEST_SAMPLES - 1 :]


def _resamples(episodes: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, episodes, episodes).tolist() for _ in range(RESAMPLES)]


def _judge(
    name: str,
    values: Sequence[FloatArray],
    speed: Sequence[FloatArray],
    labels: Sequence[BoolArray],
    picks: Sequence[Sequence[int]],
) -> Gate:
    def resampled(gate: Sequence[FloatArray]) -> FloatArray:
        return np.array([_auc_of(gate, labels, pick) for pick in picks])

    own, other = resampled(values), resampled(speed)
    return Gate(
        name,
        auc(np.concatenate(list(values)), np.concatenate(list(labels))),
        _middle(own),
        _middle(own - other),
    )


def _auc_of(gate: Sequence[FloatArray], labels: Sequence[BoolArray], pick: Sequence[int]) -> float:
    return auc(np.concatenate([gate[i] for i in pick]), np.concatenate([labels[i] for i in pick]))


def _middle(values: FloatArray) -> Interval:
    return Interval(float(np.nanpercentile(values, 2.5)), float(np.nanpercentile(values, 97.5)))


if __name__ == "__main__":
    raise SystemExit(main())
