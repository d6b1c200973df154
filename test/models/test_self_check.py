"""A model that ignores the picture must not start (F01)."""

import dataclasses

import numpy as np
import pytest
import torch

from heisd_ros.errors import ModelError
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.self_check import check_image_is_used
from heisd_ros.types import Verification, VisualFeatures


class Stub:
    """Answers a constant action; adds `shift` to the last token when the picture is bright."""

    def __init__(self, info, shift=0):
        self.info = dataclasses.replace(info, views=1)
        self.shift = shift
        self.bright = False
        self.count = 0

    def encode(self, frames):
        level = float(frames[0].image.mean())
        return VisualFeatures(np.full((1, 4, 2), level), np.ones(2, np.float32))

    def prompt(self, _instruction):
        return np.array([1, 29871])

    def start(self, _prompt, patches, draft=None, *, state=None):
        self.bright = bool(patches.mean() > 0)
        self.count = 1
        return self.answer(1)

    def verify(self, draft):
        self.count += 1
        return self.answer(1 + len(draft))

    def reset(self):
        self._committed = []

    def accept(self, path):
        pass

    def answer(self, rows):
        last = self.count == 7
        token = 31872 + (self.shift if last and self.bright else 0)
        return Verification(np.full(rows, token, dtype=np.int64))


def test_constant_tokens_are_refused(target):
    stub = Stub(target.info)
    with pytest.raises(ModelError, match=r"^image_ignored: .*same answer"):
        check_image_is_used(stub, stub)


def test_one_token_that_differs_by_one_id_is_enough(target):
    stub = Stub(target.info, shift=1)
    check_image_is_used(stub, stub)


def broken(checkpoint, change):
    target = OpenVlaTarget.from_pretrained(checkpoint, "cpu", self_check=False)
    with torch.no_grad():
        change(target.network)
    return target


def test_dead_vision_weights_are_refused(checkpoint):
    def change(network):
        network.vision_backbone.featurizer.patch_embed.proj.weight.zero_()
        network.vision_backbone.fused_featurizer.patch_embed.proj.weight.zero_()

    with pytest.raises(ModelError, match=r"^image_ignored: .*visual features"):
        broken(checkpoint, change).self_check()


def test_a_dead_projector_is_refused(checkpoint):
    with pytest.raises(ModelError, match=r"^image_ignored: .*same answer"):
        broken(checkpoint, lambda network: network.projector.fc3.weight.zero_()).self_check()


def test_a_sound_model_passes_and_is_left_without_a_step(target):
    target.self_check()
    assert target.committed == 0
