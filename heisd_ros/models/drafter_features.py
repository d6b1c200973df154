"""What the frozen target feels and says on demonstrated steps: the drafter's training data.

A drafter has to guess the *target*, not the demonstrator. So every step is decoded greedily by the
target itself, through the very calls of a control step, and its features are kept: one `.npy` file
per episode, so that an interrupted run goes on where it stopped and nothing has to fit in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from heisd_ros.demonstrations.episode import Episode, load_episode
from heisd_ros.draft.continuation import DRAFTED_DIM
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import DataError
from heisd_ros.files import whole_file
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.protocols import VisionEncoder
from heisd_ros.types import Float32Array, IntArray, VisualFeatures

LOGGER = logging.getLogger(__name__)

DRAFTED = DRAFTED_DIM - 1
"""Tokens of an action that a drafter may draft: not the first, which the prefill gives, and not the
gripper."""

HELD_OUT_EVERY = 12
"""Every twelfth episode is kept for validation."""

Float16Array = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class FeatureFile:
    """The kept steps of one episode.

    The array in it is float16 (T, 2, P + 5, d): embeddings and features at the P positions of the
    prompt and of the first five action tokens.

    Attributes:
        path: The file.
        steps: T.
        length: P + 5.
        held_out: Kept for validation.
    """

    path: Path
    steps: int
    length: int
    held_out: bool


def collect_features(
    target: OpenVlaTarget,
    encoder: VisionEncoder,
    demos: Path,
    out: Path,
    *,
    cameras: Sequence[str],
    every: int = 4,
) -> list[FeatureFile]:
    """Run the target over the successful episodes below a folder; files that exist are kept.

    Args:
        target: The frozen target.
        encoder: The target's vision encoder, behind the served crop.
        demos: Folder of episodes (.npz).
        out: Folder of the feature files.
        cameras: Names of the views the target is fed, in its order.
        every: Keep every so many steps of an episode, >= 1: neighbours are nearly the same.

    Raises:
        DataError: If there is no successful episode, or one lacks a camera.
    """
    out.mkdir(parents=True, exist_ok=True)
    files: list[FeatureFile] = []
    paths = sorted(demos.rglob("*.npz"))
    for number, path in enumerate(tqdm(paths, desc="features", unit="episode", disable=None)):
        name = "__".join(path.relative_to(demos).with_suffix(".npy").parts)
        file = out / name
        if not file.is_file():
            episode = load_episode(path, privileged=False)
            if not episode.success:
                continue
            start = number % every  # so that not all episodes show the same moments
            steps = list(_steps(target, encoder, episode, cameras, slice(start, None, every)))
            if not steps:
                continue
            _save(file, np.stack(steps))
        shape = np.load(file, mmap_mode="r").shape
        held_out = number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
        files.append(FeatureFile(file, shape[0], shape[2], held_out))
    if not files:
        raise DataError(f"no successful episode (.npz) below {demos}; make some: heisd ingest")
    LOGGER.info("%d steps of %d episodes", sum(file.steps for file in files), len(files))
    return files


@torch.inference_mode()
def step_features(
    target: OpenVlaTarget,
    prompt: IntArray,
    features: VisualFeatures,
    state: Float32Array | None = None,
) -> Float16Array:
    """Decode one step greedily; return its embeddings and features, float16 (2, P + 5, d)."""
    answer = target.start(prompt, features.patches, state=state)
    prefix = target.prefix_features()
    tokens, hidden = [int(answer.target_next[0])], [prefix.hidden]
    for _ in range(DRAFTED):
        answer = target.verify(DraftTree.chain(tokens[-1:]))
        target.accept([0])
        hidden.append(answer.hidden[1:])
        tokens.append(int(answer.target_next[1]))
    fed = torch.as_tensor(tokens[:-1], device=target.device)
    embeds = torch.cat((prefix.embeds, target.network.language_model.embed_tokens(fed)))
    both = torch.stack((embeds, torch.cat(hidden)))
    return np.asarray(both.to("cpu", torch.float16).numpy())


class FeatureSet:
    """Draws batches from feature files; samples of one batch have prompts of one length."""

    def __init__(self, files: Sequence[FeatureFile]) -> None:
        """Take the files; at least one.

        Raises:
            DataError: If there is none.
        """
        if not files:
            raise DataError("no feature files; a drafter needs at least one episode")
        self._files = tuple(files)
        self._steps = np.array([file.steps for file in files])
        self._lengths = np.array([file.length for file in files])

    def __len__(self) -> int:
        return int(self._steps.sum())

    def draw(self, size: int, rng: np.random.Generator) -> Tensor:
        """Return float32 (size, 2, L, d); every step is equally likely."""
        length = self._lengths[rng.choice(len(self._files), p=self._steps / self._steps.sum())]
        chance = self._steps * (self._lengths == length)
        picked = rng.choice(len(self._files), size, p=chance / chance.sum())
        return torch.from_numpy(np.stack([self._step(number, rng) for number in picked]))

    def _step(self, number: int, rng: np.random.Generator) -> Float32Array:
        array = np.load(self._files[number].path, mmap_mode="r")
        return np.asarray(array[rng.integers(len(array))], dtype=np.float32)


def _steps(
    target: OpenVlaTarget,
    encoder: VisionEncoder,
    episode: Episode,
    cameras: Sequence[str],
    kept: slice,
) -> Iterator[Float16Array]:
    missing = [camera for camera in cameras if camera not in episode.cameras]
    if missing:
        raise DataError(
            f"the model is fed {list(cameras)}, the episode has {list(episode.cameras)}; "
            "set perception.cameras to the names in the demonstrations"
        )
    views = [episode.cameras.index(camera) for camera in cameras]
    prompt = target.prompt(episode.instruction)
    for index in range(len(episode))[kept]:
        step = episode.step(index)
        state = None
        if target.info.state_size:
            state = np.array([*step.state[:3], step.state[7]], dtype=np.float32)
        features = encoder.encode([step.frames[view] for view in views])
        yield step_features(target, prompt, features, state)


def _save(file: Path, array: Float16Array) -> None:
    """Write the array; a reader sees the whole file or none of it."""
    with whole_file(file) as stream:
        np.save(stream, array)
