"""What is expensive to load: the model, its encoder, its statistics and the store."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.composition.stores import build_store
from heisd_ros.config import HeisdConfig
from heisd_ros.decode.methods import method_named
from heisd_ros.draft.drafter import DraftHead
from heisd_ros.errors import ConfigError, MissingDependencyError, ModelError
from heisd_ros.perception.prepare import PreparingEncoder
from heisd_ros.protocols import DemonstrationStore, TargetModel, VisionEncoder
from heisd_ros.share import weights_dir

if TYPE_CHECKING:
    from heisd_ros.models.openvla import OpenVlaTarget


@dataclass(frozen=True)
class Components:
    """What is expensive to load and shared by all nodes of one process.

    Attributes:
        target: The model that verifies.
        encoder: The same model's vision encoder, behind the configured rotation and crop.
        tokenizer: Of the target.
        statistics: The chosen action statistics of the target.
        store: Demonstrations; None without retrieval.
    """

    target: TargetModel
    encoder: VisionEncoder
    tokenizer: ActionTokenizer
    statistics: ActionStatistics
    store: DemonstrationStore | None


def build_components(config: HeisdConfig) -> Components:
    """Load the model once, and the demonstration store if the method uses one.

    Raises:
        ModelError: If the checkpoint is missing, broken, or fails its self-check.
        StoreError: If the store is missing, broken, or was built with another encoder.
        ConfigError: If the method or the statistics key is unknown.
    """
    method = method_named(config.decode.method)
    target = build_target(config)
    store = build_store(config, target.info.fingerprint) if method.needs_store else None
    return Components(
        target=target,
        encoder=_prepared(config, target),
        tokenizer=ActionTokenizer(target.info.vocab_size, target.info.n_bins),
        statistics=ActionStatistics.load(target.info.path, config.model.statistics_key),
        store=store,
    )


def build_shape(config: HeisdConfig, shape: str, layers: int, folder: Path) -> Components:
    """Make a model of a real one's shape from random weights, to be timed; without a store.

    Args:
        config: Names device, weight type and the largest tree.
        shape: `7b` or `tiny`.
        layers: Decoder layers; 0: as many as the shape has.
        folder: Gets the model's description; must outlive the model.

    Raises:
        ConfigError: If the shape is unknown.
    """
    from heisd_ros.models.device import use_threads
    from heisd_ros.models.shapes import random_target, shape_config

    model = config.model
    use_threads(model.threads)
    target = random_target(
        shape_config(shape, layers),
        folder,
        device=model.device,
        dtype=model.dtype,
        max_nodes=config.draft.max_nodes,
        compiled=model.compile,
    )
    return Components(
        target=target,
        encoder=_prepared(config, target),
        tokenizer=ActionTokenizer(target.info.vocab_size, target.info.n_bins),
        statistics=target.statistics(),
        store=None,
    )


def build_target(config: HeisdConfig) -> OpenVlaTarget:
    """Load the target model."""
    try:
        from heisd_ros.models.openvla import OpenVlaTarget  # torch is loaded only when needed
        from heisd_ros.models.token_reuse import ReuseOptions
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{error.name} is needed to load a checkpoint: pip install 'heisd_ros[models]'"
        ) from error

    model = config.model
    return OpenVlaTarget.from_pretrained(
        checkpoint_dir(config),
        device=model.device,
        dtype=model.dtype,
        statistics_key=model.statistics_key,
        threads=model.threads,
        max_nodes=config.draft.max_nodes,
        pool=config.perception.pool,
        normalise=config.perception.normalise,
        self_check=model.self_check,
        compiled=model.compile,
        reuse=ReuseOptions(
            similarity=model.token_reuse_similarity,
            share=model.token_reuse_share,
            relevant=model.token_reuse_relevant,
            refresh=model.token_reuse_refresh,
        )
        if model.token_reuse
        else None,
    )


def build_encoder(config: HeisdConfig) -> VisionEncoder:
    """Load the target's vision encoder, behind the configured rotation and crop."""
    return _prepared(config, build_target(config))


def build_random_draft_head(parts: Components) -> DraftHead:
    """Return a draft head with random weights for a loaded model, to be timed.

    Raises:
        ConfigError: If the model is of a kind that no draft head fits.
    """
    from heisd_ros.models.shapes import random_draft_head

    return random_draft_head(_openvla(parts))


def hardware(parts: Components) -> str:
    """Return the device and weight type of a loaded model in words."""
    return _openvla(parts).hardware


def free_memory() -> None:
    """Give back what the models that nobody holds any more have left on the accelerator."""
    gc.collect()
    if "torch" in sys.modules:  # without it no model has been loaded
        from heisd_ros.models.device import free_accelerator

        free_accelerator()


def checkpoint_dir(config: HeisdConfig) -> Path:
    """Return the configured checkpoint, or the small one that is shipped.

    Raises:
        ModelError: If the folder does not exist; a name on a model hub is not looked up.
    """
    path = Path(config.model.checkpoint) if config.model.checkpoint else weights_dir() / "small_vla"
    if not path.is_dir():
        raise ModelError(
            f"no checkpoint folder at {path}; give model.checkpoint a local folder in the OpenVLA "
            "layout (nothing is downloaded)"
        )
    return path


def _openvla(parts: Components) -> OpenVlaTarget:
    from heisd_ros.models.openvla import OpenVlaTarget

    if not isinstance(parts.target, OpenVlaTarget):
        raise ConfigError(f"this needs an OpenVLA target, got {type(parts.target).__name__}")
    return parts.target


def _prepared(config: HeisdConfig, encoder: VisionEncoder) -> VisionEncoder:
    if _as_it_is(config):
        return encoder
    return PreparingEncoder(encoder, config.perception.rotate_deg, config.perception.crop_area)


def _as_it_is(config: HeisdConfig) -> bool:
    return config.perception.rotate_deg == 0 and config.perception.crop_area == 1.0
