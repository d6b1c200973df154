"""What drafts an action of each kind, and what finishes it."""

from __future__ import annotations

from heisd_ros.composition.components import Components
from heisd_ros.composition.stores import NONE
from heisd_ros.config import HeisdConfig
from heisd_ros.decode import methods
from heisd_ros.decode.methods import Method
from heisd_ros.draft.continuation import JacobiContinuation
from heisd_ros.draft.drafter import DrafterDraftSource
from heisd_ros.draft.kinematic import HoldDraftSource, KalmanDraftSource
from heisd_ros.draft.lookahead import LookaheadDraftSource
from heisd_ros.draft.merged import AfterPrefillSource, MergedDraftSource
from heisd_ros.draft.retrieval import RetrievalDraftSource
from heisd_ros.errors import ConfigError
from heisd_ros.protocols import Continuation, DraftSource, TargetModel
from heisd_ros.share import weights_dir
from heisd_ros.types import DraftKind
from heisd_ros.verify.kerv import KervContinuation

JACOBI_BRANCHES = 4
"""Branches of a rejected tree whose answers become guesses, see docs/decisions.md."""


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
