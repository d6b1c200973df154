"""What a skipped verification would have done along demonstrated tracks (Algorithm 1, offline).

Every step of a demonstration is shown to the target together with the draft that the other
demonstrations of its task hold for it. One forward says whether the draft would have been accepted,
and gives the feature, the lm_head's input after the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from tqdm import tqdm

from heisd_ros.action_space.gripper import state_of_token
from heisd_ros.action_space.layout import SEQUENCE_SLICES
from heisd_ros.action_space.layout import Sequence as ActionSequence
from heisd_ros.build import Components
from heisd_ros.config import HeisdConfig
from heisd_ros.demonstrations.episode import Episode, Step
from heisd_ros.demonstrations.task import normalise_task
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import DataError
from heisd_ros.files import whole_file
from heisd_ros.types import ACTION_DIM, BoolArray, Float32Array, FloatArray, IntArray
from heisd_ros.verify.acceptance import SequenceRelaxedAcceptance
from heisd_ros.verify.bias import index_bias
from heisd_ros.verify.verify_skip import to_numpy

GRIPPER = ACTION_DIM - 1
FINGER_GAP = 7
"""Column of an episode's state: finger gap, metres."""

COLUMNS = ("positions", "features", "acceptable", "eligible", "score")
"""What a judged track keeps of each step."""


@dataclass(frozen=True, slots=True)
class SkipTrack:
    """One demonstration as the skip rule would have met it, T steps.

    Attributes:
        task: Task key.
        positions: float64 (T, 3), metres.
        features: float32 (T, d), lm_head input after the prompt.
        acceptable: bool (T,), whether the target would have accepted the best draft whole.
        eligible: bool (T,), whether the predicates that are not learned held.
        score: float32 (T,), cosine of the best draft.
    """

    task: str
    positions: FloatArray
    features: Float32Array
    acceptable: BoolArray
    eligible: BoolArray
    score: Float32Array

    def __len__(self) -> int:
        """Return T."""
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The K drafts of each of T steps, best first.

    Attributes:
        tokens: int64 (T, K, 7).
        score: float32 (T, K), cosine.
    """

    tokens: IntArray
    score: Float32Array


def judge_task(
    episodes: Sequence[Episode], parts: Components, config: HeisdConfig, *, judged: int = 0
) -> Iterator[SkipTrack]:
    """Yield the tracks of one task.

    Args:
        episodes: Successful demonstrations with pictures; each is judged against the others.
        parts: The target with encoder, tokenizer and statistics.
        config: Top-K, the acceptance rule, the limits of a skip.
        judged: How many episodes are judged; 0: all.

    Raises:
        DataError: If there is only one episode, or the episodes carry no pose.
    """
    if len(episodes) < 2:
        raise DataError(
            f"expected at least 2 demonstrations of {episodes[0].instruction!r} to draft one from "
            f"the others, got {len(episodes)}; collect more"
        )
    embeddings = [_embed(episode, parts) for episode in _bar(episodes, "embed")]
    tokens = [
        np.asarray(parts.tokenizer.encode(parts.statistics.normalize(np.float64(e.actions))))
        for e in episodes
    ]
    for number in _bar(range(len(episodes))[: judged or None], "judge"):
        others = [i for i in range(len(episodes)) if i != number]
        found = nearest(
            embeddings[number],
            np.concatenate([embeddings[i] for i in others]),
            np.concatenate([tokens[i] for i in others]),
            config.retrieval.top_k,
        )
        yield _judge(episodes[number], found, tokens[number], parts, config)


def nearest(queries: Float32Array, known: Float32Array, tokens: IntArray, top_k: int) -> Neighbours:
    """Return the K nearest known steps of every query by cosine.

    Args:
        queries: (T, E), unit rows.
        known: (n, E), unit rows.
        tokens: (n, 7), their actions.
        top_k: K.
    """
    scores = queries @ known.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    return Neighbours(tokens[best], np.take_along_axis(scores, best, axis=1))


def eligible_steps(found: Neighbours, executed: IntArray, config: HeisdConfig) -> BoolArray:
    """Return bool (T,): what `VerifySkip` asks beside its thresholds.

    Args:
        found: The drafts.
        executed: (T, 7), tokens of the demonstrated actions; the one before tells the gripper.
        config: Limits of a skip.
    """
    position = found.tokens[:, :, SEQUENCE_SLICES[ActionSequence.POSITION]]
    spread = np.ptp(position, axis=1).sum(axis=1) / 2.0
    opens = _open(found.tokens[:, :, GRIPPER])
    last = np.concatenate([[False], _open(executed[:-1, GRIPPER])])
    holds = (opens == last[:, None]).all(axis=1)
    holds[:1] = False
    close = found.score[:, 0] >= config.skip.min_score
    return np.asarray(close & (spread <= config.skip.max_spread) & holds, dtype=np.bool_)


def accepted_whole(tokens: IntArray, answers: IntArray, rule: SequenceRelaxedAcceptance) -> bool:
    """Report whether position and rotation pass the budgets and the gripper state is the same.

    Args:
        tokens: (7,), the draft.
        answers: (7,), the target's choice after the prefix and each of the six tokens.
        rule: The budgets.
    """
    tree = DraftTree.chain(tokens[:GRIPPER])
    bias = index_bias(tree, answers)
    parts = (ActionSequence.POSITION, ActionSequence.ROTATION)
    passed = all(rule.accepts(bias[SEQUENCE_SLICES[part]]) for part in parts)
    wanted = state_of_token(int(answers[GRIPPER]))
    return passed and wanted is state_of_token(int(tokens[GRIPPER]))


def save_tracks(path: Path, tracks: Sequence[SkipTrack]) -> None:
    """Write judged tracks: judging takes longest. A reader sees the whole file or none of it."""
    columns = {name: np.concatenate([getattr(t, name) for t in tracks]) for name in COLUMNS}
    with whole_file(path) as stream:
        np.savez_compressed(
            stream,
            allow_pickle=False,
            task=np.array([track.task for track in tracks]),
            length=np.array([len(track) for track in tracks]),
            **columns,
        )


def load_tracks(path: Path) -> list[SkipTrack]:
    """Read a file of `save_tracks`.

    Raises:
        DataError: If it is missing, damaged, or something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            ends = np.cumsum(file["length"])[:-1]
            parts = {name: np.split(file[name], ends) for name in COLUMNS}
            return [
                SkipTrack(str(task), **{name: parts[name][number] for name in COLUMNS})
                for number, task in enumerate(file["task"])
            ]
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(
            f"{path} holds no judged tracks ({error!r}); make it with `heisd calibrate --skip`"
        ) from error


def _judge(
    episode: Episode,
    found: Neighbours,
    executed: IntArray,
    parts: Components,
    config: HeisdConfig,
) -> SkipTrack:
    verify = config.verify
    rule = SequenceRelaxedAcceptance(
        verify.sequence_budget, verify.token_budget, strict=verify.strict
    )
    prompt = parts.target.prompt(episode.instruction)
    features, acceptable = [], []
    for step, drafts in zip(episode.steps(), found.tokens, strict=True):
        patches = parts.encoder.encode(step.frames).patches
        tree = DraftTree.chain(drafts[0, :GRIPPER])
        answer = parts.target.start(prompt, patches, tree, state=_state(step, parts))
        if answer.hidden is None:
            raise DataError("the target keeps no lm_head inputs; Algorithm 1 compares them")
        features.append(to_numpy(answer.hidden[0]).astype(np.float32))
        acceptable.append(accepted_whole(drafts[0], answer.target_next, rule))
    return SkipTrack(
        normalise_task(episode.instruction),
        np.asarray(episode.state[:, :3], dtype=np.float64),
        np.stack(features),
        np.array(acceptable, dtype=np.bool_),
        eligible_steps(found, executed, config),
        np.asarray(found.score[:, 0], dtype=np.float32),
    )


def _embed(episode: Episode, parts: Components) -> Float32Array:
    if not np.isfinite(episode.state[:, :3]).all():
        raise DataError(
            f"a demonstration of {episode.instruction!r} has steps without a measured position"
        )
    return np.stack([parts.encoder.encode(step.frames).embedding for step in episode.steps()])


def _state(step: Step, parts: Components) -> Float32Array | None:
    if not parts.target.info.state_size:
        return None
    return np.array([*step.state[:3], step.state[FINGER_GAP]], dtype=np.float32)


def _open(tokens: IntArray) -> BoolArray:
    known = {int(t): bool(state_of_token(int(t))) for t in np.unique(tokens)}
    return np.array([known[int(t)] for t in tokens.ravel()], dtype=np.bool_).reshape(tokens.shape)


def _bar(items: Sequence[Episode] | range, what: str) -> tqdm:  # type: ignore[type-arg]
    return tqdm(items, desc=what, unit="episode", disable=None, leave=False)
