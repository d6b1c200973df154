"""Exact acceptance against plain decoding, token for token, on the same observations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import numpy as np

from bench.reliability.outcome import CannotRunError, Figure, Outcome, Row, Settings, none_of
from heisd_ros.build import build_components, build_policy
from heisd_ros.command.command import to_command
from heisd_ros.config import load_config, replace
from heisd_ros.demonstrations.episode import read_episodes
from heisd_ros.share import config_file
from heisd_ros.simulation.rollout import MAX_STEPS
from heisd_ros.types import Observation, Proprioception

METHODS = ("heisd_lossless", "jacobi")
NEAR = 1e-4
"""Two logits that are closer may change places with the shape of a batch."""
SUITE = "libero_spatial"


class Watched:
    """A target that notes how far its best token was ahead, in each forward of plain decoding."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.margins: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def start(self, *arguments: Any, **options: Any) -> Any:
        """Begin a step."""
        self.margins.clear()
        return self._noted(self._target.start(*arguments, **options))

    def verify(self, draft: Any) -> Any:
        """Decode one token on."""
        return self._noted(self._target.verify(draft))

    def _noted(self, answer: Any) -> Any:
        self.margins.append(float(answer.margin[-1]))
        return answer


def lossless(settings: Settings) -> Outcome:
    """Decode every observation with each method."""
    wanted = settings.runs(20, 10_000)
    config = replace(load_config(config_file("embodiments/libero_panda.yaml")), model__threads=1)
    parts = build_components(replace(config, decode__method=METHODS[0]))
    watched = Watched(parts.target)
    plain = build_policy(replace(config, decode__method="ar"), with_fields(parts, target=watched))
    others = {name: build_policy(replace(config, decode__method=name), parts) for name in METHODS}
    found = {name: {"failure": 0, "tie": 0} for name in METHODS}
    steps = forwards = 0
    for first, observation, act in itertools.islice(_observations(settings.demos), wanted):
        if first:
            for policy in (plain, *others.values()):
                policy.reset(observation.instruction)
        expected = plain.act(observation)
        margins = list(watched.margins)
        for name, policy in others.items():
            result = policy.act(observation)
            what = difference(expected.action.tokens, result.action.tokens, margins)
            if what:
                found[name][what] += 1
            forwards += result.report.forwards if name == METHODS[0] else 0
        act(expected.action)
        steps += 1
    figures = [
        figure
        for name, counts in found.items()
        for figure in (
            none_of(f"{name}: other tokens", counts["failure"]),
            Figure(f"{name}: near ties", counts["tie"]),
        )
    ]
    return Outcome(
        f"{steps} steps",
        (
            Figure("steps compared", steps, low=wanted),
            *figures,
            Figure(f"{METHODS[0]}: forwards per step", forwards / max(steps, 1)),
        ),
        f"The shipped small model. A near tie: the first token that differs was less than {NEAR} "
        "ahead of the second-best one in plain decoding; each method then goes on from its own "
        "tokens.",
    )


def difference(expected: np.ndarray, found: np.ndarray, margins: list[float]) -> str:
    """Judge two actions' tokens: empty if equal, `tie`, or `failure`.

    Args:
        expected: Tokens (7,) of plain decoding.
        found: Tokens (7,) of the other method.
        margins: How far the logit of each expected token was ahead (7).
    """
    if np.array_equal(expected, found):
        return ""
    if len(expected) != len(found) or len(margins) != len(expected):
        return "failure"
    place = int(np.flatnonzero(np.asarray(expected) != np.asarray(found))[0])
    return "tie" if margins[place] < NEAR else "failure"


def _observations(demos: Path | None) -> Iterator[tuple[bool, Observation, Any]]:
    """Yield (an episode begins, what is seen, what is to be called with the action)."""
    return _rendered() if demos is None else _demonstrated(demos)


def _demonstrated(folder: Path) -> Iterator[tuple[bool, Observation, Any]]:
    from heisd_ros.simulation.libero import FINGER_GAP_MAX, FRAME_ID

    for episode in read_episodes(folder, privileged=False):
        for step in episode.steps():
            stamp_ns = step.frames[0].stamp_ns
            state = Proprioception(
                step.state[:3].astype(np.float64),
                step.state[3:7].astype(np.float64),
                float(np.clip(step.state[7] / FINGER_GAP_MAX, 0.0, 1.0)),
                stamp_ns,
                FRAME_ID,
            )
            seen = Observation(step.frames, state, episode.instruction, stamp_ns=stamp_ns)
            yield step.index == 0, seen, lambda action: None  # noqa: ARG005


def _rendered() -> Iterator[tuple[bool, Observation, Any]]:
    try:
        from heisd_ros.simulation.libero import (
            FRAME_ID,
            ROTATION_SCALE,
            TRANSLATION_SCALE,
            LiberoEnvironment,
        )

        environment = LiberoEnvironment(SUITE, 0, image_size=256)
    except ImportError as error:
        raise CannotRunError(f"{error}; or give --demos.") from None
    with environment as env:
        for seed in itertools.count():
            observation = env.reset(seed % 50)
            for number in range(MAX_STEPS[SUITE]):
                taken: list[Any] = []
                yield number == 0, observation, taken.append
                command = to_command(
                    taken[0],
                    env.control_hz,
                    FRAME_ID,
                    translation_scale=TRANSLATION_SCALE,
                    rotation_scale=ROTATION_SCALE,
                )
                step = env.step(command)
                if step.success:
                    break
                observation = step.observation


ROWS = (
    Row(
        "lossless",
        "Exact acceptance and Jacobi decoding against plain decoding",
        "the same tokens at every step; near ties of the model are counted apart",
        lossless,
    ),
)
