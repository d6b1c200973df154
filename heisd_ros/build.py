"""The composition root: the only place that chooses concrete classes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.config import HeisdConfig, VerifyConfig
from heisd_ros.decode import methods
from heisd_ros.decode.decoder import HybridDecoder
from heisd_ros.decode.methods import Method, method_named
from heisd_ros.decode.policy import HeisdPolicy
from heisd_ros.decode.selector import BoundarySelector, FixedSelector, Selector
from heisd_ros.draft.continuation import JacobiContinuation
from heisd_ros.draft.kinematic import HoldDraftSource, KalmanDraftSource
from heisd_ros.draft.lookahead import LookaheadDraftSource
from heisd_ros.draft.merged import MergedDraftSource
from heisd_ros.draft.retrieval import RetrievalDraftSource
from heisd_ros.errors import ConfigError, MissingDependencyError, ModelError, StoreError
from heisd_ros.perception.prepare import PreparingEncoder
from heisd_ros.protocols import (
    AcceptanceRule,
    Continuation,
    DemonstrationStore,
    DraftSource,
    Environment,
    TargetModel,
    VisionEncoder,
)
from heisd_ros.share import weights_dir
from heisd_ros.trajectory.metric import TrajectoryMeter
from heisd_ros.types import DraftKind
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)
from heisd_ros.verify.schedule import FixedSchedule
from heisd_ros.verify.skip import FixedSkip

if TYPE_CHECKING:
    from heisd_ros.models.openvla import OpenVlaTarget

NO_STORE = "none"
"""Value of `retrieval.store` that switches retrieval off."""


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


def build_policy(config: HeisdConfig, components: Components | None = None) -> HeisdPolicy:
    """Build the policy of `config.decode.method`; loads what `components` does not bring."""
    parts = components or build_components(config)
    return HeisdPolicy(
        build_decoder(config, parts),
        parts.encoder,
        TrajectoryMeter(config.trajectory),
        gripper_max_m=config.command.gripper_max_m,
        clock=time.perf_counter,
    )


def build_decoder(config: HeisdConfig, parts: Components) -> HybridDecoder:
    """Turn a named method into one configured decode loop."""
    method = method_named(config.decode.method)
    return HybridDecoder(
        parts.target,
        parts.tokenizer,
        parts.statistics,
        selector=_selector(config, method),
        sources=_sources(config, method, parts),
        continuations=_continuations(method),
        schedule=FixedSchedule(ExactAcceptance() if method.exact else build_rule(config.verify)),
        skip=FixedSkip(method.skip_all),
        clock=time.perf_counter,
    )


def build_target(config: HeisdConfig) -> OpenVlaTarget:
    """Load the target model."""
    try:
        from heisd_ros.models.openvla import OpenVlaTarget  # torch is loaded only when needed
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
        self_check=model.self_check,
    )


def build_encoder(config: HeisdConfig) -> VisionEncoder:
    """Load the target's vision encoder, behind the configured rotation and crop."""
    return _prepared(config, build_target(config))


def build_store(config: HeisdConfig, fingerprint: str) -> DemonstrationStore | None:
    """Open the demonstration store for an encoder; None if it is switched off."""
    if config.retrieval.store == NO_STORE:
        return None
    from heisd_ros.demonstrations.store import MemoryStore

    path = Path(config.retrieval.store) if config.retrieval.store else weights_dir() / "store"
    if not path.is_dir():
        raise StoreError(
            f"no demonstration store at {path}; build one with `heisd build-db`, or set "
            f"retrieval.store to {NO_STORE!r}"
        )
    perception = config.perception
    return MemoryStore.open(
        path,
        fingerprint=fingerprint,
        cameras=perception.cameras,
        preprocessing={"crop_area": perception.crop_area, "pool": perception.pool},
    )


def build_rule(config: VerifyConfig) -> AcceptanceRule:
    """Return the configured acceptance rule."""
    if config.rule == "exact":
        return ExactAcceptance()
    if config.rule == "token_relaxed":
        return TokenRelaxedAcceptance(config.token_budget)
    if config.rule == "sequence_relaxed":
        return SequenceRelaxedAcceptance(
            config.sequence_budget, config.token_budget, strict=config.strict
        )
    raise ConfigError(f"unknown acceptance rule {config.rule!r}")


def build_environment(config: HeisdConfig) -> Environment:
    """Load the configured simulated task."""
    from heisd_ros.simulation.libero import LiberoEnvironment  # MuJoCo only when needed

    simulation = config.simulation
    return LiberoEnvironment(simulation.suite, simulation.task, image_size=simulation.image_size)


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


def _prepared(config: HeisdConfig, encoder: VisionEncoder) -> VisionEncoder:
    if _as_it_is(config):
        return encoder
    return PreparingEncoder(encoder, config.perception.rotate_deg, config.perception.crop_area)


def _as_it_is(config: HeisdConfig) -> bool:
    return config.perception.rotate_deg == 0 and config.perception.crop_area == 1.0


def _selector(config: HeisdConfig, method: Method) -> Selector:
    if method.fixed is not None:
        return FixedSelector(method.fixed)
    trajectory = config.trajectory
    return BoundarySelector(
        trajectory.threshold, hysteresis=trajectory.hysteresis, dwell=trajectory.dwell
    )


def _sources(
    config: HeisdConfig, method: Method, parts: Components
) -> dict[DraftKind, DraftSource]:
    """Return one source for the kind that the method drafts, merged if it is made of several."""
    made = _cheap_sources(config, method, parts)
    sources = [made[name] for name in method.drafts if name in made]
    kind = method.fixed or DraftKind.RETRIEVAL
    if not sources:
        return {}
    if len(sources) == 1:
        return {kind: sources[0]}
    return {kind: MergedDraftSource(sources, max_nodes=config.draft.max_nodes)}


def _cheap_sources(
    config: HeisdConfig, method: Method, parts: Components
) -> dict[str, DraftSource]:
    """Make the sources that need no features of the target; without a store only the others."""
    tokenizer, statistics = parts.tokenizer, parts.statistics
    made: dict[str, DraftSource] = {
        methods.HOLD: HoldDraftSource(tokenizer, statistics),
        methods.KALMAN: KalmanDraftSource(tokenizer, statistics),
    }
    if parts.store is None:
        return made
    retrieval = RetrievalDraftSource(
        parts.store,
        tokenizer,
        statistics,
        top_k=method.top_k or config.retrieval.top_k,
        min_score=config.retrieval.min_score,
        recombine=config.draft.recombine if method.recombine is None else method.recombine,
        max_nodes=config.draft.max_nodes,
    )
    made[methods.RETRIEVAL] = retrieval
    made[methods.LOOKAHEAD] = LookaheadDraftSource(retrieval, tokenizer, statistics)
    return made


def _continuations(method: Method) -> dict[DraftKind, Continuation]:
    if not method.jacobi:
        return {}
    jacobi = JacobiContinuation()
    return dict.fromkeys(DraftKind, jacobi)
