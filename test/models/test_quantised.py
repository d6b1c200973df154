"""8- and 4-bit weights by bitsandbytes, on the CPU; nothing here has run on a GPU."""

import sys

import numpy as np
import pytest
import torch

from heisd_ros.errors import ConfigError, MissingDependencyError, ModelError
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.quantised import quantise
from heisd_ros.share import weights_dir
from heisd_ros.types import Frame

SMALL = weights_dir() / "small_vla"
LAYERS = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")


def answers(target):
    """Greedy first tokens and hidden states on eight pictures."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(8):
        pictures = rng.integers(0, 256, (2, 96, 96, 3), dtype=np.uint8)
        frames = [Frame(picture, str(view), 0) for view, picture in enumerate(pictures)]
        prompt = target.prompt("pick up the black bowl and place it on the plate")
        state = np.array([0.0, 0.0, 1.0, 0.08], np.float32)
        found.append(target.start(prompt, target.encode(frames).patches, state=state))
    return found


@pytest.mark.parametrize(
    ("kind", "weight", "error"), [("int8", torch.int8, 0.05), ("nf4", torch.uint8, 0.5)]
)
def test_quantised_weights_answer_nearly_alike(kind, weight, error):
    pytest.importorskip("bitsandbytes")
    target = OpenVlaTarget.from_pretrained(SMALL, "cpu", kind)
    for block in target.network.language_model.layers:
        for name in LAYERS:
            assert block.get_submodule(name).weight.dtype is weight
    assert target.network.language_model.lm_head.weight.dtype is torch.float32
    assert target.network.projector.fc1.weight.dtype is torch.float32
    whole = OpenVlaTarget.from_pretrained(SMALL, "cpu")
    for answer, expected in zip(answers(target), answers(whole), strict=True):
        difference = (answer.hidden - expected.hidden).norm() / expected.hidden.norm()
        assert 0.0 < float(difference) < error


def test_without_the_library_the_error_says_what_to_install(checkpoint, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingDependencyError, match="pip install bitsandbytes"):
        OpenVlaTarget.from_pretrained(checkpoint, "cpu", "nf4")


def test_a_device_that_cannot_quantise_is_a_model_error(target, monkeypatch):
    pytest.importorskip("bitsandbytes")

    def refuse(*_args, **_options):
        raise NotImplementedError("no kernel")

    import bitsandbytes

    monkeypatch.setattr(bitsandbytes.nn.Int8Params, "to", refuse)
    with pytest.raises(ModelError, match="no kernel; update bitsandbytes"):
        quantise(target.network.language_model, "int8", torch.device("cpu"))


def test_unknown_and_compiled_kinds_are_refused(checkpoint, target):
    with pytest.raises(ConfigError, match="int8 or nf4; got 'int3'"):
        quantise(target.network.language_model, "int3", torch.device("cpu"))
    with pytest.raises(ConfigError, match="cannot be compiled"):
        OpenVlaTarget.from_pretrained(checkpoint, "cpu", "nf4", compiled=True)
