"""What the target model itself says at the steps of an episode, decoded autoregressively."""

from __future__ import annotations

from typing import Any

import numpy as np

from heisd_ros.demonstrations.episode import Episode
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import DataError, ModelError
from heisd_ros.protocols import TargetModel, VisionEncoder
from heisd_ros.types import ACTION_DIM, Float32Array, Frame, IntArray


class TargetAnswers:
    """Decodes every step of an episode; also keeps what its lm_head saw in front of the action."""

    def __init__(self, target: TargetModel, encoder: VisionEncoder) -> None:
        """Use a target and the encoder of its pictures."""
        self._target, self._encoder = target, encoder

    def __call__(self, episode: Episode, views: list[int]) -> tuple[Float32Array, IntArray]:
        """Return lm_head inputs float32 (T, d) and greedy tokens int64 (T, 7).

        Args:
            episode: With its pictures.
            views: Where the wanted cameras stand in the episode.

        Raises:
            DataError: If the target takes a state and the episode has none.
            ModelError: If the target keeps no hidden states.
        """
        prompt = self._target.prompt(episode.instruction)
        answers = [
            self._step([step.frames[view] for view in views], prompt, self._state(step.state))
            for step in episode.steps()
        ]
        return np.stack([hidden for hidden, _ in answers]), np.stack([t for _, t in answers])

    def _step(
        self, frames: list[Frame], prompt: IntArray, state: Float32Array | None
    ) -> tuple[Float32Array, IntArray]:
        features = self._encoder.encode(frames)
        answer = self._target.start(prompt, features.patches, None, state=state)
        if answer.hidden is None:
            raise ModelError("the target keeps no hidden states: build without --target-answers")
        hidden = _as_numpy(answer.hidden[0])
        tokens = [int(answer.target_next[0])]
        while len(tokens) < ACTION_DIM:
            answer = self._target.verify(DraftTree.chain(tokens[-1:]))
            self._target.accept([0])
            tokens.append(int(answer.target_next[1]))
        return hidden, np.array(tokens, dtype=np.int64)

    def _state(self, state: Float32Array) -> Float32Array | None:
        """Return (x, y, z, finger gap) in metres if the target takes a state."""
        if not self._target.info.state_size:
            return None
        wanted = np.array([*state[:3], state[7]], dtype=np.float32)
        if not np.isfinite(wanted).all():
            raise DataError(
                "the model needs the measured pose and finger gap, the episode has none: build "
                "without --target-answers"
            )
        return wanted


def _as_numpy(row: Any) -> Float32Array:  # noqa: ANN401  (array or device tensor)
    host = row.float().cpu().numpy() if hasattr(row, "cpu") else row
    return np.asarray(host, dtype=np.float32)
