"""8- and 4-bit weights of the language model, by bitsandbytes (LLM.int8; QLoRA's NF4).

Only the linear layers of the decoder blocks, where 96 % of a 7B model's weights are. Towers,
projector, embeddings, norms and lm_head keep their type: they decide features and the last step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from heisd_ros.errors import ConfigError, MissingDependencyError, ModelError
from heisd_ros.models.llama import Llama

QUANTISED = ("int8", "nf4")
"""Values of `model.dtype` that quantise; the rest of the model takes the type of `auto`."""


def is_quantised(dtype: str) -> bool:
    """Return whether this value of `model.dtype` quantises the language model."""
    return dtype in QUANTISED


def quantise(llama: Llama, kind: str, device: torch.device) -> None:
    """Replace the linear layers of all blocks, in place, and move the model to a device.

    Args:
        llama: Filled; on the CPU, if the device is too small for the weights as they are.
        kind: `int8` or `nf4`.
        device: Where the model will run. The CPU works too; it saves memory there, not time.

    Raises:
        ConfigError: If the kind is unknown.
        MissingDependencyError: If bitsandbytes is not installed.
        ModelError: If bitsandbytes cannot quantise on this device.
    """
    if kind not in QUANTISED:
        raise ConfigError(f"quantised weights are {' or '.join(QUANTISED)}; got {kind!r}")
    make = _layer_maker(kind)
    try:
        for block in llama.layers:
            for name, module in list(block.named_modules()):
                if isinstance(module, nn.Linear):
                    parent, _, child = name.rpartition(".")
                    setattr(block.get_submodule(parent), child, make(module).to(device))
    except (RuntimeError, NotImplementedError) as error:
        raise ModelError(
            f"bitsandbytes cannot make {kind} weights on {device}: {error}; update bitsandbytes, "
            "or set model.dtype to bfloat16"
        ) from error
    llama.to(device)


def _layer_maker(kind: str) -> Callable[[nn.Linear], nn.Module]:
    library = _library()

    def int8(linear: nn.Linear) -> nn.Module:
        made = library.Linear8bitLt(
            linear.in_features, linear.out_features, bias=False, has_fp16_weights=False
        )
        weight = linear.weight.detach()
        made.weight = library.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
        return _frozen(made)

    def nf4(linear: nn.Linear) -> nn.Module:
        made = library.Linear4bit(
            linear.in_features,
            linear.out_features,
            bias=False,
            compute_dtype=linear.weight.dtype,
            quant_type="nf4",
        )
        weight = linear.weight.detach()
        made.weight = library.Params4bit(weight, requires_grad=False, quant_type="nf4")
        return _frozen(made)

    return int8 if kind == "int8" else nf4


def _frozen(layer: nn.Module) -> nn.Module:
    return layer.eval().requires_grad_(False)


def _library() -> Any:  # noqa: ANN401  (bitsandbytes is untyped and imported late)
    try:
        from bitsandbytes import nn as library
    except ImportError as error:
        raise MissingDependencyError(
            "bitsandbytes is needed for model.dtype int8 and nf4: pip install bitsandbytes"
        ) from error
    # It would say in every forward that activations are rounded to float16.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    return library
