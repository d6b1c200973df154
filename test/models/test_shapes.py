"""Random weights in the shape of a real model."""

import numpy as np
import pytest
import torch

from heisd_ros.errors import ConfigError
from heisd_ros.models.draft_head import EagleDraftHead
from heisd_ros.models.network import unfilled_network
from heisd_ros.models.shapes import random_draft_head, random_target, shape_config


def test_the_large_shape_has_the_parameters_of_openvla():
    network = unfilled_network(shape_config("7b"))
    millions = {
        name: sum(weight.numel() for weight in getattr(network, name).parameters()) / 1e6
        for name in ("language_model", "vision_backbone")
    }
    # Llama-2-7B with 32 064 rows: 32 (4 d^2 + 3 d f + 2 d) + d + 2 * 32064 d, d 4096, f 11008.
    assert millions["language_model"] == pytest.approx(6738.939904)
    # Blocks of 12 d^2 + 15 d (23 of d = 1024) and 4 d^2 + 2 d h + 9 d + h (26 of d = 1152,
    # h = 4304), patch embeddings of 589 d, 256 positions, 5 prefix tokens: 290.630656 + 397.200544.
    assert millions["vision_backbone"] == pytest.approx(687.8312)
    assert shape_config("7b").inserted == 256


def test_layers_can_be_left_out_and_other_shapes_are_refused():
    assert shape_config("7b", 2).llm.layers == 2
    with pytest.raises(ConfigError, match="'13b'"):
        shape_config("13b")


def test_a_random_target_answers_actions_over_a_whole_vocabulary(tmp_path, frame):
    target = random_target(shape_config("tiny", 1), tmp_path, device="cpu", max_nodes=8)
    answer = target.start(target.prompt("pick it"), target.encode([frame(1)]).patches)
    assert 31744 <= answer.target_next[0] < 32000
    # Not folded: every row of the lm_head costs what a trained one costs.
    assert target._decoder._head._weight.shape == (32064, 16)
    head = random_draft_head(target)
    assert isinstance(head, EagleDraftHead)
    head.begin()
    assert head.commit(answer.target_next, answer.hidden).tokens.shape == (1, 8)
    assert torch.isfinite(torch.as_tensor(np.asarray(answer.margin))).all()
