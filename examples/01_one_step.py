"""One decode step: the same action from 7 forwards and from 1.

A random tiny checkpoint in the OpenVLA layout decodes a picture by plain autoregression. Its own
tokens, offered as a draft, are then verified inside the prefill: one forward, the same action.
"""

import tempfile

import numpy as np

from heisd_ros.draft.tree import DraftTree
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tiny import make_tiny_checkpoint
from heisd_ros.types import Frame
from heisd_ros.verify.acceptance import ExactAcceptance

with tempfile.TemporaryDirectory() as folder:
    target = OpenVlaTarget.from_pretrained(make_tiny_checkpoint(folder), "cpu")

picture = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
features = target.encode([Frame(picture, "third_person", stamp_ns=0)])
prompt = target.prompt("pick up the black bowl")

answer = target.start(prompt, features.patches)
tokens = [int(answer.target_next[0])]
while len(tokens) < 7:
    answer = target.verify(DraftTree.chain(tokens[-1:]))
    target.accept([0])
    tokens.append(int(answer.target_next[-1]))
print("autoregressive, 7 forwards:", tokens)

tree = DraftTree.chain(tokens[:6])
answer = target.start(prompt, features.patches, tree)
accepted = ExactAcceptance().accept(tree, answer.target_next)
print("draft in prefill, 1 forward:", accepted.tokens.tolist())
assert accepted.tokens.tolist() == tokens
