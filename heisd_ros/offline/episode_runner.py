"""Runs evaluation episodes one after the other with one simulator and one loaded model."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from heisd_ros.build import Components, build_components, build_policy, build_store
from heisd_ros.config import HeisdConfig, replace
from heisd_ros.decode.methods import method_named
from heisd_ros.decode.pilot import Policy
from heisd_ros.demonstrations.episode import Episode, read_episodes
from heisd_ros.errors import DataError
from heisd_ros.offline.evaluation_plan import REPLAY, Plan, split_label
from heisd_ros.offline.recording import RecordingPolicy, Shadow
from heisd_ros.offline.records import EpisodeKey, EpisodeRecord, write_record
from heisd_ros.protocols import DemonstrationStore, Environment
from heisd_ros.simulation.libero import LiberoEnvironment
from heisd_ros.simulation.replay_baseline import OpenLoopReplay
from heisd_ros.simulation.rollout import rollout
from heisd_ros.types import FloatArray

EXECUTED = "executed"
"""Name under which a disturbed demonstration keeps what was really executed."""


class EpisodeRunner:
    """Runs single episodes; keeps the scene of the last one, for the next may need it again."""

    def __init__(
        self,
        plan: Plan,
        *,
        make_environment: Callable[[int, bool], Environment],
        make_policy: Callable[[EpisodeKey], RecordingPolicy],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Set up, with nothing loaded.

        Args:
            plan: What is evaluated.
            make_environment: (task, with pictures) -> environment; the last one is closed first.
            make_policy: Episode -> the policy that runs it.
            clock: Returns seconds.
        """
        self._plan = plan
        self._make_environment = make_environment
        self._make_policy = make_policy
        self._clock = clock
        self._scene: tuple[int, bool] | None = None
        self._environment: Environment | None = None

    @classmethod
    def of_libero(cls, plan: Plan) -> EpisodeRunner:
        """Return the runner of a plan with the real simulator and the configured model."""

        def make_environment(task: int, pictures: bool) -> Environment:
            size = plan.config.simulation.image_size
            return LiberoEnvironment(plan.suite, task, image_size=size, rendering=pictures)

        shelf = PolicyShelf(plan)
        return cls(plan, make_environment=make_environment, make_policy=shelf.policy_of)

    def run(self, key: EpisodeKey) -> EpisodeRecord:
        """Run one episode and write its file."""
        policy = self._make_policy(key)
        environment = self._enter(key.task, pictures=key.method != REPLAY)
        start = self._clock()
        outcome = rollout(environment, policy, key.init, self._plan.cap)
        record = EpisodeRecord(
            key=key,
            instruction=environment.instruction,
            success=outcome.success,
            steps=outcome.steps,
            crash=outcome.crash,
            wall_s=self._clock() - start,
            rows=tuple(policy.rows),
        )
        write_record(self._plan.folder, record)
        return record

    def close(self) -> None:
        """Free the simulator."""
        if self._environment is not None:
            self._environment.close()
        self._environment, self._scene = None, None
        gc.collect()

    def _enter(self, task: int, *, pictures: bool) -> Environment:
        if self._environment is None or self._scene != (task, pictures):
            self.close()
            self._environment = self._make_environment(task, pictures)
            self._scene = (task, pictures)
        return self._environment


class PolicyShelf:
    """Builds each method's policy once; all share the model, and those of a label its store."""

    def __init__(self, plan: Plan) -> None:
        """Set up, with nothing loaded."""
        self._plan = plan
        self._components: Components | None = None
        self._stores: dict[str, DemonstrationStore | None] = {}
        self._policies: dict[str, Policy] = {}

    def policy_of(self, key: EpisodeKey) -> RecordingPolicy:
        """Return the watched policy that runs an episode.

        Raises:
            HeisdError: If model, store or demonstration cannot be loaded.
        """
        if key.method == REPLAY:
            actions = demonstrated_actions(self._plan, key.task)
            return RecordingPolicy(OpenLoopReplay(actions), clock=time.perf_counter)
        shadow = None
        if self._plan.shadow and key.method != "ar":
            shadow = Shadow(self._policy("ar"), self._parts().encoder)
        return RecordingPolicy(self._policy(key.method), shadow, clock=time.perf_counter)

    def _policy(self, label: str) -> Policy:
        if label not in self._policies:
            name, store = split_label(label)
            config = replace(self._config(), decode__method=name)
            parts = self._parts()
            if method_named(name).needs_store:
                parts = dataclasses.replace(parts, store=self._store(store))
            self._policies[label] = build_policy(config, parts)
        return self._policies[label]

    def _parts(self) -> Components:
        if self._components is None:
            self._components = build_components(replace(self._config(), decode__method="ar"))
        return self._components

    def _store(self, label: str) -> DemonstrationStore | None:
        if label not in self._stores:
            config = self._config()
            if label:
                config = replace(config, retrieval__store=self._plan.stores[label])
            fingerprint = self._parts().target.info.fingerprint
            self._stores[label] = build_store(config, fingerprint)
        return self._stores[label]

    def _config(self) -> HeisdConfig:
        config = self._plan.config
        # One thread unless told otherwise: sums split over threads round differently, and an
        # episode must not depend on how many run beside it.
        return replace(config, model__threads=config.model.threads or 1)


def demonstrated_actions(plan: Plan, task: int) -> FloatArray:
    """Return what the first successful demonstration of a task executed, float64 (T, 7).

    Raises:
        DataError: If there is none.
    """
    if plan.demos is None:
        raise DataError(f"{REPLAY} needs demonstrations, got none; give --demos")
    episode = _first_episode(plan.demos, plan.suite, task)
    return np.asarray(episode.privileged.get(EXECUTED, episode.actions), dtype=np.float64)


def _first_episode(folder: Path, suite: str, task: int) -> Episode:
    for episode in read_episodes(folder, images=False):
        if (episode.suite, episode.task) == (suite, task):
            return episode
    raise DataError(f"{folder} holds no successful demonstration of {suite} task {task}")
