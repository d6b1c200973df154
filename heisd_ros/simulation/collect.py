"""Collect demonstrations from the scripted expert, with disturbances, into episode files.

Each episode is a function of (suite, task, seed, number): a run can be stopped and started again,
or split over processes, and makes the same files. Disturbances follow DART: the executed action
is the expert's plus noise, the stored label is the expert's own, so the data shows how to recover.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from heisd_ros.demonstrations.episode import Episode, load_episode, save_episode
from heisd_ros.errors import DataError
from heisd_ros.simulation.expert import Advice, Mode, PickPlaceExpert
from heisd_ros.simulation.keypoints import KEYPOINT_NAMES, keypoints
from heisd_ros.simulation.libero import CAMERAS, CONTROL_HZ, STAY, LiberoEnvironment
from heisd_ros.simulation.rollout import Policy
from heisd_ros.types import FloatArray, Observation

IMAGE_SIZE = 96
MAX_STEPS = 150
NOISE = 0.2
"""Standard deviation of the disturbance of the translation, action units."""
NOISE_MEMORY = 0.7
"""Part of the disturbance that lasts to the next step."""
ROTATION_NOISE = 0.3
"""Disturbance of the rotation over that of the translation."""
FINE_NOISE = 0.5
"""Factor on the disturbance near a grasp or a release, where it would only make failures."""
FINE_DISTANCE = 0.03
PUSH_PROBABILITY = 0.5
"""Part of the episodes that start with the arm pushed somewhere else."""


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """What a run of `collect` made; episodes found on the disk are not counted.

    Attributes:
        solved: New episodes in which the task was solved.
        failed: New episodes in which it was not; they are kept, and readers leave them out.
        frames: Steps in all of them.
    """

    solved: int = 0
    failed: int = 0
    frames: int = 0

    def plus(self, episode: Episode) -> CollectionReport:
        """Return the report with one more episode."""
        return CollectionReport(
            self.solved + episode.success,
            self.failed + (not episode.success),
            self.frames + len(episode),
        )


class Disturbance:
    """Autoregressive noise on the executed action (Laskey et al. 2017, DART)."""

    def __init__(self, rng: np.random.Generator, scale: float) -> None:
        """Start at zero.

        Args:
            rng: Source of randomness.
            scale: Standard deviation in action units.
        """
        self._rng = rng
        self._noise = np.zeros(6)
        self._spread = scale * np.array([1.0, 1.0, 1.0, *[ROTATION_NOISE] * 3])

    def apply(self, advice: Advice, hand: FloatArray) -> FloatArray:
        """Return the action to execute (7,) for an expert's label."""
        kick = NOISE_MEMORY * self._rng.standard_normal(6)
        self._noise = NOISE_MEMORY * self._noise + kick
        fine = advice.mode in (Mode.CLOSE, Mode.OPEN) or (
            np.linalg.norm(advice.grasp_point - hand) < FINE_DISTANCE
        )
        executed = np.array(advice.values)
        if advice.hold_still:
            executed[:6] = 0.0
        executed[:6] += self._noise * self._spread * (FINE_NOISE if fine else 1.0)
        executed[:6] = np.clip(executed[:6], -1.0, 1.0)
        return executed


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """How every episode of a set is made; part of the set's identity.

    Attributes:
        suite: LIBERO suite.
        seed: Seed of the whole set; another seed makes another set.
        image_size: Side of the stored pictures, pixels.
        noise: Standard deviation of the disturbance of the expert, action units.
        max_steps: Longest episode.
        policy_name: Who acts before the expert takes over (DAgger); empty: the expert alone.
    """

    suite: str
    seed: int
    image_size: int = IMAGE_SIZE
    noise: float = NOISE
    max_steps: int = MAX_STEPS
    policy_name: str = ""

    def facts(self) -> dict[str, str]:
        """Return the plan as text, as every episode's `source` holds it."""
        return {name: str(value) for name, value in asdict(self).items()}

    def path(self, out: Path, task: int, number: int) -> Path:
        """Return where an episode of the set is stored."""
        return out / self.suite / f"task_{task:02d}" / f"ep_{number:04d}.npz"


def collect(
    plan: CollectionPlan,
    tasks: Sequence[int],
    numbers: Sequence[int],
    out: Path,
    *,
    policy: Policy | None = None,
) -> CollectionReport:
    """Write those of the numbered episodes of each task that are missing.

    With a policy this is DAgger (Ross et al. 2011): the policy acts until a drawn step, then the
    expert takes over; every step carries the expert's label. Train on the failed episodes, too.

    Args:
        plan: How the episodes are made.
        tasks: Task numbers in the suite.
        numbers: Episode numbers; failed episodes keep theirs.
        out: Folder of the set.
        policy: Acts in the place of the expert for a while.

    Raises:
        MissingDependencyError: If LIBERO is not installed.
        DataError: If the suite or a task does not exist, or if `out` holds another set.
    """
    report = CollectionReport()
    for task in tasks:
        paths = {number: plan.path(out, task, number) for number in numbers}
        missing = [number for number, path in paths.items() if not path.exists()]
        _check_same_set(plan, [path for path in paths.values() if path.exists()])
        if not missing:
            continue
        with LiberoEnvironment(plan.suite, task, image_size=plan.image_size, official=False) as env:
            for number in tqdm(missing, desc=f"{plan.suite} task {task}", unit="episode"):
                episode = record_episode(env, plan, task, number, policy)
                save_episode(paths[number], episode)
                report = report.plus(episode)
    return report


def record_episode(
    env: LiberoEnvironment,
    plan: CollectionPlan,
    task: int,
    number: int,
    policy: Policy | None = None,
) -> Episode:
    """Play and record one episode; a function of its arguments alone.

    Args:
        env: The task's environment with seeded placements and rendering.
        plan: How the episodes are made.
        task: Number of the task, part of the seed.
        number: Number of the episode, part of the seed.
        policy: See `collect`.
    """
    rng = np.random.default_rng([plan.seed, task, number])
    env.reset(int(rng.integers(2**31)))
    if policy is not None:
        policy.reset(env.instruction)
    _push(env, rng)
    expert = PickPlaceExpert(env, rng)
    disturbance = Disturbance(rng, plan.noise * rng.uniform(0.2, 1.5))
    takeover = 0 if policy is None else _draw_takeover(rng)
    rows: list[dict[str, Any]] = []
    success = False
    while len(rows) < plan.max_steps and not success:
        observation, advice = env.observe(), expert.act()
        if policy is not None and len(rows) < takeover:
            executed = np.clip(policy.act(observation).action.values, -1.0, 1.0)
        else:
            executed = disturbance.apply(advice, env.end_effector().position)
        rows.append(_row(env, observation, advice, executed))
        success = env.advance(executed)
    source = {
        "teacher": "scripted expert",
        "episode": str(number),
        "keypoints": json.dumps(KEYPOINT_NAMES),
        "modes": json.dumps({mode.name.lower(): int(mode) for mode in Mode}),
        "takeover": str(takeover),
        **plan.facts(),
    }
    return _as_episode(rows, env, task=task, suite=plan.suite, success=success, source=source)


def _check_same_set(plan: CollectionPlan, existing: Sequence[Path]) -> None:
    """Refuse to complete a set that was begun under another plan; one file stands for all."""
    for path in existing[:1]:
        found = load_episode(path, images=False, privileged=False).source
        wanted = plan.facts()
        other = {name: found.get(name, "") for name in wanted if found.get(name) != wanted[name]}
        if other:
            raise DataError(f"{path} was made with {other}, not so this set; use another folder")


def _push(env: LiberoEnvironment, rng: np.random.Generator) -> None:
    """Move the arm somewhere else in half of the episodes, so that starts differ."""
    if rng.random() >= PUSH_PROBABILITY:
        return
    push = STAY.copy()
    push[:3] = rng.uniform(-1.0, 1.0, 3) * [1.0, 1.0, 0.6]
    for _ in range(int(rng.integers(2, 9))):
        env.advance(push)


def _draw_takeover(rng: np.random.Generator) -> int:
    """Early in half of the episodes, to show the recovery; late in the others."""
    return int(rng.integers(20, 90) if rng.random() < 0.5 else rng.integers(70, 110))


def _row(
    env: LiberoEnvironment, observation: Observation, advice: Advice, executed: FloatArray
) -> dict[str, Any]:
    hand = env.end_effector()
    return {
        "images": np.stack([frame.image for frame in observation.frames]),
        "action": advice.values,
        "state": np.concatenate([hand.position, hand.orientation, [hand.finger_gap]]),
        "executed": executed,
        "grasp_point": advice.grasp_point,
        "place_point": advice.place_point,
        "keypoints_world": keypoints(env),
        "projections": env.projections(),
        "mode": int(advice.mode),
        "hold_still": advice.hold_still,
    }


def _as_episode(
    rows: list[dict[str, Any]],
    env: LiberoEnvironment,
    *,
    task: int,
    suite: str,
    success: bool,
    source: dict[str, str],
) -> Episode:
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    floats = ("executed", "grasp_point", "place_point", "keypoints_world", "projections")
    privileged: dict[str, NDArray[Any]] = {
        name: columns[name].astype(np.float32) for name in floats
    }
    privileged["mode"] = columns["mode"].astype(np.uint8)
    privileged["hold_still"] = columns["hold_still"].astype(np.bool_)
    return Episode(
        images=columns["images"],
        actions=columns["action"].astype(np.float32),
        state=columns["state"].astype(np.float32),
        instruction=env.instruction,
        cameras=tuple(CAMERAS),
        control_hz=CONTROL_HZ,
        suite=suite,
        task=task,
        success=success,
        source=source,
        privileged=privileged,
    )
