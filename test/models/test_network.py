"""The training path agrees with the inference path, and weights survive writing and reading."""

import numpy as np
import pytest
import torch

from heisd_ros.draft.tree import DraftTree
from heisd_ros.models.checkpoint import Checkpoint, save_checkpoint
from heisd_ros.models.network import OpenVlaNetwork
from heisd_ros.models.tiny import make_tiny_checkpoint, tiny_config, tiny_statistics

CPU = torch.device("cpu")


def test_teacher_forcing_equals_verifying_the_same_tokens(target, frame, picture):
    prompt, tokens = target.prompt("open the drawer"), [31800, 31900, 31750]
    with torch.no_grad():
        hidden = target.network(
            target.preprocess([picture(1)])[None],
            torch.as_tensor(prompt)[None],
            torch.tensor([tokens]),
        )
    features = target.encode([frame(1)])
    answer = target.start(prompt, features.patches, DraftTree.chain(tokens[:-1]))
    torch.testing.assert_close(hidden[0], answer.hidden, atol=1e-4, rtol=1e-4)


def test_an_explicit_causal_mask_equals_the_default():
    torch.manual_seed(0)
    network = OpenVlaNetwork(tiny_config())
    embeds = torch.randn(2, 9, 16)
    mask = torch.ones(9, 9, dtype=torch.bool).tril()[None, None]
    with torch.no_grad():
        default = network.language_model.forward_sequence(embeds)
        explicit = network.language_model.forward_sequence(
            embeds, mask, torch.arange(9).expand(2, 9)
        )
    torch.testing.assert_close(default, explicit, atol=1e-5, rtol=1e-5)


def test_logits_of_some_rows_are_those_rows_of_all():
    torch.manual_seed(0)
    llama = OpenVlaNetwork(tiny_config()).language_model
    hidden = torch.randn(3, 16)
    rows = slice(31744, 32000)
    torch.testing.assert_close(llama.logits(hidden, rows), llama.logits(hidden)[:, rows])


@pytest.mark.parametrize("tie", [False, True])
def test_every_weight_learns(tie):
    torch.manual_seed(0)
    config = tiny_config(views=2, state_size=3, tie=tie, kv_heads=1)
    network = OpenVlaNetwork(config)
    hidden = network(
        torch.randn(2, 2, 6, 56, 56),
        torch.randint(3, 1000, (2, 5)),
        torch.randint(31744, 32000, (2, 7)),
        torch.randn(2, 3),
    )
    assert hidden.shape == (2, 7, 16)
    network.language_model.logits(hidden, slice(31744, 32000)).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0.0, name


@pytest.mark.parametrize("tie", [False, True])
def test_a_saved_network_loads_as_the_same_network(tmp_path, tie):
    torch.manual_seed(0)
    network = OpenVlaNetwork(tiny_config(views=2, state_size=3, tie=tie, kv_heads=1))
    save_checkpoint(tmp_path, network, statistics={"mine": tiny_statistics(3)}, dtype=torch.float32)
    loaded, _ = Checkpoint.open(tmp_path).load(CPU, torch.float32)
    assert loaded.config == network.config
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    llm = loaded.language_model
    assert (llm.lm_head.weight is llm.embed_tokens.weight) is tie


def test_tiny_checkpoint_is_small_and_reproducible(tmp_path):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    folders = [make_tiny_checkpoint(tmp_path / name) for name in "ab"]
    assert torch.equal(before, torch.get_rng_state())
    files = [sorted(file.name for file in folder.iterdir()) for folder in folders]
    assert files[0] == files[1]
    for name in files[0]:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    assert sum(file.stat().st_size for file in folders[0].iterdir()) < 3e6


def test_pixels_of_a_flat_picture_are_known_by_hand(target):
    red = np.zeros((10, 20, 3), dtype=np.uint8)
    red[..., 0] = 255
    pixels = target.preprocess([red])[0].numpy()
    # Level minus mean over deviation: e.g. 0.515 over 0.229 is 2.248908.
    expected = [2.248908, -2.035714, -1.804444, 1.0, -1.0, -1.0]
    assert pixels.shape == (6, 56, 56)
    np.testing.assert_allclose(pixels.min((1, 2)), expected, atol=1e-5)
    np.testing.assert_allclose(pixels.max((1, 2)), expected, atol=1e-5)
