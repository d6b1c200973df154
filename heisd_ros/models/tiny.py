"""Makes a tiny random checkpoint in the OpenVLA layout, for tests and for users without weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heisd_ros.models.checkpoint import save_checkpoint
from heisd_ros.models.llama import LlamaConfigView
from heisd_ros.models.network import NetworkConfig, OpenVlaNetwork, unfilled_network
from heisd_ros.models.small_tokenizer import write_tokenizer
from heisd_ros.models.vision import TowerConfig

KEY = "tiny"
TEXT_SCALE = 0.1
BIAS_STD = 0.02
SHARPNESS = 3.0
"""Gain that keeps attention from averaging all rows to the same answer."""


def tiny_config(
    *,
    views: int = 1,
    state_size: int = 0,
    tie: bool = False,
    image_size: int = 56,
    kv_heads: int = 2,
) -> NetworkConfig:
    """Return the shape of the tiny network: 2 and 3 vision blocks, 2 layers of width 16."""
    return NetworkConfig(
        dino=TowerConfig(16, 3, 2, 64, 14, image_size, prefix_tokens=5, layer_scale=True),
        siglip=TowerConfig(24, 4, 2, 89, 14, image_size),
        llm=LlamaConfigView(16, 2, 2, kv_heads, 40, 32064, tie=tie),
        views=views,
        state_size=state_size,
    )


def make_tiny_checkpoint(
    path: str | Path,
    seed: int = 0,
    *,
    views: int = 1,
    state_size: int = 0,
    tie: bool = False,
    image_size: int = 56,
    kv_heads: int = 2,
    statistics: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint whose tokens depend on picture and instruction but mean nothing.

    Args:
        path: Folder, made if it does not exist.
        seed: Of all weights; the same seed gives the same files.
        views: Camera views that the network is fed.
        state_size: Length of the proprioceptive state; 0: none.
        tie: Share the embedding with the lm_head.
        image_size: Side of the pictures, a multiple of 14 pixels.
        kv_heads: Key-value heads, 1 or 2; there are 2 query heads.
        statistics: Training set -> statistics; None for one set named `tiny`.

    Returns:
        The folder.
    """
    folder = Path(path)
    config = tiny_config(
        views=views, state_size=state_size, tie=tie, image_size=image_size, kv_heads=kv_heads
    )
    network = unfilled_network(config)  # leaves the caller's random numbers alone
    network.to_empty(device="cpu")
    fill_randomly(
        network,
        torch.Generator().manual_seed(seed),
        # Text rows that never win keep every greedy token an action, as in a trained checkpoint.
        text_scale=TEXT_SCALE if tie else 0.0,
    )
    save_checkpoint(folder, network, statistics=statistics or {KEY: tiny_statistics(state_size)})
    write_tokenizer(folder)
    return folder


def tiny_statistics(state_size: int = 0) -> dict[str, Any]:
    """Return action statistics of +-0.05 per axis, gripper unscaled, and those of the state."""
    action = {
        "q01": [-0.05] * 6 + [0.0],
        "q99": [0.05] * 6 + [1.0],
        "mask": [True] * 6 + [False],
    }
    state = {"q01": [-1.0] * state_size, "q99": [1.0] * state_size, "mask": [True] * state_size}
    return {"action": action, "proprio": state} if state_size else {"action": action}


@torch.no_grad()
def fill_randomly(
    network: OpenVlaNetwork, generator: torch.Generator, *, text_scale: float
) -> None:
    """Draw weights large enough that every input moves the greedy tokens.

    Args:
        network: Filled in place.
        generator: On the network's device.
        text_scale: Factor of the lm_head's rows that are no actions.
    """
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            fan_in = parameter[0].numel() if parameter.dim() in (2, 4) else parameter.shape[-1]
            gain = SHARPNESS if name.endswith(("qkv_proj.weight", "fc3.weight")) else 1.0
            parameter.normal_(0.0, gain * fan_in**-0.5, generator=generator)
        elif name.endswith("bias"):
            parameter.normal_(0.0, BIAS_STD, generator=generator)
        else:
            parameter.fill_(1.0)  # weights of norms and layer scales
    llm = network.language_model
    llm.embed_tokens.weight.mul_(network.config.llm.hidden**0.5)
    first_action = network.config.vocab_size - network.config.n_bins
    text, padding = slice(0, first_action), slice(network.config.vocab_size, None)
    _scale(llm.lm_head, text, text_scale)
    _scale(llm.lm_head, padding, 0.0)


def _scale(layer: nn.Linear, rows: slice, factor: float) -> None:
    layer.weight[rows] *= factor
