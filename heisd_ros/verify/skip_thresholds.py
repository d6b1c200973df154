"""What verify-skip learns: similarity and distance bounds, offline and after each task (Alg. 1)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from heisd_ros.errors import ConfigError, DataError, ShapeError


@dataclass(frozen=True, slots=True)
class FeedbackSettings:
    """How far one task outcome moves the thresholds; the sign is the paper's, the form ours.

    Attributes:
        similarity_step: Delta, change of min_S after a success, [0, 1].
        distance_rate: eta, relative change of O_dist after a success.
        caution: kappa, how much more a failure counts than a success.
        similarity_cap: Largest min_S.
        distance_cap: Largest O_dist, metres.
    """

    similarity_step: float = 0.005
    distance_rate: float = 0.05
    caution: float = 4.0
    similarity_cap: float = 0.999
    distance_cap: float = 0.05


@dataclass(frozen=True, slots=True)
class SkipThresholds:
    """When two points of a track are alike enough to skip verification between them.

    Attributes:
        min_similarity: min_S, smallest acceptable cosine of their features, [-1, 1].
        max_distance: O_dist, largest acceptable distance, metres.
        floor: T, min_S never falls below it.
        pairs: How many pairs of points they were learned from.
    """

    min_similarity: float
    max_distance: float
    floor: float = 0.90
    pairs: int = 0

    def __post_init__(self) -> None:
        if not (-1.0 <= self.min_similarity <= 1.0 and 0.0 <= self.max_distance < math.inf):
            raise ConfigError(
                "min_similarity must be in [-1, 1] and max_distance >= 0 m and finite, got "
                f"{self.min_similarity} and {self.max_distance}"
            )
        if not (-1.0 <= self.floor <= 1.0 and self.pairs >= 0):
            raise ConfigError(
                f"floor must be in [-1, 1] and pairs >= 0, got {self.floor} and {self.pairs}"
            )

    def after_task(self, success: bool, settings: FeedbackSettings | None = None) -> SkipThresholds:
        """Return the thresholds after a task that skipped at least once ended."""
        s = settings or FeedbackSettings()
        if success:
            similarity = max(self.floor, self.min_similarity - s.similarity_step)
            distance = min(s.distance_cap, self.max_distance * (1.0 + s.distance_rate))
        else:
            raised = self.min_similarity + s.caution * s.similarity_step
            similarity = min(s.similarity_cap, raised)
            distance = self.max_distance / (1.0 + s.caution * s.distance_rate)
        return SkipThresholds(similarity, distance, self.floor, self.pairs)

    def to_dict(self) -> dict[str, float]:
        """Return plain numbers, the inverse of `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, float]) -> SkipThresholds:
        """Read stored thresholds.

        Raises:
            DataError: If a key is missing or unknown, or a value is no number or out of range.
        """
        try:
            return cls(pairs=int(values["pairs"]), **_without(values, "pairs"))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"skip thresholds need {list(cls.__slots__)}: {error}") from error


def _without(values: dict[str, float], key: str) -> dict[str, float]:
    return {name: value for name, value in values.items() if name != key}


def learn_paper(
    similarity: ArrayLike, distance: ArrayLike, acceptable: ArrayLike, *, floor: float = 0.90
) -> SkipThresholds:
    """Learn as Algorithm 1 does: the least similar pair that was still acceptable.

    The algorithm starts min_S at 0 under the condition min_S > S > T, which is never true; it must
    start at 1 (a reviewer's finding).

    Args:
        similarity: (n,), cosine of the features of each pair of points.
        distance: (n,), metres between them.
        acceptable: (n,), whether the draft retrieved for the later one was acceptable.
        floor: T.

    Raises:
        ShapeError: If the lengths differ.
        DataError: If no pair above the floor was acceptable.
    """
    s, d, ok = _columns(similarity, distance, acceptable)
    usable = np.flatnonzero(ok & (s > floor))
    if not len(usable):
        raise DataError(f"no acceptable pair above the floor {floor}; nothing can be skipped")
    worst = usable[np.argmin(s[usable])]
    return SkipThresholds(float(s[worst]), float(d[worst]), floor, len(s))


def learn_calibrated(
    similarity: ArrayLike,
    distance: ArrayLike,
    acceptable: ArrayLike,
    *,
    error: float = 0.05,
    floor: float = 0.90,
) -> SkipThresholds:
    """Learn the widest bounds whose share of unacceptable pairs stays within `error`.

    Pairs are sorted by falling similarity; the longest prefix within the error gives min_S, and the
    largest distance among its acceptable pairs gives O_dist. Our own reading.

    Args:
        similarity: (n,), cosine of the features of each pair of points.
        distance: (n,), metres between them.
        acceptable: (n,), whether the draft retrieved for the later one was acceptable.
        error: Largest empirical share of unacceptable pairs, [0, 1].
        floor: T.

    Raises:
        ShapeError: If the lengths differ.
        DataError: If not even the most similar pair is acceptable.
    """
    s, d, ok = _columns(similarity, distance, acceptable)
    order = np.argsort(-s, kind="stable")
    prefix = _prefix(order[s[order] > floor], ok, error)
    return SkipThresholds(float(s[prefix[-1]]), float(d[prefix[ok[prefix]]].max()), floor, len(s))


def learn_distance(distance: ArrayLike, acceptable: ArrayLike, *, error: float = 0.05) -> float:
    """Learn O_dist alone: the largest distance up to which the share of bad pairs is in `error`.

    Without stored features only the distance is checked online; then the bound of
    `learn_calibrated` says nothing, since it counts on the similarity. Our own.

    Args:
        distance: (n,), metres.
        acceptable: (n,), as in `learn_calibrated`.
        error: Largest empirical share of unacceptable pairs, [0, 1].

    Returns:
        O_dist, metres.

    Raises:
        ShapeError: If the lengths differ.
        DataError: If not even the nearest pair is acceptable.
    """
    d, _, ok = _columns(distance, distance, acceptable)
    return float(d[_prefix(np.argsort(d, kind="stable"), ok, error)[-1]])


def _prefix(order: np.ndarray, ok: np.ndarray, error: float) -> np.ndarray:
    """Return the longest start of `order` within the error that ends with an acceptable pair."""
    share = np.cumsum(~ok[order]) / np.arange(1, len(order) + 1)
    within = np.flatnonzero((share <= error) & ok[order])
    if not len(within):
        raise DataError(f"no prefix of pairs has at most {error:.1%} unacceptable ones")
    return np.asarray(order[: within[-1] + 1])


def _columns(
    similarity: ArrayLike, distance: ArrayLike, acceptable: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    s = np.asarray(similarity, dtype=np.float64)
    d = np.asarray(distance, dtype=np.float64)
    ok = np.asarray(acceptable, dtype=np.bool_)
    if s.ndim != 1 or s.shape != d.shape or s.shape != ok.shape:
        raise ShapeError(
            f"similarity, distance and acceptable must all be (n,), got {s.shape}, {d.shape}, "
            f"{ok.shape}"
        )
    return s, d, ok
