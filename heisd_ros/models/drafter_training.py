"""Training of the draft head on the frozen target's features (Spec-VLA's recipe).

Loss: SmoothL1 between predicted and true feature, weight 1.0, plus the cross-entropy between the
target's distribution and the one its lm_head makes of the prediction, weight 0.1. Only the five
positions count whose tokens are drafted. Uniform noise on the input features stands for the errors
of the head's own predictions, on which it must build when it drafts several tokens in a row.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from heisd_ros.errors import DataError, ModelError
from heisd_ros.files import whole_file
from heisd_ros.models.draft_block import DraftBlock
from heisd_ros.models.drafter_features import DRAFTED, FeatureFile, FeatureSet
from heisd_ros.models.drafter_losses import drafter_loss, evaluate
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.training_engine import training_engine

LOGGER = logging.getLogger(__name__)

STATE_FILE = "state.pt"
VALIDATION_BATCHES = 8
BAR = 1000


@dataclass(frozen=True, slots=True)
class DrafterOptions:
    """How to train; sizes of steps are Spec-VLA's except where a small target needs others.

    Attributes:
        minutes: Wall time of the whole run, all its resumed parts together.
        steps: Length in optimiser steps instead, if not 0.
        batch: Samples per step and process (Spec-VLA 4).
        rate: Peak learning rate (Spec-VLA 5e-5 at width 4096; it grows as the width shrinks).
        warm_up: Steps of linear rise, then it falls linearly to 0 (Spec-VLA 2000).
        feature_weight: Weight of the SmoothL1 loss.
        token_weight: Weight of the cross-entropy.
        noise: Half width of the uniform noise on the features, which are of the order of 1.
        clip: Largest norm of the gradient.
        seed: Of weights and draws.
        save_every_s: Seconds between two saved states.
    """

    minutes: float = 10.0
    steps: int = 0
    batch: int = 32
    rate: float = 1e-3
    warm_up: int = 100
    feature_weight: float = 1.0
    token_weight: float = 0.1
    noise: float = 0.1
    clip: float = 0.5
    seed: int = 0
    save_every_s: float = 60.0


class DrafterTrainer:
    """One training run; its state is in one file."""

    def __init__(
        self, target: OpenVlaTarget, files: Sequence[FeatureFile], options: DrafterOptions
    ) -> None:
        """Make a new head for a target.

        Raises:
            DataError: If all episodes are held out.
        """
        info, llama = target.info, target.network.language_model
        self.options = options
        self.episodes = [file.path.name for file in files]
        self.train = FeatureSet([file for file in files if not file.held_out])
        held_out = [file for file in files if file.held_out]
        self.held_out = FeatureSet(held_out) if held_out else None
        torch.manual_seed(options.seed)
        block = DraftBlock(target.network.config.llm)
        optimiser = torch.optim.AdamW(block.parameters(), lr=options.rate, betas=(0.9, 0.95))
        self.engine = training_engine(target.device)
        self.model, self.optimiser = self.engine.prepare(block, optimiser)
        actions = slice(info.vocab_size - info.n_bins, info.vocab_size)
        self.rows = llama.lm_head.weight[actions].detach().to(self.engine.device, torch.float32)
        self.step, self.seconds = 0, 0.0
        self.history: list[dict[str, Any]] = []

    @property
    def block(self) -> DraftBlock:
        """The head in training."""
        block = self.engine.unwrap_model(self.model)
        assert isinstance(block, DraftBlock)
        return block

    def run(self, state_file: Path) -> None:
        """Train until time or steps are used up; the main process saves the state."""
        rng = np.random.default_rng([self.options.seed, self.engine.process_index, self.step])
        bar = tqdm(total=BAR, desc="drafter", unit="‰", disable=not self.engine.is_main_process)
        recent: list[tuple[float, float]] = []
        saved = last = time.monotonic()
        progress = self.progress()
        while progress < 1.0:
            recent.append(self._learn(self.train.draw(self.options.batch, rng), progress))
            now = time.monotonic()
            self.seconds, last = self.seconds + now - last, now
            progress = self._agreed(self.progress())
            bar.update(min(BAR, int(BAR * progress)) - bar.n)
            bar.set_postfix_str(f"features {recent[-1][0]:.4f} tokens {recent[-1][1]:.3f}")
            due = self._agreed(float(now - saved > self.options.save_every_s)) > 0.5
            if due or progress >= 1.0:
                if self.engine.is_main_process:
                    self._note(recent)
                    self.save(state_file)
                recent, saved = [], time.monotonic()
        bar.close()

    def progress(self) -> float:
        """Return the part of the run that is done, [0, 1]."""
        if self.options.steps:
            return self.step / self.options.steps
        return self.seconds / (60.0 * self.options.minutes)

    def save(self, file: Path) -> None:
        """Write the state; a reader sees the old or the new one, never half of it."""
        state = {
            "block": self.block.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "episodes": self.episodes,
        }
        with whole_file(file) as stream:
            torch.save(state, stream)

    def load(self, file: Path) -> None:
        """Continue from a saved state.

        Raises:
            ModelError: If there is none.
            DataError: If it was trained on other episodes: held-out ones may have been among them.
        """
        if not file.is_file():
            raise ModelError(f"{file} is missing: no training run to continue")
        state = torch.load(file, weights_only=True, map_location=self.engine.device)
        if state["episodes"] != self.episodes:
            raise DataError(
                f"the run to continue saw {len(state['episodes'])} episodes, now there are "
                f"{len(self.episodes)} or others; start anew without --resume"
            )
        self.block.load_state_dict(state["block"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.seconds = int(state["step"]), float(state["seconds"])
        self.history = list(state["history"])

    def _learn(self, batch: Tensor, progress: float) -> tuple[float, float]:
        options = self.options
        embeds, hidden = batch.to(self.engine.device).unbind(dim=1)
        noise = options.noise * (2.0 * torch.rand_like(hidden[:, :-1]) - 1.0)
        # One row per position: what comes next, beside the feature of what is there.
        predicted = self.model(embeds[:, 1:], hidden[:, :-1] + noise, DRAFTED)
        loss = drafter_loss(predicted, hidden[:, -DRAFTED:], self.rows)
        self.optimiser.zero_grad()
        self.engine.backward(
            options.feature_weight * loss.features + options.token_weight * loss.tokens
        )
        self.engine.clip_grad_norm_(self.model.parameters(), options.clip)
        for group in self.optimiser.param_groups:
            rise = min(1.0, (self.step + 1) / max(1, options.warm_up))
            group["lr"] = options.rate * rise * (1.0 - min(progress, 1.0))
        self.optimiser.step()
        self.step += 1
        return float(loss.features.detach()), float(loss.tokens.detach())

    def _agreed(self, value: float) -> float:
        """Return the mean of a number over all processes: all must stop at the same step."""
        return float(self.engine.reduce(torch.tensor(value, device=self.engine.device), "mean"))

    def _note(self, recent: Sequence[tuple[float, float]]) -> None:
        features, tokens = np.mean(recent, axis=0).round(4).tolist()
        entry = {"step": self.step, "seconds": round(self.seconds), "features": features}
        entry["tokens"] = tokens
        if self.held_out is not None:
            rng = np.random.default_rng(0)
            batches = [self.held_out.draw(32, rng) for _ in range(VALIDATION_BATCHES)]
            entry.update(evaluate(self.block, batches, self.rows))
        self.history.append(entry)
        LOGGER.info("%s", json.dumps(entry))


def training_folder(out: Path) -> Path:
    """Return where state and features of a run are kept: beside the head, not in it."""
    return out.with_name(out.name + ".training")


def train_drafter(
    target: OpenVlaTarget,
    files: Sequence[FeatureFile],
    out: Path,
    options: DrafterOptions,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Train a head for a target and write it.

    Args:
        target: The frozen target.
        files: Its features, from `collect_features`.
        out: Folder of the head; the run's state is kept in `training_folder(out)`.
        options: How to train.
        resume: Continue the run whose state is there.

    Returns:
        The training log, also written to `training_log.json` in the folder.

    Raises:
        ModelError: If there is no run to continue.
        DataError: If there is nothing to train on, or the run to continue saw other episodes.
    """
    trainer = DrafterTrainer(target, files, options)
    state_file = training_folder(out) / STATE_FILE
    if resume:
        trainer.load(state_file)
    trainer.run(state_file)
    log = {
        "options": asdict(options),
        "target": target.info.path,
        "fingerprint": target.info.fingerprint,
        "episodes": len(files),
        "samples": len(trainer.train),
        "parameters": sum(weight.numel() for weight in trainer.block.parameters()),
        "steps": trainer.step,
        "seconds": round(trainer.seconds),
        "history": trainer.history,
    }
    if trainer.engine.is_main_process:
        trainer.block.save(out, fingerprint=target.info.fingerprint)
        text = json.dumps(log, indent=1) + "\n"
        (out / "training_log.json").write_text(text, encoding="utf-8")
    return log
