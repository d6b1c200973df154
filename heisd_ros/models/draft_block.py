"""The trained part of the drafter: one Llama layer over features, and its files (Spec-VLA; EAGLE).

h' = Layer(fc([embedding of the next token ; feature])), one row per position, the whole multimodal
prompt included. Embeddings and lm_head are the frozen target's own, so a block for OpenVLA-7B has
235.9 M weights.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heisd_ros.errors import ModelError
from heisd_ros.models.kv_cache import KVCache
from heisd_ros.models.llama import LlamaConfigView, LlamaLayer, rotary_angles
from heisd_ros.models.tree_attention import Rows

LOGGER = logging.getLogger(__name__)

MODEL_TYPE = "heisd_draft_head"
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"


class DraftBlock(nn.Module):
    """Predicts the feature at the next position."""

    def __init__(self, config: LlamaConfigView) -> None:
        """Make the block for a target's language model; its number of layers does not matter."""
        super().__init__()
        self.config = config
        self.fc = nn.Linear(2 * config.hidden, config.hidden)
        self.layer = LlamaLayer(config)

    def forward(self, embeds: Tensor, hidden: Tensor, last: int) -> Tensor:
        """Run whole sequences without a cache; differentiable.

        Args:
            embeds: (B, L, d), row i is the embedding at position i + 1.
            hidden: (B, L, d), row i is the target's feature at position i.
            last: How many rows to return; the others are only looked at, which is cheaper.

        Returns:
            (B, last, d), the predicted features at the positions i + 1 of the last rows.
        """
        x = self.fc(torch.cat((embeds, hidden), dim=-1))
        length, attention = x.shape[1], self.layer.self_attn
        places = torch.arange(length, device=x.device)
        q, k, v = attention.project(self.layer.input_layernorm(x), *self.angles(places))
        mask = places <= places[-last:, None]  # (last, L)
        x = x[:, -last:] + attention.attend(q[:, :, -last:], k, v, mask[None, None])
        out: Tensor = x + self.layer.mlp(self.layer.post_attention_layernorm(x))
        return out

    def cached(self, embeds: Tensor, hidden: Tensor, rows: Rows, cache: KVCache) -> Tensor:
        """Run new rows (n, d) on top of the cache; return their predicted features (n, d)."""
        x = self.fc(torch.cat((embeds, hidden), dim=-1))[None]
        slots = (cache.keys[0], cache.values[0], rows.slots)
        out: Tensor = self.layer(x, self.angles(rows.positions), rows.mask, slots)[0]
        return out

    def new_cache(self, slots: int) -> KVCache:
        """Make an empty cache of `slots` rows on the block's device."""
        config, weight = self.config, self.fc.weight
        shape = (config.kv_heads, slots, config.head_dim)
        return KVCache.empty(1, shape, weight.dtype, weight.device)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rotary angles of positions (L,) in the weights' type."""
        cos, sin = rotary_angles(positions, self.config.head_dim, self.config.rope_theta)
        return cos.to(self.fc.weight.dtype), sin.to(self.fc.weight.dtype)

    def save(
        self, folder: str | Path, *, fingerprint: str, dtype: torch.dtype = torch.float16
    ) -> None:
        """Write weights and description.

        Args:
            folder: Made if it does not exist.
            fingerprint: `ModelInfo.fingerprint` of the target it was trained for.
            dtype: Type of the stored weights.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        facts = {"model_type": MODEL_TYPE, **_sizes(self.config), "target": fingerprint}
        (path / CONFIG_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        state = {name: value.detach().to("cpu", dtype) for name, value in _state(self).items()}
        save_file(state, str(path / WEIGHTS_FILE), metadata={"format": "pt"})
        (path / WEIGHTS_FILE).chmod(0o644)

    @classmethod
    def load(cls, folder: Path, config: LlamaConfigView, *, fingerprint: str) -> DraftBlock:
        """Read a trained block for a target.

        Args:
            folder: What `save` wrote.
            config: The target's language model.
            fingerprint: The target's `ModelInfo.fingerprint`; another one is only a warning, since
                drafts of another head cost time and never change what exact acceptance decides.

        Raises:
            ModelError: If the folder is no complete head or does not fit the target.
        """
        facts = _read_config(folder)
        if _sizes(config) != {name: facts.get(name) for name in _sizes(config)}:
            raise ModelError(
                f"the draft head in {folder} is for a language model of {facts}, this target has "
                f"{_sizes(config)}; train one: heisd train-drafter"
            )
        if facts.get("target") != fingerprint:
            LOGGER.warning(
                "the draft head in %s was trained for another checkpoint or preprocessing (%s, not "
                "%s): its drafts will be accepted less often",
                folder,
                facts.get("target"),
                fingerprint,
            )
        block = cls(config)
        block.load_state_dict(_read_weights(folder, block))
        return block.eval().requires_grad_(False)


def _sizes(config: LlamaConfigView) -> dict[str, Any]:
    """Return what a head and its target must agree on, in the export's names."""
    return {
        "hidden_size": config.hidden,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "intermediate_size": config.ffn,
        "vocab_size": config.vocab,
        "rms_norm_eps": config.rms_eps,
        "rope_theta": config.rope_theta,
    }


def _state(block: DraftBlock) -> dict[str, Tensor]:
    state: dict[str, Tensor] = block.state_dict()
    return state


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG_FILE
    if not file.is_file():
        raise ModelError(
            f"no draft head in {folder}: {CONFIG_FILE} is missing; train one: heisd train-drafter"
        )
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not JSON: {error}; copy it again") from error
    if not isinstance(facts, dict) or facts.get("model_type") != MODEL_TYPE:
        raise ModelError(f"{file} does not describe a draft head (model_type {MODEL_TYPE})")
    return facts


def _read_weights(folder: Path, block: DraftBlock) -> dict[str, Tensor]:
    file = folder / WEIGHTS_FILE
    try:
        found = load_file(str(file))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file} is missing or damaged ({error}); copy it again") from error
    shapes = {name: tuple(value.shape) for name, value in _state(block).items()}
    if {name: tuple(value.shape) for name, value in found.items()} != shapes:
        raise ModelError(f"{file} does not hold the tensors of a draft head: {sorted(shapes)}")
    return dict(found)
