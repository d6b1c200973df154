"""The training loop of the small VLA: several processes, one set of weights, resumable.

Each process computes the gradient of its own part of the batch with one thread; the gradients are
averaged. On a CPU this is faster than one process with several threads, whose every small matrix
product would wait for the slowest thread.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from tqdm import tqdm

from heisd_ros.files import whole_file
from heisd_ros.models.auxiliary import AuxiliaryHeads, AuxiliaryLosses
from heisd_ros.models.batches import Batch, BatchMaker
from heisd_ros.models.small_vla import SmallVla, VlaOutputs
from heisd_ros.models.token_loss import token_loss
from heisd_ros.models.training_data import NO_AUGMENTATION, Augmentation, TrainingSet
from heisd_ros.types import IntArray

NEAR_BINS = 5
"""Validation counts a token as right within this many bins."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How to train.

    Attributes:
        minutes: Wall time of the whole run, all its resumed parts together.
        steps: Length in optimiser steps instead, if not 0.
        batch: Samples per step over all processes.
        workers: Processes.
        rate: Peak learning rate; warm-up, then half a cosine down.
        weight_decay: Decoupled weight decay.
        ema: Decay per step of the averaged weights that are exported.
        seed: Seed of weights, draws and augmentation.
        save_every_s: Seconds between two saved states.
        augmentation: Random changes of the samples.
        loss_weights: Weight of each auxiliary loss by its name in `AuxiliaryLosses`.
    """

    minutes: float = 25.0
    steps: int = 0
    batch: int = 64
    workers: int = 2
    rate: float = 1e-3
    weight_decay: float = 0.02
    ema: float = 0.998
    seed: int = 0
    save_every_s: float = 120.0
    augmentation: Augmentation = field(default_factory=Augmentation)
    loss_weights: Mapping[str, float] = field(
        default_factory=lambda: {"goals": 0.5, "pointers": 0.2, "marks": 0.2, "pooled": 0.3}
    )


class VlaTrainee(nn.Module):
    """The small VLA with its auxiliary heads."""

    def __init__(self, model: SmallVla, kinds: int) -> None:
        super().__init__()
        self.model = model
        self.heads = AuxiliaryHeads(model.shape, kinds)


class FlatWeights:
    """All parameters of a module as one vector, and their gradients as another."""

    def __init__(self, module: nn.Module) -> None:
        """Move the parameters into the vector; they stay usable as before."""
        parameters = list(module.parameters())
        self.value = nn.Parameter(torch.cat([item.detach().flatten() for item in parameters]))
        self.value.grad = torch.zeros_like(self.value)
        start = 0
        for item in parameters:
            part = slice(start, start + item.numel())
            item.data = self.value.data[part].view_as(item)
            item.grad = self.value.grad[part].view_as(item)
            start = part.stop


class Trainer:
    """One process of a training run; all processes hold the same weights at every step."""

    def __init__(
        self, trainee: VlaTrainee, maker: BatchMaker, data: TrainingSet, options: TrainingOptions
    ) -> None:
        """Prepare the optimiser.

        Args:
            trainee: Model and heads; trained in place.
            maker: Makes batches of `data`.
            data: Frames and the split.
            options: How to train.
        """
        self.trainee, self.maker, self.data, self.options = trainee, maker, data, options
        self.weights = FlatWeights(trainee)
        self.average = self.weights.value.detach().clone()
        self.optimiser = torch.optim.AdamW(
            [self.weights.value],
            lr=options.rate,
            weight_decay=options.weight_decay,
            betas=(0.9, 0.98),
            fused=True,
        )
        self.step = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []

    def run(self, state_file: Path, rank: int, world: int) -> None:
        """Train until the time or the steps are used up; process 0 saves the state.

        Args:
            state_file: Where the state is saved.
            rank: Number of this process.
            world: Number of processes.
        """
        rows = self.data.train_rows
        chance = self.data.frames.weight[rows] / self.data.frames.weight[rows].sum()
        rng = np.random.default_rng([self.options.seed, rank, self.step])
        bar = tqdm(total=1000, desc="train", unit="‰", disable=rank > 0)
        recent: list[tuple[float, float, float, float, float]] = []
        saved = last = time.monotonic()
        progress = self.progress()
        while progress < 1.0:
            batch = self.maker.make(
                rng.choice(rows, self.options.batch // world, p=chance),
                self.options.augmentation,
                rng,
            )
            recent.append(self._learn(batch, progress, world))
            now = time.monotonic()
            self.seconds, last = self.seconds + now - last, now
            progress = self._agree(self.progress(), world)
            if rank == 0:
                bar.update(int(1000 * progress) - bar.n)
                bar.set_postfix_str(f"token {recent[-1][0]:.3f} step {self.step}")
            due = self._agree(float(now - saved > self.options.save_every_s), world) > 0.5
            if due or progress >= 1.0:
                if rank == 0:
                    self._note(recent)
                    self.save(state_file)
                recent, saved = [], time.monotonic()
        bar.close()

    def progress(self) -> float:
        """Return the part of the run that is done, [0, 1]."""
        if self.options.steps:
            return self.step / self.options.steps
        return self.seconds / (60.0 * self.options.minutes)

    def use_average(self) -> None:
        """Replace the weights by their running average, which is what gets exported."""
        self.weights.value.data.copy_(self.average)

    def save(self, file: Path) -> None:
        """Write the state; a reader sees the old or the new one, never half of it."""
        state = {
            "weights": self.weights.value.data,
            "average": self.average,
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
        }
        with whole_file(file) as stream:
            torch.save(state, stream)

    def load(self, file: Path) -> None:
        """Continue from a saved state."""
        state = torch.load(file, weights_only=True)
        self.weights.value.data.copy_(state["weights"])
        self.average.copy_(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.seconds = int(state["step"]), float(state["seconds"])
        self.history = list(state["history"])

    def start_from(self, file: Path) -> None:
        """Take the averaged weights of another run as the start of this one."""
        average = torch.load(file, weights_only=True)["average"]
        self.weights.value.data.copy_(average)
        self.average.copy_(average)

    def _learn(
        self, batch: Batch, progress: float, world: int
    ) -> tuple[float, float, float, float, float]:
        options, gradient = self.options, self.weights.value.grad
        assert gradient is not None
        outputs: VlaOutputs = self.trainee.model(batch.inputs)
        extra: AuxiliaryLosses = self.trainee.heads(outputs, batch.targets)
        tokens = token_loss(outputs.logits, batch.tokens)
        terms = {name: getattr(extra, name) for name in options.loss_weights}
        loss = tokens + sum(options.loss_weights[name] * term for name, term in terms.items())
        gradient.zero_()
        loss.backward()
        if world > 1:
            dist.all_reduce(gradient)
            gradient /= world
        gradient *= min(1.0, 1.0 / (float(gradient.norm()) + 1e-6))
        warm_up = min(1.0, (self.step + 1) / 100)
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0))) + 0.005
        self.optimiser.param_groups[0]["lr"] = options.rate * warm_up * cosine
        self.optimiser.step()
        self.step += 1
        keep = min(options.ema, (1 + self.step) / (10 + self.step))
        self.average.lerp_(self.weights.value.data, 1.0 - keep)
        values = [tokens, *(terms[name] for name in ("goals", "pointers", "marks", "pooled"))]
        first, second, third, fourth, fifth = (float(value.detach()) for value in values)
        return first, second, third, fourth, fifth

    def _agree(self, value: float, world: int) -> float:
        """Return the mean of a number over all processes."""
        if world == 1:
            return value
        number = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(number)
        return float(number) / world

    def _note(self, recent: Sequence[Sequence[float]]) -> None:
        current = self.weights.value.data.clone()
        self.use_average()
        report = evaluate(self.trainee, self.maker, self.data.validation_rows)
        self.weights.value.data.copy_(current)
        names = ("token", "goals", "pointers", "marks", "pooled")
        train = dict(zip(names, np.mean(recent, axis=0).round(4).tolist(), strict=True))
        entry = {"step": self.step, "seconds": round(self.seconds), "train": train, **report}
        self.history.append(entry)
        _log.info("%s", json.dumps(entry))


def evaluate(trainee: VlaTrainee, maker: BatchMaker, rows: IntArray) -> dict[str, Any]:
    """Return the teacher-forced numbers of the present weights on some frames.

    Args:
        trainee: Model and heads.
        maker: Makes the batches.
        rows: int64 (N,), frames; at most 1500 of them are used, evenly spread.

    Returns:
        `validation_token` loss, `near` share of tokens within five bins per degree of freedom,
        `goal_error_mm` of grasp point and place point, `pointer_hits`.
    """
    rows = rows[:: max(1, len(rows) // 1500)]
    if not len(rows):
        return {}
    rng = np.random.default_rng(0)
    losses, near, errors, hits = [], [], [], []
    trainee.eval()
    with torch.no_grad():
        for start in range(0, len(rows), 64):
            batch = maker.make(rows[start : start + 64], NO_AUGMENTATION, rng)
            outputs: VlaOutputs = trainee.model(batch.inputs)
            extra: AuxiliaryLosses = trainee.heads(outputs, batch.targets)
            distance = (outputs.logits.argmax(dim=-1) - batch.tokens).abs()
            losses.append(float(token_loss(outputs.logits, batch.tokens)))
            near.append((distance <= NEAR_BINS).float().mean(dim=0))
            errors.append(extra.goal_error)
            hits.append(float(extra.pointer_hits))
    trainee.train()
    return {
        "validation_token": round(float(np.mean(losses)), 4),
        "near": _rounded(torch.stack(near).mean(dim=0), 3),
        "goal_error_mm": _rounded(1000 * torch.stack(errors).mean(dim=0), 1),
        "pointer_hits": round(float(np.mean(hits)), 3),
    }


def _rounded(values: Tensor, digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]
