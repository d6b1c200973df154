"""The composition root: the only place that chooses concrete classes."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heisd_ros.action_space import ActionStatistics, ActionTokenizer
from heisd_ros.config import HeisdConfig, SkipConfig, VerifyConfig
from heisd_ros.decode import methods
from heisd_ros.decode.decoder import HybridDecoder
from heisd_ros.decode.methods import Method, method_config, method_named
from heisd_ros.decode.policy import HeisdPolicy
from heisd_ros.decode.selector import BoundarySelector, FixedSelector, Selector
from heisd_ros.demonstrations.store_address import is_server
from heisd_ros.draft.continuation import JacobiContinuation
from heisd_ros.draft.drafter import DrafterDraftSource, DraftHead
from heisd_ros.draft.kinematic import HoldDraftSource, KalmanDraftSource
from heisd_ros.draft.lookahead import LookaheadDraftSource
from heisd_ros.draft.merged import AfterPrefillSource, MergedDraftSource
from heisd_ros.draft.retrieval import RetrievalDraftSource
from heisd_ros.errors import ConfigError, MissingDependencyError, ModelError, StoreError
from heisd_ros.perception.prepare import PreparingEncoder
from heisd_ros.protocols import (
    AcceptanceRule,
    Continuation,
    DemonstrationStore,
    DraftSource,
    Environment,
    RuleSchedule,
    SkipRule,
    TargetModel,
    VisionEncoder,
)
from heisd_ros.share import config_file, weights_dir
from heisd_ros.trajectory.metric import TrajectoryMeter
from heisd_ros.types import DraftKind
from heisd_ros.verify.acceptance import (
    ExactAcceptance,
    SequenceRelaxedAcceptance,
    TokenRelaxedAcceptance,
)
from heisd_ros.verify.audit import AuditSettings
from heisd_ros.verify.kerv import DecayingSchedule, KervContinuation, VariableSchedule
from heisd_ros.verify.remembered_skip import RememberedSkip, restore
from heisd_ros.verify.schedule import FixedSchedule, KindSchedule
from heisd_ros.verify.skip import FixedSkip
from heisd_ros.verify.skip_table import SkipCalibration
from heisd_ros.verify.tightening import TighteningSchedule, TighteningSettings
from heisd_ros.verify.verify_skip import ScheduledSkip, SkipSettings

if TYPE_CHECKING:
    from heisd_ros.models.openvla import OpenVlaTarget

NONE = "none"
"""Value of `retrieval.store` and `draft.drafter` that switches the part off."""

JACOBI_BRANCHES = 4
"""Branches of a rejected tree whose answers become guesses, see docs/decisions.md."""


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


def build_policy(
    config: HeisdConfig,
    components: Components | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> HeisdPolicy:
    """Build the policy of `config.decode.method`; loads what `components` does not bring.

    Args:
        config: All of it.
        components: A loaded model and store to share.
        clock: Times the stages; returns seconds.
    """
    parts = components or build_components(config)
    return HeisdPolicy(
        build_decoder(config, parts, clock=clock),
        parts.encoder,
        TrajectoryMeter(method_config(config).trajectory),
        gripper_max_m=config.command.gripper_max_m,
        clock=clock,
    )


def build_decoder(
    config: HeisdConfig, parts: Components, *, clock: Callable[[], float] = time.perf_counter
) -> HybridDecoder:
    """Turn a named method into one configured decode loop.

    Raises:
        ConfigError: If the method needs a drafter and there is none.
        ModelError: If the drafter does not fit the target.
    """
    config = method_config(config)
    method = method_named(config.decode.method)
    return HybridDecoder(
        parts.target,
        parts.tokenizer,
        parts.statistics,
        selector=_selector(config, method),
        sources=build_sources(config, method, parts),
        continuations=build_continuations(config, method, parts),
        schedule=build_schedule(config.verify, parts.tokenizer),
        skip=build_skip(config.skip, suite=config.simulation.suite, tokenizer=parts.tokenizer),
        clock=clock,
    )


def build_environment(config: HeisdConfig) -> Environment:
    """Load the configured simulated task."""
    from heisd_ros.simulation.libero import LiberoEnvironment  # MuJoCo only when needed

    simulation = config.simulation
    return LiberoEnvironment(simulation.suite, simulation.task, image_size=simulation.image_size)


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
    """Load the target model.

    Raises:
        ModelError: If the checkpoint is missing, broken, or fails its self-check.
        MissingDependencyError: If torch or another package of the models is not installed.
    """
    folder = checkpoint_dir(config)  # before torch is loaded: that takes seconds
    try:
        with _without_collection():
            from heisd_ros.models.openvla import OpenVlaTarget  # torch is loaded only when needed
            from heisd_ros.models.token_reuse import ReuseOptions
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{error.name} is needed to load a checkpoint: pip install 'heisd_ros[models]'"
        ) from error

    model = config.model
    return OpenVlaTarget.from_pretrained(
        folder,
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


@contextmanager
def _without_collection() -> Iterator[None]:
    """Look for no garbage while modules are loaded: what they make stays.

    Importing torch takes a tenth less processor time so.
    """
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


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


def build_store(config: HeisdConfig, fingerprint: str) -> DemonstrationStore | None:
    """Open the demonstration store for an encoder; None if it is switched off.

    Raises:
        StoreError: If a folder is missing, broken, or was built with another encoder, or an address
            is malformed. A server that is away is only logged: drafts come from it when it returns.
    """
    if config.retrieval.store == NONE:
        return None
    if is_server(config.retrieval.store):
        return _server_store(config, fingerprint)
    from heisd_ros.demonstrations.store import MemoryStore

    path = Path(config.retrieval.store) if config.retrieval.store else weights_dir() / "store"
    if not path.is_dir():
        raise StoreError(
            f"no demonstration store at {path}; build one with `heisd build-db`, or set "
            f"retrieval.store to {NONE!r}"
        )
    return MemoryStore.open(
        path,
        fingerprint=fingerprint,
        cameras=config.perception.cameras,
        preprocessing=embedding_facts(config),
    )


def embedding_facts(config: HeisdConfig) -> dict[str, float | str]:
    """Return what a store's embeddings depend on beside the encoder; stored in its manifest."""
    perception = config.perception
    return {
        "crop_area": perception.crop_area,
        "pool": perception.pool,
        "normalise": perception.normalise,
    }


def build_sources(
    config: HeisdConfig, method: Method, parts: Components
) -> dict[DraftKind, DraftSource]:
    """Return one source per kind that the method drafts, merged if it is made of several."""
    made = _cheap_sources(config, method, parts)
    sources: dict[DraftKind, DraftSource] = {}
    for kind, names in method.drafts.items():
        known = [made[name] for name in names if name in made]
        if len(known) == 1:
            sources[kind] = known[0]
        elif known:
            sources[kind] = MergedDraftSource(known, max_nodes=config.draft.max_nodes)
    if method.uses_drafter:
        sources[DraftKind.DRAFTER] = AfterPrefillSource(sources.get(DraftKind.DRAFTER))
    return sources


def build_continuations(
    config: HeisdConfig, method: Method, parts: Components
) -> dict[DraftKind, Continuation]:
    """Return what finishes the actions of each kind; Jacobi stands in for a missing drafter."""
    drafter = build_drafter(config, parts.target) if method.uses_drafter else None
    if drafter is None and method.needs_drafter:
        raise ConfigError(
            f"method {method.name!r} needs a drafter and draft.drafter names none for this model; "
            "train one with `heisd train-drafter`"
        )
    tree = JacobiContinuation(JACOBI_BRANCHES, max_nodes=config.draft.max_nodes)
    made: dict[str, Continuation] = {
        methods.JACOBI: JacobiContinuation(max_nodes=config.draft.max_nodes),
        methods.JACOBI_TREE: tree,
        methods.DRAFTER: drafter or tree,
    }
    made[methods.KERV] = KervContinuation(made[methods.DRAFTER], parts.tokenizer)
    return {kind: made[name] for kind, name in method.finish.items()}


def build_drafter(config: HeisdConfig, target: TargetModel) -> DrafterDraftSource | None:
    """Load the draft head; None if it is switched off, or none is known for another model.

    Raises:
        ModelError: If the folder is no complete head or does not fit the target.
    """
    draft = config.draft
    if draft.drafter == NONE or (not draft.drafter and config.model.checkpoint):
        return None
    from heisd_ros.models.draft_head import EagleDraftHead
    from heisd_ros.models.openvla import OpenVlaTarget

    if not isinstance(target, OpenVlaTarget):
        raise ConfigError(
            f"a drafter reads the features of an OpenVlaTarget, got {type(target).__name__}; "
            f"set draft.drafter to {NONE!r}"
        )
    folder = draft.drafter or weights_dir() / "small_drafter"
    head = EagleDraftHead.from_pretrained(folder, target, top_k=draft.drafter_top_k)
    return DrafterDraftSource(
        head,
        total_nodes=draft.drafter_nodes,
        depth=draft.drafter_depth,
        top_k=draft.drafter_top_k,
    )


def build_schedule(verify: VerifyConfig, tokenizer: ActionTokenizer) -> RuleSchedule:
    """Return which acceptance rule each step gets."""
    retrieved = FixedSchedule(build_rule(verify))
    schedule = KindSchedule({DraftKind.DRAFTER: _drafter_schedule(verify, tokenizer)}, retrieved)
    if not verify.tighten:
        return schedule
    settings = TighteningSettings(
        min_scale=verify.tighten_min_scale,
        reference=verify.tighten_reference,
        contact_scale=verify.tighten_contact_scale,
        contact_steps=verify.tighten_contact_steps,
        min_height=verify.tighten_min_height,
        max_force=verify.tighten_max_force,
    )
    return TighteningSchedule(schedule, settings, tokenizer=tokenizer)


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


def build_skip(
    config: SkipConfig, *, suite: str = "", tokenizer: ActionTokenizer | None = None
) -> SkipRule:
    """Return which drafts are executed unverified.

    Args:
        config: The section `skip`.
        suite: Names the shipped thresholds when `skip.thresholds` is empty.
        tokenizer: Of the target; None for OpenVLA's.

    Raises:
        ConfigError: If no thresholds are shipped for the suite.
        DataError: If a file is damaged, foreign, or holds impossible values.
    """
    if config.rule in ("never", "always"):
        return FixedSkip(config.rule == "always")
    if config.rule == "schedule":
        return ScheduledSkip(config.max_consecutive)
    shipped = f"calibration/{suite}_skip.json"
    path = Path(config.thresholds) if config.thresholds else config_file(shipped)
    state_path = Path(config.state) if config.state else None
    table = SkipCalibration.load(path).tables[config.learned]
    audit = AuditSettings(config.audit_rate, config.max_deviation, config.max_share)
    return RememberedSkip(
        restore(state_path, table, fresh=config.state_fresh),
        settings=SkipSettings(config.min_score, config.max_spread, config.max_consecutive),
        audit=audit if config.rule == "audited" else None,
        rng=np.random.default_rng(config.seed),
        tokenizer=tokenizer,
        path=state_path,
    )


def _selector(config: HeisdConfig, method: Method) -> Selector:
    if method.fixed is not None:
        return FixedSelector(method.fixed)
    trajectory = config.trajectory
    return BoundarySelector(
        trajectory.threshold, hysteresis=trajectory.hysteresis, dwell=trajectory.dwell
    )


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


def _server_store(config: HeisdConfig, fingerprint: str) -> DemonstrationStore:
    from heisd_ros.demonstrations.qdrant_store import QdrantStore

    return QdrantStore.open(
        config.retrieval.store,
        fingerprint=fingerprint,
        cameras=config.perception.cameras,
        preprocessing=embedding_facts(config),
        timeout_s=config.retrieval.timeout_s,
        pause_s=config.retrieval.pause_s,
    )


def _cheap_sources(
    config: HeisdConfig, method: Method, parts: Components
) -> dict[str, DraftSource]:
    """Make the sources that need no features of the target; without a store only the others."""
    tokenizer, statistics = parts.tokenizer, parts.statistics
    made: dict[str, DraftSource] = {
        methods.HOLD: HoldDraftSource(tokenizer, statistics),
        methods.KALMAN: KalmanDraftSource(tokenizer, statistics),
    }
    if parts.store is None or not method.needs_store:
        return made
    retrieval = RetrievalDraftSource(
        parts.store,
        tokenizer,
        statistics,
        top_k=config.retrieval.top_k,
        min_score=config.retrieval.min_score,
        recombine=config.draft.recombine,
        max_nodes=config.draft.max_nodes,
    )
    made[methods.RETRIEVAL] = retrieval
    made[methods.LOOKAHEAD] = LookaheadDraftSource(retrieval, tokenizer, statistics)
    return made


def _drafter_schedule(verify: VerifyConfig, tokenizer: ActionTokenizer) -> RuleSchedule:
    """Return the rule of steps below the boundary."""
    if verify.drafter_rule == "kinematic":
        return VariableSchedule(tokenizer)
    if verify.drafter_rule == "decaying":
        return DecayingSchedule()
    tolerance = verify.drafter_tolerance if verify.drafter_rule == "token_relaxed" else 0
    return FixedSchedule(TokenRelaxedAcceptance(tolerance) if tolerance else ExactAcceptance())
