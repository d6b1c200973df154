"""The small VLA that we ship: an OpenVLA network of 2 M parameters, and its training forward.

Inference uses `OpenVlaTarget` on the exported folder. Here is what training adds: a vocabulary cut
down to the tokens that occur, sequences of unequal length in one batch, and a last layer that is
run only for the rows whose output is needed. None of it changes a number of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heisd_ros.errors import ShapeError
from heisd_ros.models.checkpoint import save_checkpoint
from heisd_ros.models.llama import LlamaConfigView, LlamaLayer, rotary_angles
from heisd_ros.models.network import NetworkConfig, OpenVlaNetwork
from heisd_ros.models.small_tokenizer import write_tokenizer
from heisd_ros.models.vision import TowerConfig
from heisd_ros.types import ACTION_DIM, IntArray

LLAMA_ROWS = 32064
"""Rows of OpenVLA's vocabulary: 32000 of Llama-2 and 64 of padding."""

STATE_SPREAD = 3.0
"""Scale of the first state layer at the start. A finger gap must be told apart within 2 mm of its
80 mm; with the usual small weights all hidden units would see the state as one straight line."""


@dataclass(frozen=True, slots=True)
class SmallVlaShape:
    """Sizes of the small VLA; the defaults are the shipped ones."""

    image_size: int = 96
    patch_size: int = 16
    views: int = 2
    tower_dim: int = 96
    tower_blocks: int = 2
    tower_heads: int = 3
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    ffn: int = 344
    state_size: int = 4
    n_bins: int = 256

    def network(self, rows: int = LLAMA_ROWS) -> NetworkConfig:
        """Return the network's configuration with a vocabulary of `rows` rows."""
        siglip = TowerConfig(
            self.tower_dim,
            self.tower_blocks + 1,  # the last block is never run, see VisionTower
            self.tower_heads,
            4 * self.tower_dim,
            self.patch_size,
            self.image_size,
        )
        llm = LlamaConfigView(
            self.hidden, self.layers, self.heads, self.heads, ffn=self.ffn, vocab=rows
        )
        dino = replace(siglip, prefix_tokens=5, layer_scale=True)
        return NetworkConfig(dino, siglip, llm, views=self.views, state_size=self.state_size)


@dataclass(frozen=True, slots=True)
class VlaBatch:
    """Training samples; token numbers are those of the compact vocabulary.

    Attributes:
        pixels: float32 (B, V, 6, S, S), normalised.
        text: int64 (B, T): prompt without BOS, then six action tokens, then anything.
        prompt_length: int64 (B,), prompt tokens without BOS.
        state: float32 (B, state_size), normalised.
    """

    pixels: Tensor
    text: Tensor
    prompt_length: Tensor
    state: Tensor


@dataclass(frozen=True, slots=True)
class VlaOutputs:
    """What the losses look at.

    Attributes:
        logits: (B, 7, n_bins), ascending token ids.
        patches: (B, V, P, D), both towers' features.
        early_state: (B, d), the state token before the last layer.
        early_prompt: (B, d), the last prompt token before the last layer.
        final_prompt: (B, d), the last prompt token's lm_head input.
    """

    logits: Tensor
    patches: Tensor
    early_state: Tensor
    early_prompt: Tensor
    final_prompt: Tensor


class CompactVocabulary:
    """The text ids that occur in prompts, then the action ids, numbered without gaps."""

    def __init__(self, prompts: Sequence[IntArray], first_action: int, n_bins: int) -> None:
        """Collect the ids.

        Args:
            prompts: Prompt ids (L,) of all instructions, BOS first.
            first_action: Smallest action id.
            n_bins: Number of action ids.
        """
        self.text_ids: IntArray = np.unique(np.concatenate(list(prompts)))
        self.first_action = first_action
        self.n_bins = n_bins

    def __len__(self) -> int:
        return len(self.text_ids) + self.n_bins

    @property
    def ids(self) -> IntArray:
        """int64 (len(self),): the real id of every compact token."""
        actions = np.arange(self.first_action, self.first_action + self.n_bins)
        return np.concatenate([self.text_ids, actions])

    def compact(self, ids: IntArray) -> IntArray:
        """Return the compact numbers of known ids, same shape."""
        found = np.searchsorted(self.ids, ids)
        return np.asarray(found, dtype=np.int64)


class SmallVla(nn.Module):
    """The network over a compact vocabulary, for training."""

    def __init__(self, shape: SmallVlaShape, vocabulary: CompactVocabulary) -> None:
        super().__init__()
        self.shape = shape
        self.vocabulary = vocabulary
        self.network = OpenVlaNetwork(shape.network(len(vocabulary)))
        _spread_state(self.network.proprio_projector.fc1)

    def forward(self, batch: VlaBatch) -> VlaOutputs:
        """Run teacher-forced sequences [BOS, patches, state, prompt, a0 .. a5].

        Samples may have prompts of unequal length: what follows the sixth action token is padding
        that no earlier row can see.
        """
        network, llama = self.network, self.network.language_model
        size = batch.pixels.shape[0]
        patches = network.vision_backbone(batch.pixels.flatten(0, 1)).unflatten(0, (size, -1))
        bos = torch.zeros((size, 1), dtype=torch.int64) + int(self.vocabulary.compact(np.array(1)))
        x = network.prefix(torch.cat([bos, batch.text], dim=1), patches, batch.state)
        state_row = x.shape[1] - batch.text.shape[1] - 1
        rows = state_row + batch.prompt_length[:, None] + torch.arange(ACTION_DIM)  # (B, 7)
        config = llama.config
        angles = rotary_angles(torch.arange(x.shape[1]), config.head_dim, config.rope_theta)
        for layer in llama.layers[:-1]:
            x = layer(x, angles, None)
        last = llama.layers[-1]
        assert isinstance(last, LlamaLayer)
        hidden = llama.norm(run_rows(last, x, angles, rows))
        return VlaOutputs(
            logits=llama.logits(hidden, slice(len(self.vocabulary) - self.shape.n_bins, None)),
            patches=patches,
            early_state=x[:, state_row],
            early_prompt=x[torch.arange(size), rows[:, 0]],
            final_prompt=hidden[:, 0],
        )

    def export(self, folder: str | Path, statistics: Mapping[str, Any]) -> None:
        """Write the checkpoint in the OpenVLA layout, with the full vocabulary.

        Args:
            folder: Made if it does not exist.
            statistics: Content of `dataset_statistics.json`.
        """
        full = OpenVlaNetwork(self.shape.network())
        state = {name: value.detach() for name, value in self.network.state_dict().items()}
        ids = torch.from_numpy(self.vocabulary.ids)
        is_action = ids >= self.vocabulary.first_action
        for name, used in (("embed_tokens", ids >= 0), ("lm_head", is_action)):
            key = f"language_model.{name}.weight"
            table = torch.zeros(LLAMA_ROWS, self.shape.hidden)
            table[ids[used]] = state[key][used]
            state[key] = table
        full.load_state_dict(state)
        # float16 keeps three bits more than bfloat16, and all weights are far from its limits.
        save_checkpoint(folder, full, statistics=statistics, dtype=torch.float16)
        write_tokenizer(folder)


def run_rows(layer: LlamaLayer, x: Tensor, angles: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
    """Return a causal layer's output at some rows only.

    Args:
        layer: A decoder layer.
        x: (B, L, d), its whole input.
        angles: Cosines and sines (L, head_dim) of the rows.
        rows: int64 (B, R), the wanted rows.

    Returns:
        (B, R, d), equal to those rows of the full output.

    Raises:
        ShapeError: If rows and x do not belong together.
    """
    if rows.dim() != 2 or rows.shape[0] != x.shape[0]:
        raise ShapeError(f"rows must be ({x.shape[0]}, R), got {tuple(rows.shape)}")
    q, k, v = layer.self_attn.project(layer.input_layernorm(x), *angles)
    wanted = rows[:, None, :, None].expand(-1, q.shape[1], -1, q.shape[3])
    mask = torch.arange(x.shape[1]) <= rows[:, None, :, None]  # (B, 1, R, L)
    picked = x.gather(1, rows[:, :, None].expand(-1, -1, x.shape[2]))
    picked = picked + layer.self_attn.attend(q.gather(2, wanted), k, v, mask)
    out: Tensor = picked + layer.mlp(layer.post_attention_layernorm(picked))
    return out


def _spread_state(layer: nn.Linear) -> None:
    """Let the hidden units of the state bend at many different places of [-1, 1]."""
    nn.init.normal_(layer.weight, std=STATE_SPREAD)
    nn.init.uniform_(layer.bias, -STATE_SPREAD, STATE_SPREAD)
