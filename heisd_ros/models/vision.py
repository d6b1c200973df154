"""The two vision transformers of OpenVLA and the projector behind them (HeiSD section 2).

Parameter names are those of the Hugging Face export below `vision_backbone.featurizer`,
`vision_backbone.fused_featurizer` and `projector`, so a state dict needs no renaming.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYER_NORM_EPS = 1e-6
"""The epsilon of both towers; 1e-5 moves the first logits by 3e-4."""

INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class TowerConfig:
    """Sizes of one vision tower.

    Attributes:
        dim: Channels.
        depth: Blocks of the whole network; the last one is never built, see `VisionTower`.
        heads: Attention heads; `dim` must be divisible.
        mlp_hidden: Width of the feed-forward layer.
        patch_size: Side of a patch in pixels.
        image_size: Side of the picture in pixels, divisible by `patch_size`.
        prefix_tokens: 0 (SigLIP) or 5 (DINOv2: one class and four register tokens).
        layer_scale: Whether the blocks scale their branches (DINOv2).
    """

    dim: int
    depth: int
    heads: int
    mlp_hidden: int
    patch_size: int = 14
    image_size: int = 224
    prefix_tokens: int = 0
    layer_scale: bool = False

    @property
    def patches(self) -> int:
        """Number of patches P of one picture."""
        return (self.image_size // self.patch_size) ** 2


class LayerScale(nn.Module):
    """A learned factor per channel; timm's `gamma`, renamed by the export."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        # DINOv2 starts at 1e-5 for very deep towers; 1.0 lets a small tower learn from scratch.
        self.scale_factor = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Scale (..., dim)."""
        return x * self.scale_factor


class PatchEmbedding(nn.Module):
    """Cut the picture into patches and embed each."""

    def __init__(self, dim: int, patch_size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch_size, stride=patch_size)

    def forward(self, pixels: Tensor) -> Tensor:
        """Embed (B, 3, H, W) -> (B, P, dim), patches row by row."""
        embedded: Tensor = self.proj(pixels)
        return embedded.flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention over all tokens of one picture."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over (B, T, dim)."""
        batch, tokens, dim = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, T, dim/heads)
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, tokens, dim))
        return out


class FeedForward(nn.Module):
    """Two linear layers with the exact (erf) GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., dim) -> (..., dim)."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=LAYER_NORM_EPS)
        self.attn = Attention(config.dim, config.heads)
        self.ls1 = LayerScale(config.dim) if config.layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(config.dim, eps=LAYER_NORM_EPS)
        self.mlp = FeedForward(config.dim, config.mlp_hidden)
        self.ls2 = LayerScale(config.dim) if config.layer_scale else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, dim) -> (B, T, dim)."""
        x = x + self.ls1(self.attn(self.norm1(x)))
        out: Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return out


class VisionTower(nn.Module):
    """One tower up to its second-to-last block, which is all that OpenVLA looks at.

    The last block, the final norm and SigLIP's pooling head are in the export but are never used,
    so they are neither built nor loaded.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        heads: int,
        mlp_hidden: int,
        *,
        patch_size: int = 14,
        image_size: int = 224,
        prefix_tokens: int = 0,
        layer_scale: bool = False,
    ) -> None:
        super().__init__()
        config = TowerConfig(
            dim, depth, heads, mlp_hidden, patch_size, image_size, prefix_tokens, layer_scale
        )
        self.config = config
        self.patch_embed = PatchEmbedding(dim, patch_size)
        self.pos_embed = _learned_rows(config.patches, dim)
        if prefix_tokens:
            self.cls_token = _learned_rows(1, dim)
            self.reg_token = _learned_rows(prefix_tokens - 1, dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(depth - 1))

    @classmethod
    def from_config(cls, config: TowerConfig) -> VisionTower:
        """Build a tower from its sizes."""
        return cls(
            config.dim,
            config.depth,
            config.heads,
            config.mlp_hidden,
            patch_size=config.patch_size,
            image_size=config.image_size,
            prefix_tokens=config.prefix_tokens,
            layer_scale=config.layer_scale,
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the patch features, without prefix tokens and final norm.

        Args:
            pixels: (B, 3, H, W), normalised for this tower.

        Returns:
            (B, P, dim).
        """
        # Positions belong to patches only: DINOv2's prefix tokens carry none.
        x: Tensor = self.patch_embed(pixels) + self.pos_embed
        prefix = self.config.prefix_tokens
        if prefix:
            batch = x.shape[0]
            learned = (self.cls_token.expand(batch, -1, -1), self.reg_token.expand(batch, -1, -1))
            x = torch.cat((*learned, x), dim=1)
        for block in self.blocks:
            x = block(x)
        return x[:, prefix:]


class VisionBackbone(nn.Module):
    """DINOv2 and SigLIP side by side; features are joined on the channels."""

    def __init__(self, first: TowerConfig, second: TowerConfig) -> None:
        super().__init__()
        self.featurizer = VisionTower.from_config(first)
        self.fused_featurizer = VisionTower.from_config(second)

    @property
    def dims(self) -> tuple[int, int]:
        """Channels of the two towers."""
        return self.featurizer.config.dim, self.fused_featurizer.config.dim

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode pictures.

        Args:
            pixels: (B, 6, H, W): channels 0-2 normalised for DINOv2, 3-5 for SigLIP.

        Returns:
            (B, P, D), DINOv2's channels first.
        """
        towers = (self.featurizer(pixels[:, :3]), self.fused_featurizer(pixels[:, 3:]))
        return torch.cat(towers, dim=-1)


class Projector(nn.Module):
    """From patch features to the language model's embeddings."""

    def __init__(self, vision_dim: int, llm_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(vision_dim, 4 * vision_dim)
        self.fc2 = nn.Linear(4 * vision_dim, llm_dim)
        self.fc3 = nn.Linear(llm_dim, llm_dim)

    def forward(self, patches: Tensor) -> Tensor:
        """Map (..., vision_dim) -> (..., llm_dim)."""
        out: Tensor = self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(patches)))))
        return out


class ProprioProjector(nn.Module):
    """From the normalised proprioceptive state to one embedding (OpenVLA-OFT's layout)."""

    def __init__(self, state_size: int, llm_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(state_size, llm_dim)
        self.fc2 = nn.Linear(llm_dim, llm_dim)

    def forward(self, state: Tensor) -> Tensor:
        """Map (..., state_size) -> (..., llm_dim)."""
        out: Tensor = self.fc2(F.gelu(self.fc1(state)))
        return out


def _learned_rows(count: int, dim: int) -> nn.Parameter:
    rows = nn.Parameter(torch.empty(1, count, dim))
    nn.init.normal_(rows, std=INIT_STD)
    return rows
