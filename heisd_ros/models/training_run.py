"""One training run of the small VLA: from demonstration folders to an exported checkpoint."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch.multiprocessing.spawn import start_processes

from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.errors import ModelError
from heisd_ros.models.batches import BatchMaker
from heisd_ros.models.small_tokenizer import EMPTY_ID, PROMPT, tokenizer_table
from heisd_ros.models.small_vla import LLAMA_ROWS, CompactVocabulary, SmallVla, SmallVlaShape
from heisd_ros.models.training import Trainer, TrainingOptions, VlaTrainee, evaluate
from heisd_ros.models.training_data import TrainingSet, load_training_set, range_statistics
from heisd_ros.types import IntArray

STATISTICS_KEY = "libero_spatial_heisd"
STATE_FILE = "state.pt"
RECIPE_FILE = "recipe.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What must stay the same when a run is resumed or another one starts from its weights.

    Attributes:
        shape: Sizes of the model.
        instructions: Instructions whose words are in the vocabulary.
        kinds: Kinds of objects that the auxiliary heads mark.
        statistics: `{"action": ..., "proprio": ...}`.
    """

    shape: SmallVlaShape
    instructions: tuple[str, ...]
    kinds: tuple[str, ...]
    statistics: dict[str, Any]

    def save(self, file: Path) -> None:
        """Write the recipe as json."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, file: Path) -> Recipe:
        """Read a recipe.

        Raises:
            ModelError: If there is none.
        """
        if not file.is_file():
            raise ModelError(f"{file} is missing: no training run to continue or start from")
        content = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            SmallVlaShape(**content["shape"]),
            tuple(content["instructions"]),
            tuple(content["kinds"]),
            content["statistics"],
        )


def training_folder(out: Path) -> Path:
    """Return where the state of a run is kept: beside the export, not in it."""
    return out.with_name(out.name + ".training")


def train_small_vla(
    demos: Sequence[Path],
    out: Path,
    options: TrainingOptions,
    *,
    shape: SmallVlaShape | None = None,
    resume: bool = False,
    init: Path | None = None,
) -> dict[str, Any]:
    """Train and export the small VLA.

    Args:
        demos: Folders of demonstrations and DAgger episodes.
        out: Folder of the export; the run's state is kept in `training_folder(out)`.
        options: How to train.
        shape: Sizes of a new model; None for the shipped ones.
        resume: Continue the run whose state is there.
        init: Export folder of another run whose averaged weights are the start of this one.

    Returns:
        The training log, also written to `training_log.json` in the export.

    Raises:
        ModelError: If there is no run to resume or start from.
        DataError: If there are no usable demonstrations.
    """
    data = load_training_set(demos)
    folder = training_folder(out)
    if resume or init:
        recipe = Recipe.load(training_folder(init or out) / RECIPE_FILE)
    else:
        words = tuple(dict.fromkeys((*data.instructions, *_all_spatial())))
        statistics = range_statistics(data.frames)
        recipe = Recipe(shape or SmallVlaShape(), words, data.kinds, statistics)
    recipe.save(folder / RECIPE_FILE)
    start = training_folder(init) / STATE_FILE if init else None
    if resume and not (folder / STATE_FILE).is_file():
        raise ModelError(f"{folder / STATE_FILE} is missing: no training run to continue")
    _train(data, recipe, options, folder, start=start, resume=resume)
    return _export(data, recipe, options, folder, out)


def prompt_ids(instruction: str, tokenizer: Tokenizer) -> IntArray:
    """Return the prompt of an instruction (L,): BOS first, the empty token last."""
    ids = tokenizer.encode(PROMPT.format(instruction=instruction.lower())).ids
    return np.array([*ids, EMPTY_ID], dtype=np.int64)


def make_trainer(data: TrainingSet, recipe: Recipe, options: TrainingOptions) -> Trainer:
    """Build model, heads and batches; the seed decides the first weights."""
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_table()))
    known = [prompt_ids(text, tokenizer) for text in recipe.instructions]
    actions = ActionTokenizer(LLAMA_ROWS - 64, recipe.shape.n_bins)
    vocabulary = CompactVocabulary(known, actions.first_id, actions.n_bins)
    model = SmallVla(recipe.shape, vocabulary)
    prompts = [prompt_ids(text, tokenizer) for text in data.instructions]
    maker = BatchMaker(data, model, prompts, recipe.statistics)
    return Trainer(VlaTrainee(model, len(recipe.kinds)), maker, data, options)


def _train(
    data: TrainingSet,
    recipe: Recipe,
    options: TrainingOptions,
    folder: Path,
    *,
    start: Path | None,
    resume: bool,
) -> None:
    with tempfile.TemporaryDirectory() as meeting_place:
        arguments = (data, recipe, options, folder, start, resume, Path(meeting_place) / "meet")
        # fork: the processes share the frames; the parent has run no backward pass yet.
        start_processes(_work, arguments, options.workers, start_method="fork")  # type: ignore[no-untyped-call]


def _work(  # noqa: PLR0917  (the process starter passes them by position)
    rank: int,
    data: TrainingSet,
    recipe: Recipe,
    options: TrainingOptions,
    folder: Path,
    start: Path | None,
    resume: bool,
    meeting_place: Path,
) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    world = options.workers
    if world > 1:
        where = f"file://{meeting_place}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    trainer = make_trainer(data, recipe, options)
    if resume:
        trainer.load(folder / STATE_FILE)
    elif start is not None:
        trainer.start_from(start)
    trainer.run(folder / STATE_FILE, rank, world)
    if world > 1:
        dist.destroy_process_group()


def _export(
    data: TrainingSet, recipe: Recipe, options: TrainingOptions, folder: Path, out: Path
) -> dict[str, Any]:
    trainer = make_trainer(data, recipe, options)
    trainer.load(folder / STATE_FILE)
    trainer.use_average()
    trainer.trainee.model.export(out, {STATISTICS_KEY: recipe.statistics})
    frames = data.frames
    log = {
        "options": asdict(options),
        "frames": len(frames),
        "held_out_frames": int(frames.held_out.sum()),
        "instructions": list(data.instructions),
        "steps": trainer.step,
        "seconds": round(trainer.seconds),
        "samples_per_second": round(trainer.step * options.batch / max(trainer.seconds, 1e-9), 1),
        "final": evaluate(trainer.trainee, trainer.maker, data.validation_rows),
        "history": trainer.history,
    }
    (out / "training_log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    return log


def _all_spatial() -> tuple[str, ...]:
    """Return the instructions of libero_spatial, so that a later run may add its tasks."""
    places = (
        "between the plate and the ramekin",
        "next to the ramekin",
        "from table center",
        "on the cookie box",
        "in the top drawer of the wooden cabinet",
        "on the ramekin",
        "next to the cookie box",
        "on the stove",
        "next to the plate",
        "on the wooden cabinet",
    )
    return tuple(f"pick up the black bowl {place} and place it on the plate" for place in places)
