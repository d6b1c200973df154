"""Runs a training loop plainly, or through `accelerate` where that is installed."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from typing import Any

import torch
from torch import Tensor, nn

LOGGER = logging.getLogger(__name__)


class PlainEngine:
    """One process on one device: the part of `accelerate.Accelerator` that the loop uses."""

    is_main_process = True
    process_index = 0

    def __init__(self, device: torch.device) -> None:
        """Train on a device."""
        self.device = device

    def prepare(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[Any, Any]:
        """Move the module to the device."""
        return module.to(self.device), optimiser

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        loss.backward()  # type: ignore[no-untyped-call]

    def clip_grad_norm_(self, parameters: Any, limit: float) -> None:  # noqa: ANN401
        """Shrink the gradients to a norm."""
        torch.nn.utils.clip_grad_norm_(parameters, limit)

    def unwrap_model(self, module: nn.Module) -> nn.Module:
        """Return the module itself."""
        return module

    def reduce(self, value: Tensor, reduction: str = "mean") -> Tensor:  # noqa: ARG002
        """Return the value: there is one process."""
        return value


def training_engine(device: torch.device) -> Any:  # noqa: ANN401  (ours or accelerate's)
    """Return `accelerate`'s engine if it is installed, else the plain one on a device.

    `accelerate launch` decides about processes, devices and mixed precision.
    """
    if importlib.util.find_spec("accelerate") is None:
        return PlainEngine(device)
    engine = importlib.import_module("accelerate").Accelerator(cpu=device.type == "cpu")
    LOGGER.info("training through accelerate: %d process(es)", engine.num_processes)
    return engine
