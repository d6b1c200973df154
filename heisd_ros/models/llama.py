"""A Llama decoder with static shapes, made for verifying draft trees (HeiSD section 4.1).

It shares its weights between two ways to run it: `forward_sequence` over a batch of whole
sequences, for training; and `forward` over new rows on top of a K/V cache, for inference. The
latter has no data-dependent operation, so it can be compiled or captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heisd_ros.errors import ModelError
from heisd_ros.models.kv_cache import KVCache

LLAMA_DEFAULTS: Mapping[str, Any] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
"""What a `text_config` leaves out: exports write only the keys that differ from these values.

The 1e-6 is right although Llama-2 itself has 1e-5: OpenVLA was trained with the class's default.
"""

INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class LlamaConfigView:
    """The sizes of a Llama that this decoder needs."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    rms_eps: float = 1e-6
    rope_theta: float = 10000.0
    tie: bool = False

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden // self.heads

    @classmethod
    def from_text_config(cls, text_config: Mapping[str, Any]) -> LlamaConfigView:
        """Read the `text_config` section of a checkpoint, filling in the defaults.

        Raises:
            ModelError: If the sizes contradict each other or the variant is not supported.
        """
        given = {**LLAMA_DEFAULTS, **text_config}
        rope = given.get("rope_parameters") or {}  # transformers 5 moved rope_theta in here
        view = cls(
            hidden=int(given["hidden_size"]),
            layers=int(given["num_hidden_layers"]),
            heads=int(given["num_attention_heads"]),
            kv_heads=int(given.get("num_key_value_heads") or given["num_attention_heads"]),
            ffn=int(given["intermediate_size"]),
            vocab=int(given["vocab_size"]),
            rms_eps=float(given["rms_norm_eps"]),
            rope_theta=float(rope.get("rope_theta", given["rope_theta"])),
            tie=bool(given["tie_word_embeddings"]),
        )
        _check(view, given)
        return view


def _check(view: LlamaConfigView, given: Mapping[str, Any]) -> None:
    if view.hidden % view.heads or view.heads % view.kv_heads or view.head_dim % 2:
        raise ModelError(
            f"text_config: hidden_size {view.hidden} must divide into {view.heads} heads of even "
            f"width, and the heads into {view.kv_heads} key-value heads; check config.json"
        )
    if given.get("head_dim") not in (None, view.head_dim):
        raise ModelError(
            f"text_config: head_dim must be hidden_size / heads = {view.head_dim}, "
            f"got {given['head_dim']}"
        )
    scaling = given.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if given.get("attention_bias") or given.get("mlp_bias") or kind != "default":
        raise ModelError(
            "text_config: biases and scaled rotary positions are not supported; OpenVLA has neither"
        )


class RmsNorm(nn.Module):
    """Root-mean-square norm with a learned weight."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., dim)."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotary_angles(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each float32 (..., head_dim), of rotary positions (...)."""
    even = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device)
    # Round the frequency first, as the trained models did: at position 280 the other order of
    # operations turns by 3e-5 rad more and costs five times the error in the logits.
    frequency = 1.0 / theta ** (even / head_dim)
    angle = positions.to(torch.float32)[..., None] * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys (B, heads, L, head_dim) by their positions."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class LlamaAttention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: LlamaConfigView) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        rows = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.qkv_proj = nn.Linear(config.hidden, rows, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, heads, L, c) and keys, values (B, kv_heads, L, c), rotated."""
        batch, length, _ = x.shape
        qkv = self.qkv_proj(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Mix the values; `mask` is bool, True where a query may look; None means causal."""
        groups = self.heads // self.kv_heads
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        # Never the eager kernel: it would add a bool mask as 0 and 1 instead of applying it.
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class LlamaFeedForward(nn.Module):
    """SwiGLU with one matrix for gate and up."""

    def __init__(self, config: LlamaConfigView) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden, 2 * config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., hidden) -> (..., hidden)."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        out: Tensor = self.down_proj(F.silu(gate) * up)
        return out


class LlamaLayer(nn.Module):
    """One decoder layer."""

    def __init__(self, config: LlamaConfigView) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden, config.rms_eps)
        self.self_attn = LlamaAttention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden, config.rms_eps)
        self.mlp = LlamaFeedForward(config)

    def forward(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        mask: Tensor | None,
        rows: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Run the layer.

        Args:
            x: (B, L, hidden).
            angles: Cosines and sines of the rows' positions, broadcastable to (B, 1, L, head_dim).
            mask: bool, (B or 1, 1, L, keys), True where a row may look; None means causal.
            rows: Keys and values of the cache, (1, kv_heads, W, head_dim) each, and the slots (L,)
                that the new rows are written to; None to attend among `x` alone.
        """
        q, k, v = self.self_attn.project(self.input_layernorm(x), *angles)
        if rows is not None:
            keys, values, slots = rows
            k, v = keys.index_copy_(2, slots, k), values.index_copy_(2, slots, v)
        x = x + self.self_attn.attend(q, k, v, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(nn.Module):
    """The language model of OpenVLA."""

    def __init__(self, config: LlamaConfigView) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(LlamaLayer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.hidden, config.rms_eps)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=INIT_STD)
        if config.tie:
            self.lm_head.weight = self.embed_tokens.weight

    def new_cache(self, slots: int) -> KVCache:
        """Make an empty cache of `slots` rows on the model's device."""
        config, weight = self.config, self.norm.weight
        shape = (config.kv_heads, slots, config.head_dim)
        return KVCache.empty(config.layers, shape, weight.dtype, weight.device)

    def forward_sequence(
        self, embeds: Tensor, mask: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Run whole sequences without a cache; differentiable.

        Args:
            embeds: (B, L, d).
            mask: bool (B or 1, 1, L, L), True where a row may look; None means causal.
            positions: int64 (L,) or (B, L); None means 0 .. L-1.

        Returns:
            (B, L, d), the final norm's output, input of `logits`.
        """
        if positions is None:
            positions = torch.arange(embeds.shape[1], device=embeds.device)
        angles = self._angles(positions, embeds.dtype)
        x = embeds
        for layer in self.layers:
            x = layer(x, angles, mask)
        out: Tensor = self.norm(x)
        return out

    def forward(
        self, x: Tensor, positions: Tensor, slots: Tensor, mask: Tensor, cache: KVCache
    ) -> Tensor:
        """Run new rows on top of the cache and write their keys and values into it.

        Args:
            x: (1, n, d), embeddings of the new rows.
            positions: int64 (n,), rotary positions; siblings of a tree share one.
            slots: int64 (n,), the row of the cache each new row is written to.
            mask: bool (1, 1, n, W), True at the slots a new row may look at, its own included.
            cache: Keys and values of W slots.

        Returns:
            (1, n, d), the final norm's output.
        """
        angles = self._angles(positions, x.dtype)
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            x = layer(x, angles, mask, (keys, values, slots))
        out: Tensor = self.norm(x)
        return out

    def logits(self, hidden: Tensor, rows: slice | None = None) -> Tensor:
        """Return float32 logits (..., vocab) of final-norm outputs (..., d).

        Args:
            hidden: (..., d).
            rows: Vocabulary rows to score, e.g. the action tokens; None means all.
        """
        weight = self.lm_head.weight if rows is None else self.lm_head.weight[rows]
        return F.linear(hidden, weight).float()

    def _angles(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        cos, sin = rotary_angles(positions, self.config.head_dim, self.config.rope_theta)
        if positions.dim() > 1:
            cos, sin = cos[:, None], sin[:, None]  # (B, 1, L, head_dim)
        return cos.to(dtype), sin.to(dtype)
