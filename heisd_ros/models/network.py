"""OpenVLA as one module: towers, projector and language model, for inference and training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heisd_ros.models.llama import Llama, LlamaConfigView
from heisd_ros.models.vision import Projector, ProprioProjector, TowerConfig, VisionBackbone


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Everything that decides the shape of the network.

    Attributes:
        dino: First tower; its image size and number of patches are also the second's.
        siglip: Second tower.
        llm: Language model.
        views: Camera views whose patches are fed, V.
        state_size: Length of the proprioceptive state; 0: none is fed.
        pad_to_multiple_of: Rows by which the vocabulary was padded; action ids end before them.
        n_bins: Action tokens, the last ids of the unpadded vocabulary.
    """

    dino: TowerConfig
    siglip: TowerConfig
    llm: LlamaConfigView
    views: int = 1
    state_size: int = 0
    pad_to_multiple_of: int = 64
    n_bins: int = 256

    @property
    def vocab_size(self) -> int:
        """Size of the unpadded vocabulary."""
        return self.llm.vocab - self.pad_to_multiple_of

    @property
    def patches(self) -> int:
        """Patches P of one view."""
        return self.dino.patches

    @property
    def patch_dim(self) -> int:
        """Channels D of one patch."""
        return self.dino.dim + self.siglip.dim

    @property
    def inserted(self) -> int:
        """Rows between BOS and the rest of the prompt: all patches, then the state."""
        return self.views * self.patches + (1 if self.state_size else 0)


class OpenVlaNetwork(nn.Module):
    """The modules of a checkpoint, named as in the export except for the fused Llama matrices."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.vision_backbone = VisionBackbone(config.dino, config.siglip)
        self.projector = Projector(config.patch_dim, config.llm.hidden)
        self.language_model = Llama(config.llm)
        if config.state_size:
            self.proprio_projector = ProprioProjector(config.state_size, config.llm.hidden)

    def prefix(self, prompt: Tensor, patches: Tensor, state: Tensor | None = None) -> Tensor:
        """Return the embeddings that the language model reads before the action.

        Args:
            prompt: int64 (B, L), BOS first.
            patches: (B, V, P, D).
            state: (B, state_size), normalised; needed if the network takes one.

        Returns:
            (B, L + config.inserted, d): BOS, patches view by view, state, rest of the prompt.
        """
        words = self.language_model.embed_tokens(prompt)
        parts = [words[:, :1], self.projector(patches).flatten(1, 2)]  # (B, V, P, d) -> (B, V*P, d)
        if state is not None:
            parts.append(self.proprio_projector(state)[:, None])
        return torch.cat([*parts, words[:, 1:]], dim=1)

    def changed_prefix(
        self, prompt: Tensor, patches: Tensor, changed: Tensor, state: Tensor | None = None
    ) -> Tensor:
        """Return those embeddings of `prefix` that differ from another frame's, in its order.

        Args:
            prompt: int64 (L,).
            patches: (V, P, D).
            changed: int64 (c,), patches that changed, counted over all views, ascending.
            state: (1, state_size), normalised; needed if the network takes one.

        Returns:
            (1, c + state + L - 1, d): the changed patches, then the state and all text but BOS.
        """
        parts = [self.projector(patches.flatten(0, 1)[changed])]
        if state is not None:
            parts.append(self.proprio_projector(state))
        return torch.cat([*parts, self.language_model.embed_tokens(prompt[1:])])[None]

    def forward(
        self, pixels: Tensor, prompt: Tensor, tokens: Tensor, state: Tensor | None = None
    ) -> Tensor:
        """Teacher-forced hidden states, for training.

        Args:
            pixels: (B, V, 6, H, W), normalised.
            prompt: int64 (B, L).
            tokens: int64 (B, T), action tokens; the last one is not fed.
            state: (B, state_size), normalised, or None.

        Returns:
            (B, T, d): row i is the lm_head input that predicts `tokens[:, i]`.
        """
        batch, views = pixels.shape[:2]
        patches = self.vision_backbone(pixels.flatten(0, 1)).unflatten(0, (batch, views))
        prefix = self.prefix(prompt, patches, state)
        fed = self.language_model.embed_tokens(tokens[:, :-1])
        hidden: Tensor = self.language_model.forward_sequence(torch.cat((prefix, fed), dim=1))
        return hidden[:, prefix.shape[1] - 1 :]


def unfilled_network(config: NetworkConfig) -> OpenVlaNetwork:
    """Build a network on the meta device: no memory, no random numbers, for weights to come."""
    with torch.device("meta"), _NoRandomFill():
        return OpenVlaNetwork(config)


class _NoRandomFill(TorchFunctionMode):
    """Skips random initialisation, which on the meta device alone would import for seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401  (torch's signature)
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        given = kwargs or {}
        if getattr(func, "__name__", "") in {"normal_", "uniform_", "kaiming_uniform_"}:
            return args[0] if args else given["tensor"]
        return func(*args, **given)
