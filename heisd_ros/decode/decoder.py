"""The hybrid decode loop, one action per call (HeiSD Fig. 4 and Algorithm 1, on one screen).

Drafts that need no features of the language model are verified inside the prefill: prompt and
draft tree are one forward pass. Whatever the draft leaves open is decoded on from the kept K/V
rows, so a step never takes more forwards than autoregression does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space.statistics import ActionStatistics
from heisd_ros.action_space.tokenizer import ActionTokenizer
from heisd_ros.decode.report import Neighbourhood, Tally
from heisd_ros.decode.selector import Selector
from heisd_ros.decode.stopwatch import Stopwatch
from heisd_ros.draft.continuation import AutoregressiveContinuation
from heisd_ros.draft.tree import DraftTree
from heisd_ros.errors import ModelError
from heisd_ros.protocols import (
    AcceptanceRule,
    Continuation,
    DraftSource,
    RuleSchedule,
    SkipRule,
    TargetModel,
)
from heisd_ros.types import (
    ACTION_DIM,
    Action,
    DecodeReport,
    DecodeResult,
    Draft,
    DraftKind,
    DraftRequest,
    Float32Array,
    IntArray,
    TokenTree,
    Verification,
    Verified,
)

EMPTY_TREE = DraftTree.from_paths([])
NOTHING: IntArray = np.zeros(0, dtype=np.int64)
AUTOREGRESSIVE = AutoregressiveContinuation()


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One control step's inputs.

    Attributes:
        draft: What draft sources may look at; also carries features and metric.
        prompt: int64 (L,), prompt ids of the current instruction.
        state: float32 (state_size,), raw proprioception for the target; None if it takes none.
    """

    draft: DraftRequest
    prompt: IntArray
    state: Float32Array | None = None


class HybridDecoder:
    """Decodes one action per step with whatever parts one method gave it."""

    def __init__(
        self,
        target: TargetModel,
        tokenizer: ActionTokenizer,
        statistics: ActionStatistics,
        *,
        selector: Selector,
        sources: Mapping[DraftKind, DraftSource],
        continuations: Mapping[DraftKind, Continuation],
        schedule: RuleSchedule,
        skip: SkipRule,
        clock: Callable[[], float],
    ) -> None:
        """Join the parts of one method (see `decode/methods.py`).

        Args:
            target: The model that verifies.
            tokenizer: Of the target.
            statistics: Of the target.
            selector: Chooses the kind of draft.
            sources: What drafts each kind; a kind without a source is decoded autoregressively.
            continuations: What finishes an action of each kind; default one token per forward.
            schedule: Chooses the acceptance rule.
            skip: Chooses what is executed unverified.
            clock: Returns seconds, never goes back.
        """
        self.target = target
        self._tokenizer = tokenizer
        self._statistics = statistics
        self._selector = selector
        self._sources = dict(sources)
        self._continuations = dict(continuations)
        self._schedule = schedule
        self._skip = skip
        self._clock = clock

    def step(self, request: StepRequest) -> DecodeResult:
        """Decode one action: select, draft, skip?, verify, accept, complete.

        Raises:
            ModelError: If the target answers with a token that is no action token.
        """
        watch = Stopwatch(self._clock)
        kind = self._selector.select(request.draft.metric)
        draft = self._draft(kind, request.draft)
        watch.lap("draft")
        if self._skip.should_skip(draft, request.draft):
            return self._skipped(draft, request, watch)
        vetoes = self._skip.vetoes

        rule = self._schedule.rule(request.draft, draft)
        tree = draft.tree or EMPTY_TREE
        answer = self.target.start(
            request.prompt, request.draft.features.patches, tree, state=request.state
        )
        last = self._accept(rule, tree, answer, NOTHING)
        self._observe(kind, draft, request.draft, last)
        tally = Tally().add(last)
        watch.lap("prefill")

        continuation = self._continuations.get(kind, AUTOREGRESSIVE)
        continuation.begin(request.draft, draft)
        decided = last.accepted.tokens
        tokens = continuation.finish(decided, last)
        while len(tokens) < ACTION_DIM:
            rest = continuation.propose(tokens, last)
            last = self._accept(rule, rest, self.target.verify(rest), tokens)
            self._schedule.observe(last)
            tally = tally.add(last)
            decided = np.concatenate([tokens[:-1], last.accepted.tokens])
            tokens = continuation.finish(decided, last)
        watch.lap("decode")

        near = Neighbourhood.of(draft)
        report = DecodeReport(
            kind=draft.kind,
            skipped=False,
            accept_length=tally.accept_length,
            forwards=tally.forwards,
            stage_ms=watch.stage_ms(),
            fused=request.draft.metric.fused,
            nodes=tally.nodes,
            top_score=near.top_score,
            reason=draft.reason,
            prefill_nodes=len(tree),
            unverified=len(tokens) - len(decided),
            vetoes=vetoes,
            scores=near.scores,
            spread=near.spread,
            gripper_consensus=near.gripper_consensus,
        )
        return DecodeResult(self._action(tokens), report, request.draft.metric)

    def reset(self) -> None:
        """Forget the episode in every part that keeps state."""
        self.target.reset()
        self._selector.reset()
        self._schedule.reset()
        self._skip.reset()
        for source in self._sources.values():
            source.reset()

    def end_episode(self, success: bool) -> None:
        """Tell the skip rule how the task ended (Algorithm 1's feedback)."""
        self._skip.end_episode(success)

    def _draft(self, kind: DraftKind, request: DraftRequest) -> Draft:
        """Ask the selected source; without one, or without an idea of its, decode by AR."""
        source = self._sources.get(kind)
        if source is None:
            return no_draft("" if kind is DraftKind.AR else f"no_{kind.value}")
        draft = source.draft(request)
        return no_draft(draft.reason) if draft.tree is None and draft.reason else draft

    def _accept(
        self, rule: AcceptanceRule, tree: TokenTree, answer: Verification, tokens: IntArray
    ) -> Verified:
        """Keep what the rule accepts below the decided tokens; the last of them is the root."""
        known = min(len(tokens), 1)
        accepted = rule.accept(tree, answer.target_next, offset=max(len(tokens) - 1, 0))
        if len(accepted.path) < known:  # such a step would never end
            raise ModelError(f"{type(rule).__name__} refuses the target's own token; mend the rule")
        self.target.accept(accepted.path)
        return Verified(tree, answer, accepted, known=known)

    def _observe(
        self, kind: DraftKind, draft: Draft, request: DraftRequest, verified: Verified
    ) -> None:
        if kind in self._sources:
            self._sources[kind].observe(verified.accepted)
        self._schedule.observe(verified)
        self._skip.observe(draft, request, verified)

    def _skipped(self, draft: Draft, request: StepRequest, watch: Stopwatch) -> DecodeResult:
        """Execute the best draft as it is: no forward of the target at all."""
        near = Neighbourhood.of(draft)
        report = DecodeReport(
            kind=draft.kind,
            skipped=True,
            accept_length=0.0,
            forwards=0,
            stage_ms=watch.stage_ms(),
            fused=request.draft.metric.fused,
            top_score=near.top_score,
            unverified=ACTION_DIM,
            scores=near.scores,
            spread=near.spread,
            gripper_consensus=near.gripper_consensus,
        )
        action = Action(draft.chains[0].copy(), draft.actions[0].copy())
        return DecodeResult(action, report, request.draft.metric)

    def _action(self, tokens: IntArray) -> Action:
        if not np.all(self._tokenizer.is_action(tokens)):
            raise ModelError(
                f"the target decoded tokens that are no actions: {tokens.tolist()}; expected ids "
                f"in [{self._tokenizer.first_id}, {self._tokenizer.last_id}]; check the "
                "checkpoint and the prompt"
            )
        values = self._statistics.denormalize(self._tokenizer.decode(tokens))
        return Action(np.asarray(tokens, dtype=np.int64), values)


def no_draft(reason: str) -> Draft:
    """Return the draft of a step that is decoded autoregressively."""
    return Draft.nothing(DraftKind.AR, reason)
