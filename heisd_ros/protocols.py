"""The borders between rooms, as Protocols; every one has a contract test in `test/contracts/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from heisd_ros.types import (
    Acceptance,
    Draft,
    DraftRequest,
    EndEffectorCommand,
    Float32Array,
    Frame,
    Hits,
    IntArray,
    Observation,
    TokenTree,
    Verification,
    Verified,
    VisualFeatures,
)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the other rooms need to know about a loaded checkpoint.

    Attributes:
        path: Folder the checkpoint was loaded from.
        fingerprint: Hash of weights and preprocessing of the vision encoder; a demonstration
            store built with another fingerprint is refused.
        vocab_size: Size of the unpadded vocabulary V; the action ids are V-256 .. V-1.
        n_bins: Bin edges per degree of freedom.
        views: Camera views that the model is fed, V.
        embedding_size: Length of one view's retrieval embedding.
        state_size: Length of the proprioceptive state vector; 0 if the model takes none.
        hidden_size: Width of the language model, d.
        max_nodes: Largest draft tree one forward can take.
        statistics_keys: Keys of the action statistics that came with the checkpoint.
    """

    path: str
    fingerprint: str
    vocab_size: int
    n_bins: int
    views: int
    embedding_size: int
    state_size: int
    hidden_size: int
    max_nodes: int
    statistics_keys: tuple[str, ...]


@runtime_checkable
class VisionEncoder(Protocol):
    """Turns camera frames into patch features and the retrieval embedding, in one batched pass."""

    def encode(self, frames: Sequence[Frame]) -> VisualFeatures:
        """Encode frames given in view order.

        The retrieval embedding covers all frames; the patches cover the views the model is fed.

        Raises:
            DataError: If a frame is not uint8 (H, W, 3) or their number is not the configured one.
        """


@runtime_checkable
class DraftSource(Protocol):
    """Proposes draft tokens and learns from what became of them."""

    def draft(self, request: DraftRequest) -> Draft:
        """Propose a tree; `Draft.tree` is None with a reason when there is nothing to propose."""

    def observe(self, acceptance: Acceptance) -> None:
        """Take note of what the target accepted of the last draft."""

    def reset(self) -> None:
        """Forget the episode."""


@runtime_checkable
class DemonstrationStore(Protocol):
    """Demonstrated steps, searched by visual similarity within one task."""

    def search(
        self, embedding: Float32Array, task: str, k: int, *, after: Hits | None = None
    ) -> Hits:
        """Return the k nearest steps of this task by cosine, best first; empty if task unknown.

        Args:
            embedding: float32 (E,), unit norm.
            task: Instruction; it is normalised to the task key.
            k: Neighbours wanted, >= 1.
            after: Earlier hits of this store. The next step of each, in the same episode and task,
                is scored exactly beside what the approximate search finds: it can only be added,
                and only if it is among the k best.

        Raises:
            StoreError: If the query has the wrong length, is not finite or not unit norm.
        """

    def successors(self, hits: Hits, n: int) -> Hits:
        """Return the steps n later in the same episodes; hits whose episode ends are dropped."""


@runtime_checkable
class TargetModel(Protocol):
    """The VLA that verifies. Keeps a K/V cache between `start` and the end of the step.

    `start` runs prefix and draft tree in one forward. `accept` keeps the rows of the accepted
    nodes. `verify` runs another tree on top of what was kept, so one autoregressive step is
    `verify` of a one-node tree holding the last token, followed by `accept([0])`.
    """

    @property
    def info(self) -> ModelInfo:
        """Facts about the checkpoint."""

    def prompt(self, instruction: str) -> IntArray:
        """Return the prompt ids of an instruction, BOS first, empty token 29871 last."""

    def start(
        self,
        prompt: IntArray,
        patches: Any,  # noqa: ANN401  (the encoder's own array or device tensor)
        draft: TokenTree | None = None,
        *,
        state: Float32Array | None = None,
    ) -> Verification:
        """Begin a step: one forward over prompt, patches and draft tree; forgets the last step.

        Args:
            prompt: int64 (L,), from `prompt`.
            patches: (V, P, D) from the vision encoder.
            draft: Tree whose nodes are verified in the same forward; None for the prompt alone.
            state: float32 (state_size,), raw proprioception; needed when `info.state_size` > 0.
        """

    def verify(self, draft: TokenTree) -> Verification:
        """One forward over a tree below the committed prefix; row 0 repeats the known answer."""

    def accept(self, path: IntArray | Sequence[int]) -> None:
        """Commit these nodes of the last forward's tree, root first; drop all others."""

    def reset(self) -> None:
        """Forget the step and whatever is kept from one step to the next: an episode begins."""


@runtime_checkable
class AcceptanceRule(Protocol):
    """Decides how much of a verified tree is good enough."""

    def accept(self, tree: TokenTree, target_next: IntArray, *, offset: int = 0) -> Acceptance:
        """Judge each candidate on its own conditional argmax.

        Args:
            tree: The draft tree, N nodes.
            target_next: int64 (1+N,), the target's next token after the prefix and each node.
            offset: Degree of freedom of the tree's first level, 0 at the start of an action.
        """


@runtime_checkable
class Continuation(Protocol):
    """Finishes an action after the first forward: what to verify next."""

    def begin(self, request: DraftRequest, draft: Draft) -> None:
        """Start an action: take note of what was drafted for it."""

    def propose(self, tokens: IntArray, last: Verified) -> TokenTree:
        """Return the next tree; its only root is the last committed token, `tokens[-1]`.

        Args:
            tokens: int64 (k,), 1 <= k < 7, tokens decided so far; the last one is not yet in the
                target's K/V cache.
            last: The last verification of this action.
        """

    def finish(self, tokens: IntArray, last: Verified) -> IntArray:
        """Return the tokens, filled up to a whole action if the rest goes unverified.

        Args:
            tokens: int64 (k,), 1 <= k <= 7, decided so far.
            last: The verification that decided the last of them.
        """


@runtime_checkable
class RuleSchedule(Protocol):
    """Chooses the acceptance rule of each step, and learns from what it let through."""

    def rule(self, request: DraftRequest, draft: Draft) -> AcceptanceRule:
        """Return the rule of this step."""

    def observe(self, verified: Verified) -> None:
        """Take note of a verification."""

    def reset(self) -> None:
        """Forget the episode."""


@runtime_checkable
class SkipRule(Protocol):
    """Decides whether a draft may be executed without verification (HeiSD Algorithm 1)."""

    @property
    def vetoes(self) -> tuple[str, ...]:
        """What spoke against skipping the last draft, in words of the rule; empty: nothing did."""

    def should_skip(self, draft: Draft, request: DraftRequest) -> bool:
        """Return True to execute the draft's best candidate as it is."""

    def observe(self, draft: Draft, request: DraftRequest, verified: Verified) -> None:
        """Take note of a verification."""

    def end_episode(self, success: bool) -> None:
        """Learn from the outcome of the task."""

    def reset(self) -> None:
        """Forget the episode, keep what was learned."""


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """What an environment returns: the observation, and whether the task is solved."""

    observation: Observation
    success: bool


@runtime_checkable
class Environment(Protocol):
    """A robot and its world, one control period at a time."""

    @property
    def instruction(self) -> str:
        """The task in words."""

    @property
    def control_hz(self) -> float:
        """Control steps per second of the environment's own time."""

    def reset(self, seed: int) -> Observation:
        """Start an episode; the same seed gives the same episode, bit for bit."""

    def step(self, command: EndEffectorCommand) -> EnvironmentStep:
        """Apply one command for one control period."""

    def close(self) -> None:
        """Free the simulator; may be called twice."""


EMPTY_PATH: IntArray = np.zeros(0, dtype=np.int64)
