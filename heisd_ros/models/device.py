"""Where and in which precision to compute, with fallbacks that are said once.

The attention kernel needs no choice here: torch's `scaled_dot_product_attention` picks flash,
memory-efficient or plain kernels itself and falls back silently.
"""

from __future__ import annotations

import logging

import torch

from heisd_ros.errors import ConfigError

LOGGER = logging.getLogger(__name__)

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def choose_device(name: str = "auto") -> torch.device:
    """Return the device of this name, or the CPU if the machine has no such accelerator.

    Args:
        name: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        ConfigError: If the name means nothing to torch.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        LOGGER.info("no CUDA device found: computing on the CPU")
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N; got {name!r}") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        LOGGER.warning("device %s was asked for but is not there: computing on the CPU", name)
        return torch.device("cpu")
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the weight type; `auto` is bfloat16 on a GPU and float32 on the CPU.

    Args:
        name: `auto`, `float32`, `bfloat16` or `float16`.
        device: Where the model will run; falls back if it lacks the type.

    Raises:
        ConfigError: If the name is none of the four.
    """
    if name != "auto" and name not in DTYPES:
        raise ConfigError(f"dtype must be one of auto, {', '.join(DTYPES)}; got {name!r}")
    on_gpu = device.type == "cuda"
    wanted = DTYPES.get(name, torch.bfloat16 if on_gpu else torch.float32)
    if on_gpu and wanted is torch.bfloat16 and not torch.cuda.is_bf16_supported():
        LOGGER.info("%s has no bfloat16: using float16", device)
        return torch.float16
    if not on_gpu and wanted is torch.float16:
        LOGGER.info("float16 is not worth it on the CPU: using float32")
        return torch.float32
    return wanted


def device_name(device: torch.device) -> str:
    """Return the name of the card, or how many threads compute on the CPU."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{device.type}, {torch.get_num_threads()} torch threads"


def use_threads(count: int) -> None:
    """Set the number of torch threads of this process; 0 leaves torch's choice."""
    if count > 0:
        torch.set_num_threads(count)


def free_accelerator() -> None:
    """Return unused memory of this process to the GPU, if there is one in use."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # does nothing before CUDA has been used
