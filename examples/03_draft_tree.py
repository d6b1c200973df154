"""The sequence-wise draft tree: two retrieved actions become four candidates and 18 nodes."""

import numpy as np

from heisd_ros.draft.tree import DraftTree
from heisd_ros.verify.acceptance import SequenceRelaxedAcceptance

retrieved = np.array(
    [
        [31800, 31810, 31820, 31872, 31872, 31880, 31744],
        [31805, 31812, 31744, 31860, 31872, 31890, 31744],
    ]
)
tree = DraftTree.from_chains(retrieved)
print(f"{len(tree)} nodes, paths:")
for path in tree.paths():
    print("  ", tree.tokens[path].tolist())

# A target that wants the first action's position and the second one's rotation, a few bins off.
wanted = np.array([31803, 31809, 31825, 31862, 31870, 31889, 31744])
answers = np.array([wanted[0], *wanted[1 + tree.depth]])
accepted = SequenceRelaxedAcceptance().accept(tree, answers)
print("accepted:", accepted.tokens.tolist(), "biases:", accepted.bias.tolist())
assert accepted.accept_length == 7
