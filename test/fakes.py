"""A target model that is a pure function of the token prefix."""

from __future__ import annotations

import hashlib

import numpy as np

from heisd_ros.draft.tree import DraftTree
from heisd_ros.protocols import ModelInfo
from heisd_ros.types import DraftRequest, TrajectoryMetric, Verification, VisualFeatures

FIRST_ID, LAST_ID = 31744, 31999


class HashTarget:
    """Next token = hash of (seed, committed tokens, path); counts its forwards."""

    def __init__(self, seed=0, *, spread=256, state_size=0):
        self.seed, self.spread = seed, spread
        self.forwards = 0
        self.info = ModelInfo("", "fake", 32000, 256, 1, 4, state_size, 8, 96, ("fake",))
        self._committed, self._tree, self._answers = [], None, None

    def next_token(self, tokens):
        text = f"{self.seed}:{','.join(map(str, tokens))}".encode()
        return FIRST_ID + int.from_bytes(hashlib.sha256(text).digest()[:4], "big") % self.spread

    def prompt(self, instruction):
        return np.array([1, len(instruction), 29871])

    def start(self, prompt, patches, draft=None, *, state=None):
        self._committed = []
        return self._run(draft if draft is not None else DraftTree.from_paths([]))

    def verify(self, draft):
        return self._run(draft)

    def reset(self):
        self._committed = []

    def accept(self, path):
        self._committed += [int(self._tree.tokens[node]) for node in path]

    def _run(self, tree):
        self.forwards += 1
        self._tree = tree
        below = [self._committed]
        for token, parent in zip(tree.tokens, tree.parent, strict=True):
            below.append([*below[1 + parent], int(token)])
        answers = np.array([self.next_token(tokens) for tokens in below])
        return Verification(answers)

    def greedy(self):
        tokens = []
        while len(tokens) < 7:
            tokens.append(self.next_token(tokens))
        return np.array(tokens)


def some_metric(fused=0.5, samples=15):
    return TrajectoryMetric(0.02, 0.1, fused, 1.0, 0.1, samples)


def some_request(task="pick it", history=None, embedding=None, fused=0.5):
    past = np.zeros((0, 7), dtype=np.int64) if history is None else history
    embedding = np.array([1, 0, 0, 0], np.float32) if embedding is None else embedding
    features = VisualFeatures(np.zeros((1, 2, 3), np.float32), embedding)
    return DraftRequest(features, some_metric(fused), task, past)
