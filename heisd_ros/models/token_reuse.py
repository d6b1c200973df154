"""Reuse of K/V rows across frames: patches that did not change are not run again (VLA-Cache).

A row's keys and values also depend on the rows before it, so a kept row is exact only while nothing
in front of it changed: reuse is lossy. Its rotary position needs no correction, because a patch
keeps its slot. What is compared is each patch with the features its kept row was computed from, not
with the last frame, so that a slow drift cannot pass unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heisd_ros.errors import ConfigError
from heisd_ros.models.kv_cache import KVCache
from heisd_ros.models.llama import Llama
from heisd_ros.types import Float32Array, IntArray

GRAIN = 8
"""Rows are run again in multiples of it: few shapes, which can be compiled or captured."""


@dataclass(frozen=True, slots=True)
class ReuseOptions:
    """How much may be reused.

    Attributes:
        similarity: Smallest cosine of a patch's centred features with those its row was made of.
        share: Largest share of the patches that is reused in one step, [0, 1].
        relevant: Share of the patches that is never reused: those the text looked at most in the
            last prefill, [0, 1]; 0 measures no attention.
        refresh: Every so many prefills all rows are run again, >= 1.
    """

    similarity: float = 0.98
    share: float = 0.55
    relevant: float = 0.25
    refresh: int = 8


class TokenReuse:
    """Remembers what the kept rows were made of, and says which must be run again.

    `plan` before a prefill, `commit` behind it; after `drop` the next plan is everything.
    """

    def __init__(self, options: ReuseOptions) -> None:
        """Start with nothing remembered.

        Raises:
            ConfigError: If an option is out of range.
        """
        shares = (options.share, options.relevant)
        if options.refresh < 1 or not all(0.0 <= share <= 1.0 for share in shares):
            raise ConfigError(
                "token reuse needs refresh >= 1 and shares in [0, 1], got "
                f"refresh {options.refresh}, share and relevant {shares}"
            )
        self.options = options
        self._prompt: IntArray | None = None
        self._made_of: Float32Array | None = None
        self._relevance: Float32Array | None = None
        self._age = 0

    def drop(self) -> None:
        """Forget the kept rows: a new episode, or a forward that failed."""
        self._prompt = self._made_of = self._relevance = None
        self._age = 0

    def plan(self, prompt: IntArray, patches: Float32Array) -> IntArray | None:
        """Return the patches to run again, ascending; None for the whole prefix.

        Args:
            prompt: int64 (L,); another prompt than the last one drops everything.
            patches: float32 (P, D), all views one behind the other.
        """
        made_of, last = self._made_of, self._prompt
        if made_of is None or last is None or not np.array_equal(prompt, last):
            return None
        if self._age >= self.options.refresh:
            return None
        closeness = similarity(patches, made_of)
        closeness[self._relevant()] = -np.inf
        order = np.argsort(-closeness, kind="stable")
        static = int(np.count_nonzero(closeness >= self.options.similarity))
        count = len(patches)
        kept = min(static, int(self.options.share * count + 1e-9))
        again = min(count, -(-(count - kept) // GRAIN) * GRAIN)
        return np.sort(order[count - again :])

    def commit(
        self,
        prompt: IntArray,
        patches: Float32Array,
        again: IntArray | None,
        relevance: Float32Array | None,
    ) -> None:
        """Take note of a prefill.

        Args:
            prompt: int64 (L,), of it.
            patches: float32 (P, D), of it.
            again: What `plan` had returned.
            relevance: float32 (P,), attention that the text paid to each patch; None if unknown.
        """
        if again is None or self._made_of is None:
            self._made_of, self._age = patches.copy(), 1
        else:
            self._made_of[again] = patches[again]
            self._age += 1
        self._prompt, self._relevance = np.array(prompt), relevance

    def _relevant(self) -> IntArray:
        """Return the patches that the text looked at most."""
        if self._relevance is None:
            return np.zeros(0, dtype=np.int64)
        count = int(np.ceil(self.options.relevant * len(self._relevance)))
        return np.argsort(-self._relevance, kind="stable")[:count]


def similarity(patches: Float32Array, others: Float32Array) -> Float32Array:
    """Return the cosine of each patch with its other, float32 (P,), both (P, D).

    Both are centred on the mean of `others`: a few channels that are large in every patch would
    make all cosines 1.
    """
    centre = others.mean(axis=0)
    first, second = patches - centre, others - centre
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    dots = np.einsum("pd,pd->p", first, second)
    cosine = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
    cosine[np.all(patches == others, axis=1)] = 1.0
    return np.asarray(cosine, dtype=np.float32)


class AttentionProbe:
    """Reads how much the text of a prefill looks at each patch, in one layer.

    The fast attention kernels return no weights. The probe keeps the input of one layer and
    computes the weights of the few text rows once more from the cache.
    """

    def __init__(self, llama: Llama) -> None:
        """Listen to the middle layer (VLA-Cache: layer 15 of 32)."""
        self._index = (len(llama.layers) - 1) // 2
        self._layer: Any = llama.layers[self._index]
        self._seen: tuple[Tensor, tuple[Tensor, Tensor]] | None = None
        self._layer.register_forward_pre_hook(self._keep)

    def relevance(self, text: slice, patches: slice, prefix: int, cache: KVCache) -> Float32Array:
        """Return the attention of the text rows on each patch, float32 (P,).

        The mean over heads and rows, each row's weights summing to 1 over the whole prefix.

        Args:
            text: The text rows among those of the last forward; the last one ends the prefix.
            patches: Slots of the patches.
            prefix: Slots of the prefix.
            cache: The cache of that forward.
        """
        if self._seen is None:
            raise ConfigError("no forward has been seen; run a prefill first")
        x, (cos, sin) = self._seen
        attention = self._layer.self_attn
        normed = self._layer.input_layernorm(x[:, text])
        query, _, _ = attention.project(normed, cos[text], sin[text])  # (1, heads, T, c)
        keys = cache.keys[self._index][:, :, :prefix]
        keys = keys.repeat_interleave(attention.heads // attention.kv_heads, dim=1)
        scores = (query @ keys.transpose(-1, -2)).float() / attention.head_dim**0.5
        rows = scores.shape[2]
        ahead = torch.ones(rows, prefix, dtype=torch.bool, device=scores.device)
        ahead = ahead.triu(prefix - rows + 1)
        weights = scores.masked_fill(ahead, -torch.inf).softmax(dim=-1)
        return np.asarray(weights[0].mean(dim=(0, 1))[patches].cpu().numpy(), dtype=np.float32)

    def _keep(self, _layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._seen = (inputs[0], inputs[1])
