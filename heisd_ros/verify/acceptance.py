"""Acceptance rules: exact, token-relaxed (Spec-VLA) and sequence-relaxed (HeiSD section 4.3).

Every rule returns the accepted draft tokens followed by the target's own next token, which is free.
The gripper is never relaxed: a wrong gripper state cannot be repaired by the next step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heisd_ros.action_space.layout import SEQUENCE_SLICES, sequence_of
from heisd_ros.action_space.layout import Sequence as ActionSequence
from heisd_ros.draft.tree import ROOT, children
from heisd_ros.errors import ConfigError, ShapeError
from heisd_ros.types import ACTION_DIM, Acceptance, IntArray, TokenTree
from heisd_ros.verify.bias import index_bias, sequence_bias

_GRIPPER = SEQUENCE_SLICES[ActionSequence.GRIPPER].start


@dataclass(frozen=True, slots=True)
class ExactAcceptance:
    """Accept a draft token only if it is the target's own greedy choice: lossless."""

    def accept(self, tree: TokenTree, target_next: IntArray, *, offset: int = 0) -> Acceptance:
        """Walk down while a child is the target's token."""
        _check(tree, target_next)
        path = _exact_walk(tree, target_next, ROOT)
        return _acceptance(tree, target_next, path, offset)


@dataclass(frozen=True, slots=True)
class TokenRelaxedAcceptance:
    """Accept a token within `tolerance` bins of the target's (Spec-VLA, r = 9 or 15).

    Attributes:
        tolerance: Largest bias r, bins, >= 0.
    """

    tolerance: int

    def __post_init__(self) -> None:
        _refuse_negative(tolerance=self.tolerance)

    def accept(self, tree: TokenTree, target_next: IntArray, *, offset: int = 0) -> Acceptance:
        """Take the longest chain of acceptable tokens; among equals the smallest summed bias."""
        _check(tree, target_next)
        bias = index_bias(tree, target_next)
        limit = np.where(np.asarray(tree.depth) + offset >= _GRIPPER, 0, self.tolerance)
        alive = np.zeros(len(tree), dtype=np.bool_)
        total = np.zeros(len(tree), dtype=np.int64)
        best: tuple[int, int, int] = (0, 0, ROOT)
        for node, above in enumerate(np.asarray(tree.parent).tolist()):
            alive[node] = bias[node] <= limit[node] and (above == ROOT or alive[above])
            total[node] = bias[node] + (0 if above == ROOT else total[above])
            if alive[node]:
                best = min(best, (-int(tree.depth[node]) - 1, int(total[node]), node))
        return _acceptance(tree, target_next, _ancestry(tree, best[2]), offset)


@dataclass(frozen=True, slots=True)
class SequenceRelaxedAcceptance:
    """Accept a whole sequence (XYZ, then RxRyRz) while its biases stay within two budgets.

    A single token may exceed the mean of the sequence budget as long as the sum holds; that is what
    makes the rule more than token-level relaxation. Inside a rejected sequence the longest exactly
    matching prefix is still kept, since it is free and lossless.

    Attributes:
        sequence_budget: Largest sum of biases of one sequence, bins (paper 30, code 45).
        token_budget: Largest bias of one token, bins (paper 15, code 25).
        strict: Compare with < as the published code does, instead of <=.
        select: `min_sum` takes the longest accepted chain with the smallest total bias; `dfs` takes
            the first accepted candidate of each sequence in retrieval order.
    """

    sequence_budget: int = 30
    token_budget: int = 15
    strict: bool = False
    select: str = "min_sum"

    def __post_init__(self) -> None:
        _refuse_negative(sequence_budget=self.sequence_budget, token_budget=self.token_budget)
        if self.select not in ("min_sum", "dfs"):
            raise ConfigError(f"select must be 'min_sum' or 'dfs', got {self.select!r}")

    def accept(self, tree: TokenTree, target_next: IntArray, *, offset: int = 0) -> Acceptance:
        """Accept sequence by sequence, then the exactly matching prefix of the next one."""
        _check(tree, target_next)
        bias = index_bias(tree, target_next)
        found = self._accepted_paths(tree, bias, [], offset)
        if self.select == "min_sum":
            path = min(found, key=lambda nodes: (-len(nodes), int(bias[nodes].sum())))
        else:
            path = found[0]
        path = path + _exact_walk(tree, target_next, path[-1] if path else ROOT)
        return _acceptance(tree, target_next, path, offset)

    def accepts(self, bias: IntArray) -> bool:
        """Judge the token biases of one sequence."""
        total, largest = sequence_bias(bias), int(np.max(bias))
        if self.strict:
            return total < self.sequence_budget and largest < self.token_budget
        return total <= self.sequence_budget and largest <= self.token_budget

    def _accepted_paths(
        self, tree: TokenTree, bias: IntArray, path: list[int], offset: int
    ) -> list[list[int]]:
        """Return every maximal run of accepted sequences, depth first; [path] if none follows."""
        length = _sequence_length(offset + len(path))
        found: list[list[int]] = []
        for nodes in _runs(tree, path[-1] if path else ROOT, length):
            if not self.accepts(bias[nodes]):
                continue
            found.extend(self._accepted_paths(tree, bias, path + nodes, offset))
            if self.select == "dfs":
                break
        return found or [path]


def _sequence_length(dof: int) -> int:
    """Return how many tokens are left of the sequence that holds this degree of freedom.

    The gripper is no relaxed sequence: from there on the answer is 0.
    """
    for part in (ActionSequence.POSITION, ActionSequence.ROTATION):
        if dof < SEQUENCE_SLICES[part].stop:
            return int(SEQUENCE_SLICES[part].stop) - dof
    return 0


def _runs(tree: TokenTree, node: int, length: int) -> list[list[int]]:
    """Return all downward runs of exactly `length` nodes below a node, depth first."""
    if length == 0:
        return []
    runs: list[list[int]] = []
    for child in children(tree, node):
        if length == 1:
            runs.append([child])
        runs.extend([child, *rest] for rest in _runs(tree, child, length - 1))
    return runs


def _exact_walk(tree: TokenTree, target_next: IntArray, node: int) -> list[int]:
    path: list[int] = []
    while True:
        wanted = int(target_next[1 + node])
        match = [child for child in children(tree, node) if int(tree.tokens[child]) == wanted]
        if not match:
            return path
        node = match[0]
        path.append(node)


def _ancestry(tree: TokenTree, node: int) -> list[int]:
    path: list[int] = []
    while node != ROOT:
        path.append(node)
        node = int(tree.parent[node])
    return path[::-1]


def _acceptance(tree: TokenTree, target_next: IntArray, path: list[int], offset: int) -> Acceptance:
    """Join the accepted tokens with the target's next one, which ends the action at the gripper."""
    nodes = np.array(path, dtype=np.int64)
    last = path[-1] if path else ROOT
    tokens = np.asarray(tree.tokens)[nodes]
    if offset + len(path) < ACTION_DIM:
        tokens = np.append(tokens, target_next[1 + last])
    rejected = bool(children(tree, last))
    dof = min(offset + len(path), ACTION_DIM - 1)
    return Acceptance(
        tokens=tokens.astype(np.int64),
        accept_length=len(tokens),
        path=nodes,
        rejected_sequence=int(sequence_of(dof)) if rejected else None,
        bias=index_bias(tree, target_next)[nodes],
    )


def _check(tree: TokenTree, target_next: IntArray) -> None:
    if np.shape(target_next) != (1 + len(tree),):
        raise ShapeError(
            f"target_next must have shape ({1 + len(tree)},) for a tree of {len(tree)} nodes, "
            f"got {np.shape(target_next)}"
        )


def _refuse_negative(**budgets: int) -> None:
    for name, value in budgets.items():
        if value < 0:
            raise ConfigError(f"{name} must be >= 0 bins, got {value}")
