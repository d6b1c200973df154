"""The drafter's head: one Llama layer that predicts the target's next features (Spec-VLA; EAGLE).

h' = Layer(fc([embedding of the next token ; feature])), one row per position, the whole multimodal
prompt included. Embeddings and lm_head are the frozen target's own, so a head of OpenVLA-7B has
235.9 M weights. Its features behind a drafted token are its own predictions; as soon as the target
has verified a token, the target's feature takes their place.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heisd_ros.draft.continuation import DRAFTED_DIM
from heisd_ros.draft.drafter import Candidates
from heisd_ros.errors import ModelError
from heisd_ros.models.kv_cache import KVCache
from heisd_ros.models.llama import LlamaConfigView, LlamaLayer, rotary_angles
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tree_attention import Rows, tree_rows
from heisd_ros.models.tree_decoder import MAX_ACTION, PrefixFeatures
from heisd_ros.types import IntArray

LOGGER = logging.getLogger(__name__)

MODEL_TYPE = "heisd_draft_head"
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"

EXPANSIONS = DRAFTED_DIM - 2
"""Most expansions of one proposal: the first token of an action is known, the second needs none."""


class DraftBlock(nn.Module):
    """The trained part of the head."""

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

    def save(self, folder: str | Path, *, fingerprint: str) -> None:
        """Write weights and description.

        Args:
            folder: Made if it does not exist.
            fingerprint: `ModelInfo.fingerprint` of the target it was trained for.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        facts = {"model_type": MODEL_TYPE, **_sizes(self.config), "target": fingerprint}
        (path / CONFIG_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        state = {name: value.detach().cpu().contiguous() for name, value in _state(self).items()}
        save_file(state, str(path / WEIGHTS_FILE), metadata={"format": "pt"})
        (path / WEIGHTS_FILE).chmod(0o644)


class EagleDraftHead:
    """A block with the cache of one action; implements `draft.drafter.DraftHead`.

    Candidates are action tokens only. Reads the target's prompt features when an action begins.
    """

    def __init__(self, block: DraftBlock, target: OpenVlaTarget, *, top_k: int = 8) -> None:
        """Join a block and its target.

        Args:
            block: On the target's device and of its type.
            target: Lends embeddings, lm_head and prompt features.
            top_k: Candidates per row, at most the number of action tokens.
        """
        info = target.info
        self.block = block
        self._target, self._llama = target, target.network.language_model
        self._top_k = min(top_k, info.n_bins)
        self._first_id = info.vocab_size - info.n_bins
        self._actions = slice(self._first_id, info.vocab_size)
        self._capacity = EXPANSIONS * self._top_k
        self._cache = block.new_cache(target.max_prefix + MAX_ACTION + self._capacity)
        self._prefix: PrefixFeatures | None = None
        self._tree = _ExpandedRows(self._capacity)
        self._features = torch.empty(0)

    @classmethod
    def from_pretrained(
        cls, path: str | Path, target: OpenVlaTarget, *, top_k: int = 8
    ) -> EagleDraftHead:
        """Load a trained head for a target.

        Raises:
            ModelError: If the folder is no complete head or does not fit the target.
        """
        folder = Path(path).expanduser()
        facts = _read_config(folder)
        config = target.network.config.llm
        if _sizes(config) != {name: facts.get(name) for name in _sizes(config)}:
            raise ModelError(
                f"the draft head in {folder} is for a language model of {facts}, this target has "
                f"{_sizes(config)}; train one: heisd train-drafter"
            )
        if facts.get("target") != target.info.fingerprint:
            LOGGER.warning(
                "the draft head in %s was trained for another checkpoint or preprocessing (%s, not "
                "%s): its drafts will be accepted less often",
                folder,
                facts.get("target"),
                target.info.fingerprint,
            )
        block = DraftBlock(config)
        block.load_state_dict(_read_weights(folder, block))
        block = block.to(target.device, target.dtype).eval().requires_grad_(False)
        return cls(block, target, top_k=top_k)

    def begin(self) -> None:
        """Start an action: take the features of the prefill that has just run."""
        self._prefix = self._target.prefix_features()
        self._cache.reset()
        self._tree.clear()

    @torch.inference_mode()
    def commit(self, tokens: IntArray, features: Any) -> Candidates:  # noqa: ANN401
        """Append decided tokens with the target's features in front of them.

        Raises:
            ModelError: If no action has begun.
        """
        embeds = self._embed(tokens)
        hidden = torch.as_tensor(features).to(embeds.device, embeds.dtype)
        if self._cache.length == 0:
            if self._prefix is None:
                raise ModelError("commit() needs an action that has begun; call begin() first")
            # One row per position: what comes next, beside the feature of what is there.
            embeds = torch.cat((self._prefix.embeds[1:], embeds))
            hidden = torch.cat((self._prefix.hidden[:-1], hidden))
            self._prefix = None
        count = embeds.shape[0]
        rows = tree_rows(self._cache.length, count, None, self._cache.slots).to(embeds.device)
        predicted = self.block.cached(embeds, hidden, rows, self._cache)
        self._cache.length += count
        self._tree.clear()
        self._features = predicted[-1:]
        return self._candidates(self._features)

    @torch.inference_mode()
    def expand(self, tokens: IntArray, parents: IntArray) -> Candidates:
        """Continue candidates from the head's own predicted features.

        Raises:
            ModelError: If more rows are expanded than one proposal can have.
        """
        embeds = self._embed(tokens)
        rows = self._tree.add(parents, self._cache.length, self._cache.slots).to(embeds.device)
        above = torch.as_tensor(1 + np.asarray(parents), device=embeds.device)
        predicted = self.block.cached(embeds, self._features[above], rows, self._cache)
        self._features = torch.cat((self._features, predicted))
        return self._candidates(predicted)

    def _embed(self, tokens: IntArray) -> Tensor:
        ids = torch.as_tensor(np.asarray(tokens, dtype=np.int64), device=self._target.device)
        embeds: Tensor = self._llama.embed_tokens(ids)
        return embeds

    def _candidates(self, predicted: Tensor) -> Candidates:
        scores = self._llama.logits(predicted, self._actions).log_softmax(dim=-1)
        best = scores.topk(self._top_k, dim=-1)
        return Candidates(
            best.indices.cpu().numpy() + self._first_id,
            best.values.double().cpu().numpy(),
        )


class _ExpandedRows:
    """The rows expanded since the last commit: which of each other they see, and how deep they are.

    Row r sits in the cache's slot `committed` + r.
    """

    def __init__(self, capacity: int) -> None:
        self._seen = np.zeros((capacity, capacity), dtype=np.bool_)
        self._depth = np.zeros(capacity, dtype=np.int64)
        self._count = 0

    def clear(self) -> None:
        self._count = 0

    def add(self, parents: IntArray, committed: int, width: int) -> Rows:
        """Lay out new rows below their parents (-1: the last committed row)."""
        start, count, capacity = self._count, len(parents), len(self._depth)
        if start + count > capacity:
            raise ModelError(
                f"one proposal has at most {capacity} expanded rows, got {start + count}; "
                "make the drafter's top_k the head's"
            )
        new = np.arange(start, start + count)
        below = np.asarray(parents) >= 0
        self._seen[new] = np.where(below[:, None], self._seen[parents], False)
        self._seen[new, new] = True
        self._depth[new] = np.where(below, self._depth[parents] + 1, 0)
        self._count += count
        mask = np.zeros((count, width), dtype=np.bool_)
        mask[:, :committed] = True
        mask[:, committed : committed + capacity] = self._seen[new]
        return Rows(
            torch.from_numpy(committed + self._depth[new]),
            torch.from_numpy(committed + new),
            torch.from_numpy(mask)[None, None],
        )


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
