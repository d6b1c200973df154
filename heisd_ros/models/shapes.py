"""Random weights in the shape of a real model, made on the spot: time does not depend on values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from heisd_ros.errors import ConfigError
from heisd_ros.models.checkpoint import DINO_ID, SIGLIP_ID, TOWERS, Checkpoint, write_description
from heisd_ros.models.device import choose_device, choose_dtype
from heisd_ros.models.draft_block import DraftBlock
from heisd_ros.models.draft_head import EagleDraftHead
from heisd_ros.models.llama import LlamaConfigView
from heisd_ros.models.model_facts import model_info
from heisd_ros.models.network import NetworkConfig, unfilled_network
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.quantised import is_quantised, quantise
from heisd_ros.models.small_tokenizer import write_tokenizer
from heisd_ros.models.tiny import KEY, fill_randomly, tiny_config, tiny_statistics

SHAPES = ("7b", "tiny")
FAINT = 1e-3
"""Text rows of the lm_head are this small: they never win, but cost what trained rows cost."""


def shape_config(shape: str, layers: int = 0) -> NetworkConfig:
    """Return the sizes of OpenVLA-7B, or of the tiny network to try things out.

    Args:
        shape: `7b` or `tiny`.
        layers: Decoder layers; 0: as many as the shape has.

    Raises:
        ConfigError: If the shape is unknown.
    """
    if shape not in SHAPES or layers < 0:
        raise ConfigError(
            f"shape must be one of {', '.join(SHAPES)} with layers >= 0; got {shape!r}, {layers}"
        )
    config = tiny_config()
    if shape == "7b":
        llm = LlamaConfigView(4096, 32, 32, 32, 11008, 32064)
        config = NetworkConfig(TOWERS[DINO_ID], TOWERS[SIGLIP_ID], llm)
    return replace(config, llm=replace(config.llm, layers=layers or config.llm.layers))


def random_target(
    config: NetworkConfig,
    folder: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    max_nodes: int = 96,
    compiled: bool = False,
) -> OpenVlaTarget:
    """Return a target of these sizes with random weights; its tokens are actions and mean nothing.

    Args:
        config: Sizes.
        folder: Gets description and tokenizer, no weights; must outlive the target.
        device: As in `OpenVlaTarget.from_pretrained`.
        dtype: Alike; `int8` and `nf4` need room for the unquantised weights on the device.
        max_nodes: Largest draft tree.
        compiled: Compile the language model.
    """
    write_description(folder, config, statistics={KEY: tiny_statistics(config.state_size)})
    write_tokenizer(folder)
    where = choose_device(device)
    precision = choose_dtype("auto" if is_quantised(dtype) else dtype, where)
    network = unfilled_network(config).to(precision).to_empty(device=where)
    fill_randomly(network, torch.Generator(where).manual_seed(0), text_scale=FAINT)
    network.eval().requires_grad_(False)
    if is_quantised(dtype):
        quantise(network.language_model, dtype, where)
    checkpoint = Checkpoint.open(folder)
    info = model_info(checkpoint, "random", "mean", max_nodes)
    return OpenVlaTarget(checkpoint, network, info, statistics_key=KEY, compiled=compiled)


def random_draft_head(target: OpenVlaTarget) -> EagleDraftHead:
    """Return a draft head with random weights for a target."""
    block = DraftBlock(target.network.config.llm).eval().requires_grad_(False)
    return EagleDraftHead(block.to(target.device, target.dtype), target)
