"""OpenVLA as target model and vision encoder (HeiSD sections 2 and 4.1)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.errors import ConfigError, ModelError, ShapeError
from heisd_ros.models.checkpoint import Checkpoint
from heisd_ros.models.device import choose_device, choose_dtype, device_name, use_threads
from heisd_ros.models.frame_encoder import FrameEncoder
from heisd_ros.models.model_facts import model_info, state_statistics
from heisd_ros.models.network import OpenVlaNetwork
from heisd_ros.models.prefill import ReusingPrefill
from heisd_ros.models.prompt import PromptEncoder
from heisd_ros.models.quantised import is_quantised, quantise
from heisd_ros.models.self_check import check_image_is_used
from heisd_ros.models.token_reuse import ReuseOptions
from heisd_ros.models.tree_decoder import PrefixFeatures, TreeDecoder
from heisd_ros.protocols import ModelInfo
from heisd_ros.types import (
    Float32Array,
    Frame,
    ImageArray,
    IntArray,
    TokenTree,
    Verification,
    VisualFeatures,
)

LOGGER = logging.getLogger(__name__)

MAX_PROMPT = 96
"""Cache slots for prompt ids; LIBERO's instructions take 20 to 35."""


class OpenVlaTarget:
    """A loaded checkpoint; implements `protocols.TargetModel` and `protocols.VisionEncoder`.

    Not for two threads at once: the K/V cache belongs to one step.

    Example:
        >>> import tempfile
        >>> from heisd_ros.models.tiny import make_tiny_checkpoint
        >>> target = OpenVlaTarget.from_pretrained(make_tiny_checkpoint(tempfile.mkdtemp()), "cpu")
        >>> frame = Frame(np.zeros((64, 64, 3), np.uint8), "third_person", 0)
        >>> features = target.encode([frame])
        >>> target.start(target.prompt("pick up the bowl"), features.patches).target_next.shape
        (1,)
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        network: OpenVlaNetwork,
        info: ModelInfo,
        *,
        statistics_key: str,
        pool: str = "mean",
        normalise: str = "blocks",
        compiled: bool = False,
        reuse: ReuseOptions | None = None,
    ) -> None:
        """Wrap a filled network; most callers want `from_pretrained`."""
        config = network.config
        self.network = network
        self.statistics_key = statistics_key
        self._checkpoint, self._info = checkpoint, info
        self._prompts = PromptEncoder(checkpoint.folder / "tokenizer.json", config.vocab_size)
        self._encoder = FrameEncoder(
            *(network.vision_backbone, checkpoint.preprocessing, config.views),
            pool=pool,
            normalise=normalise,
        )
        self._decoder = TreeDecoder(
            network.language_model,
            MAX_PROMPT + config.inserted,
            info.max_nodes,
            compiled=compiled,
        )
        self._state_statistics = state_statistics(checkpoint, statistics_key)
        self._reusing = None
        if reuse is not None:
            self._reusing = ReusingPrefill(network, self._decoder, reuse, compiled=compiled)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        device: str = "auto",
        dtype: str = "auto",
        *,
        statistics_key: str = "",
        threads: int = 0,
        max_nodes: int = 96,
        pool: str = "mean",
        normalise: str = "blocks",
        compiled: bool = False,
        reuse: ReuseOptions | None = None,
        self_check: bool = True,
    ) -> OpenVlaTarget:
        """Load a local checkpoint folder; no network, no remote code, no question asked.

        Args:
            path: Folder in the layout of the Hugging Face export.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            dtype: `auto`, `float32`, `bfloat16` or `float16`; `int8` and `nf4` quantise the
                language model with bitsandbytes.
            statistics_key: Training set of the statistics; may be empty if there is only one.
            threads: Torch threads; 0: torch's choice.
            max_nodes: Largest draft tree.
            pool: Pooling of the DINOv2 patches in the embedding, `mean` or `last_patch`.
            normalise: Of the embedding, `blocks` or `whole`; see `join_views`.
            compiled: Compile the language model; the first steps take minutes, later ones less.
            reuse: Reuse K/V rows of patches that did not change since the last step; None: never.
            self_check: Refuse a model that ignores the picture.

        Raises:
            ModelError: If the folder is no complete checkpoint or fails the self-check.
            ConfigError: If an argument or the statistics key is unknown.
            DataError: If the statistics are malformed.
        """
        checkpoint = Checkpoint.open(path)
        statistics = ActionStatistics.load(checkpoint.folder, statistics_key)
        use_threads(threads)
        where = choose_device(device)
        quantised = is_quantised(dtype)
        if quantised and compiled:
            raise ConfigError(
                f"model.dtype {dtype} cannot be compiled; set model.compile to false or "
                "model.dtype to bfloat16"
            )
        precision = choose_dtype("auto" if quantised else dtype, where)
        network, vision_hash = checkpoint.load(
            torch.device("cpu") if quantised else where, precision
        )
        if quantised:
            quantise(network.language_model, dtype, where)
            network.to(where)
        info = model_info(checkpoint, vision_hash, pool, max_nodes, normalise=normalise)
        target = cls(
            checkpoint,
            network,
            info,
            statistics_key=statistics.key,
            pool=pool,
            normalise=normalise,
            compiled=compiled,
            reuse=reuse,
        )
        if self_check:
            target.self_check()
        millions = sum(weight.numel() for weight in network.parameters()) / 1e6
        LOGGER.info("loaded %s: %.1f M parameters, %s on %s", path, millions, precision, where)
        return target

    @property
    def info(self) -> ModelInfo:
        """Facts about the checkpoint."""
        return self._info

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.language_model.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return self.network.language_model.norm.weight.dtype

    @property
    def hardware(self) -> str:
        """Device and weight type in words, e.g. for the record of a measurement."""
        return f"{device_name(self.device)}, {self.dtype}"

    @property
    def max_prefix(self) -> int:
        """Most rows in front of an action: the longest prompt, the patches and the state."""
        return self._decoder.max_prefix

    @property
    def committed(self) -> int:
        """Rows of the K/V cache that are committed: the prefix and the accepted tokens."""
        return self._decoder.committed

    @property
    def reused(self) -> int:
        """Patches whose K/V rows the last `start` took from the step before."""
        return 0 if self._reusing is None else self._reusing.reused

    def statistics(self, key: str = "") -> ActionStatistics:
        """Return the action statistics of a training set; empty: the one chosen at loading."""
        return ActionStatistics.load(self._checkpoint.folder, key or self.statistics_key)

    def self_check(self) -> None:
        """Check the tokenizer and that the picture matters; forgets the current step.

        Raises:
            ModelError: With the reason first: `prompt_tail`, `token_range`, `image_ignored`.
        """
        self._prompts.check(self._info.n_bins)
        size = self._info.state_size
        check_image_is_used(self, self, state=np.zeros(size, np.float32) if size else None)
        self.reset()

    def reset(self) -> None:
        """Forget the current step and the rows kept for the next one: an episode begins."""
        self._decoder.reset()
        if self._reusing is not None:
            self._reusing.drop()

    def preprocess(self, images: Sequence[ImageArray]) -> Tensor:
        """Return pixel values, float32 (n, 6, S, S) on the CPU, of uint8 RGB pictures."""
        return self._checkpoint.preprocessing.pixels(images)

    def encode(self, frames: Sequence[Frame]) -> VisualFeatures:
        """Encode frames given in view order, in one batched pass.

        The patches of the first `info.views` stay on the device; the embedding covers all frames.

        Raises:
            DataError: If there are too few frames or one is not uint8 (H, W, 3).
        """
        return self._encoder.encode_many([frames])[0]

    def encode_many(self, sets: Sequence[Sequence[Frame]]) -> list[VisualFeatures]:
        """Encode several sets of equally many frames in one pass, e.g. to build a store."""
        return self._encoder.encode_many(sets)

    def prompt(self, instruction: str) -> IntArray:
        """Return the prompt ids of an instruction, BOS first, empty token last.

        Raises:
            ModelError: If the instruction is blank or too long.
        """
        ids = self._prompts(instruction)
        if len(ids) > MAX_PROMPT:
            raise ModelError(
                f"the prompt takes {len(ids)} tokens, at most {MAX_PROMPT} fit; "
                "shorten the instruction"
            )
        return ids

    @torch.inference_mode()
    def start(
        self,
        prompt: IntArray,
        patches: Any,  # noqa: ANN401  (array or device tensor)
        draft: TokenTree | None = None,
        *,
        state: Float32Array | None = None,
    ) -> Verification:
        """Begin a step: one forward over prompt, patches and draft tree; forgets the last step.

        Args:
            prompt: int64 (L,), from `prompt`.
            patches: (V, P, D), array or tensor, from `encode`.
            draft: Tree verified in the same forward; None for the prompt alone.
            state: float32 (state_size,), raw; needed if the model takes one.

        Raises:
            ShapeError: If an input has the wrong shape.
            ModelError: If the prompt or the tree is too large.
        """
        self._decoder.reset()
        ids = torch.as_tensor(np.asarray(prompt, dtype=np.int64), device=self.device)
        seen, normalised = self._patches(patches), self._state(state)
        if self._reusing is not None:
            return self._reusing.start(ids, seen, normalised, draft)
        prefix = self.network.prefix(ids[None], seen[None], normalised)
        return self._decoder.start(prefix, draft)

    def prefix_features(self) -> PrefixFeatures:
        """Return input and output of the language model in front of the action of this step.

        Raises:
            ModelError: If no step has begun.
        """
        features = self._decoder.prefix_features
        if features is None:
            raise ModelError("prefix_features() needs a step that has begun; call start() first")
        return features

    @torch.inference_mode()
    def verify(self, draft: TokenTree) -> Verification:
        """One forward over a tree below the committed prefix; row 0 repeats the known answer.

        Raises:
            ModelError: If no step has begun, or the tree is too large.
        """
        return self._decoder.verify(draft)

    @torch.inference_mode()
    def accept(self, path: IntArray | Sequence[int]) -> None:
        """Commit these nodes of the last forward's tree, root first; drop all others.

        Raises:
            ModelError: If there is no tree to accept from.
            ShapeError: If the nodes are not a path from the first level down.
        """
        self._decoder.accept(path)

    def _patches(self, patches: Any) -> Tensor:  # noqa: ANN401
        config = self.network.config
        tensor = torch.as_tensor(patches).to(self.device, self.dtype)
        expected = (config.views, config.patches, config.patch_dim)
        if tuple(tensor.shape) != expected:
            raise ShapeError(
                f"patches must have shape (V, P, D) = {expected}, got {tuple(tensor.shape)}; "
                "encode the frames with this checkpoint"
            )
        return tensor

    def _state(self, state: Float32Array | None) -> Tensor | None:
        if self._state_statistics is None:
            return None
        expected = (self._info.state_size,)
        if state is None or np.shape(state) != expected:
            found = "none" if state is None else f"shape {np.shape(state)}"
            raise ShapeError(f"this checkpoint needs a state of shape {expected}, got {found}")
        values = self._state_statistics.normalize(state)
        return torch.as_tensor(values, dtype=self.dtype, device=self.device)[None]
