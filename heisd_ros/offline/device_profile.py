"""Measures what one device and one checkpoint take for every part of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from heisd_ros.decode.policy import NO_METRIC
from heisd_ros.draft.drafter import DrafterDraftSource, DraftHead
from heisd_ros.draft.tree import DraftTree
from heisd_ros.offline.latency_model import DeviceProfile
from heisd_ros.protocols import DemonstrationStore, ModelInfo, TargetModel, VisionEncoder
from heisd_ros.types import (
    ACTION_DIM,
    DraftRequest,
    FloatArray,
    Frame,
    Observation,
    Proprioception,
    Verified,
)
from heisd_ros.verify.acceptance import ExactAcceptance

NODE_COUNTS = (0, 6, 36, 64, 96)
"""Draft nodes in the prefill: none, one chain, and trees of K = 3 to 5."""

TREE_NODES = 36
"""Nodes of the tree that is verified on a kept K/V cache (K = 3 without merging)."""

LONGEST_CHAIN = 6
EMPTY = DraftTree.from_paths([])
EXACT = ExactAcceptance()
INSTRUCTION = "pick up the black bowl between the plate and the ramekin and place it on the plate"
STATE_RANGE = 0.1


@dataclass(frozen=True, slots=True)
class Timing:
    """Repeated measurements of one thing.

    Attributes:
        n: Repetitions after the warm-up.
        p50_ms: Median, milliseconds.
        p95_ms: 95th percentile, milliseconds.
    """

    n: int
    p50_ms: float
    p95_ms: float


def measure(
    call: Callable[[], object],
    *,
    repeats: int,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time a call; the first calls are not counted.

    Args:
        call: Must not return before the device is done.
        repeats: Measured calls, >= 1.
        warmup: Calls before them.
        clock: Returns seconds.
    """
    for _ in range(warmup):
        call()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(1e3 * (clock() - start))
    return _timing(times)


def flat_tree(first_token: int, nodes: int) -> DraftTree | None:
    """Return chains of up to six tokens, together exactly so many nodes; None for no nodes."""
    paths: list[list[int]] = []
    left = nodes
    while left > 0:
        length = min(LONGEST_CHAIN, left)
        start = first_token + len(paths)
        paths.append([start, *range(first_token, first_token + length - 1)])
        left -= length
    return DraftTree.from_paths(paths) if paths else None


class Workbench:
    """One loaded model with random but valid inputs, ready to be timed."""

    def __init__(
        self,
        target: TargetModel,
        encoder: VisionEncoder,
        *,
        image_size: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepare pictures, prompt and state; the pictures are noise, which costs the same.

        Args:
            target: The model.
            encoder: Its vision encoder.
            image_size: Side of the pictures, pixels.
            clock: Returns seconds: of the wall, or of this process's own computing.
        """
        self.clock = clock
        self._target, self._encoder = target, encoder
        self._info: ModelInfo = target.info
        rng = np.random.default_rng(0)
        pictures = rng.integers(0, 256, (2, image_size, image_size, 3), dtype=np.uint8)
        self.frames = tuple(
            Frame(picture, name, 0)
            for picture, name in zip(pictures, ("third_person", "wrist"), strict=True)
        )
        self._prompt = target.prompt(INSTRUCTION)
        self._state = (
            np.full(self._info.state_size, STATE_RANGE, dtype=np.float32)
            if self._info.state_size
            else None
        )
        self._first = self._info.vocab_size - self._info.n_bins
        self.features = encoder.encode(self.frames)

    @property
    def observation(self) -> Observation:
        """One observation for a whole policy."""
        pose = Proprioception(np.full(3, STATE_RANGE), np.array([0.0, 0.0, 0.0, 1.0]), 1.0)
        return Observation(self.frames, pose, INSTRUCTION)

    @property
    def prefix_length(self) -> int:
        """L: prompt, patches of the views the model is fed, and the state token if any."""
        patches = int(np.prod(self.features.patches.shape[:2]))
        return len(self._prompt) + patches + bool(self._info.state_size)

    def encode(self, views: int) -> None:
        """Encode so many views in one batch."""
        self._encoder.encode(self.frames[:views])

    def prefill(self, nodes: int = 0) -> None:
        """Run prompt, patches and a draft tree of so many nodes."""
        tree = flat_tree(self._first, nodes)
        self._target.start(self._prompt, self.features.patches, tree, state=self._state)

    def decode(self) -> None:
        """Decode one token after another on the present cache, as autoregression does."""
        token = self._target.verify(DraftTree.chain([self._first])).target_next[-1]
        self._target.accept([0])
        for _ in range(ACTION_DIM - 2):
            token = self._target.verify(DraftTree.chain([int(token)])).target_next[-1]
            self._target.accept([0])

    def draft_twice(self, head: DraftHead) -> tuple[float, float]:
        """Return what the first and the second draft behind a prefill took, seconds.

        The first runs the whole prompt through the draft head, the second only what was decided.
        """
        source = DrafterDraftSource(head)
        history = np.zeros((0, ACTION_DIM), dtype=np.int64)
        request = DraftRequest(self.features, NO_METRIC, "", history)
        answer = self._target.start(self._prompt, self.features.patches, state=self._state)
        last = Verified(EMPTY, answer, EXACT.accept(EMPTY, answer.target_next))
        tokens = last.accepted.tokens
        times = []
        for number in range(2):
            start = self.clock()
            if number == 0:
                source.begin(request, source.draft(request))
            tree = source.propose(tokens, last)
            times.append(self.clock() - start)
            answer = self._target.verify(tree)
            last = Verified(tree, answer, EXACT.accept(tree, answer.target_next))
            self._target.accept(last.accepted.path)
            tokens = np.concatenate((tokens[:-1], last.accepted.tokens))
        return times[0], times[1]

    def verify_tree(self) -> None:
        """Verify a tree on the present cache; nothing of it is kept."""
        tree = flat_tree(self._first, TREE_NODES)
        if tree is not None:
            self._target.verify(tree)
            self._target.accept([])


def measure_parts(bench: Workbench, *, repeats: int) -> dict[str, Timing]:
    """Return the timing of every part, by name; `decode` is one token."""
    timed = partial(measure, repeats=repeats, clock=bench.clock)
    found = {}
    views = bench.features.patches.shape[0]
    if views == 1:
        found["vision"] = timed(lambda: bench.encode(1))
    found["vision_two_views"] = timed(lambda: bench.encode(2))
    found.setdefault("vision", found["vision_two_views"])
    for nodes in NODE_COUNTS:
        found[f"prefill_{nodes}"] = timed(partial(bench.prefill, nodes))
    found["decode"] = _decode(bench, repeats)
    bench.prefill()
    found["tree"] = timed(bench.verify_tree)
    return found


def measure_drafting(bench: Workbench, head: DraftHead, *, repeats: int) -> dict[str, Timing]:
    """Return the timing of the first and of a further draft of an action."""
    for _ in range(3):
        bench.draft_twice(head)
    times = 1e3 * np.array([bench.draft_twice(head) for _ in range(repeats)])
    return {
        name: _timing(column)
        for name, column in zip(("drafting_first", "drafting_next"), times.T, strict=True)
    }


def measure_retrieval(
    bench: Workbench, store: DemonstrationStore, task: str, *, k: int, repeats: int
) -> Timing:
    """Return the timing of one query with a random unit vector."""
    query = np.random.default_rng(0).standard_normal(len(bench.features.embedding))
    unit = (query / np.linalg.norm(query)).astype(np.float32)
    return measure(lambda: store.search(unit, task, k), repeats=repeats, clock=bench.clock)


def to_profile(
    parts: dict[str, Timing], *, name: str, source: str, prefix_length: int
) -> DeviceProfile:
    """Return the profile of the medians; `drafting` is the mean of a first and a further draft."""
    return DeviceProfile(
        name=name,
        source=source,
        overhead=parts["overhead"].p50_ms,
        vision=parts["vision"].p50_ms,
        vision_two_views=parts["vision_two_views"].p50_ms,
        prefill=parts["prefill_0"].p50_ms,
        decode=parts["decode"].p50_ms,
        tree=parts["tree"].p50_ms,
        retrieval=parts["retrieval"].p50_ms,
        drafting=(parts["drafting_first"].p50_ms + parts["drafting_next"].p50_ms) / 2,
        prefix_length=prefix_length,
        prefill_by_nodes=tuple((n, parts[f"prefill_{n}"].p50_ms) for n in NODE_COUNTS),
    )


def _decode(bench: Workbench, repeats: int) -> Timing:
    """Time six tokens after each prefill, which itself is not counted."""
    times = []
    for _ in range(repeats):
        bench.prefill()
        start = bench.clock()
        bench.decode()
        times.append(1e3 * (bench.clock() - start) / (ACTION_DIM - 1))
    return _timing(times)


def _timing(times_ms: Sequence[float] | FloatArray) -> Timing:
    return Timing(
        len(times_ms), float(np.percentile(times_ms, 50)), float(np.percentile(times_ms, 95))
    )
