"""Nothing in the decoder's forward depends on data: it can be compiled whole and captured."""

import numpy as np
import pytest
import torch

from heisd_ros.build import build_target
from heisd_ros.config import make_config
from heisd_ros.draft.tree import DraftTree, leaf_paths
from heisd_ros.models.llama import Llama
from heisd_ros.models.network import unfilled_network
from heisd_ros.models.openvla import OpenVlaTarget
from heisd_ros.models.tiny import tiny_config
from heisd_ros.models.tree_attention import tree_rows

TREE = DraftTree.from_paths([[31800, 31801, 31802], [31800, 31900], [31850]])
CHAIN = DraftTree.chain([31900, 31901, 31902, 31903, 31904])


def test_a_forward_reads_no_value_back():
    # On the meta device there are no values: reading one raises.
    llama = unfilled_network(tiny_config()).language_model
    rows = tree_rows(3, 2, TREE, 16).to(torch.device("meta"))
    embeds = torch.empty(1, 2 + len(TREE), 16, device="meta")
    with torch.inference_mode():
        hidden = llama(embeds, rows.positions, rows.slots, rows.mask, llama.new_cache(16))
    assert hidden.shape == embeds.shape
    with pytest.raises(RuntimeError, match="meta"):
        hidden.sum().item()


@pytest.fixture
def compiled(checkpoint, monkeypatch):
    """Return a target that is traced as for compiling, and the list of its graphs' row counts."""
    graphs = []
    compile_ = torch.compile

    def trace_only(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def traced(module, **options):
        return compile_(module, backend=trace_only, **options)

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", traced)
    yield OpenVlaTarget.from_pretrained(checkpoint, "cpu", compiled=True, self_check=False), graphs
    torch._dynamo.reset()


def run(target, frame, instruction, seed):
    """One step with a draft in the prefill and two trees behind it."""
    patches = target.encode([frame(seed)]).patches
    answers = [target.start(target.prompt(instruction), patches, TREE)]
    target.accept(leaf_paths(TREE)[0][:1])
    answers.append(target.verify(CHAIN))
    target.accept([0, 1])
    answers.append(target.verify(TREE))
    return answers


def test_the_decoder_is_one_graph_per_bucket_whatever_the_data(compiled, target, frame):
    traced, graphs = compiled
    for answer, expected in zip(
        run(traced, frame, "pick up the bowl", 1),
        run(target, frame, "pick up the bowl", 1),
        strict=True,
    ):
        assert answer.target_next.tolist() == expected.target_next.tolist()
        torch.testing.assert_close(answer.hidden, expected.hidden, atol=1e-4, rtol=1e-4)
    # `fullgraph` refuses a break; the prefill has one shape, both trees share the other.
    assert len(graphs) == 2
    # Other pictures, tokens and depths of the cache, and another length of prompt.
    run(traced, frame, "open the drawer", 2)
    assert len(graphs) == 2


def test_compiling_is_a_switch_that_is_off(checkpoint, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda module, **_: asked.append(module) or module)
    values = {"model.checkpoint": str(checkpoint), "model.device": "cpu"}
    build_target(make_config(values))
    assert asked == []
    target = build_target(make_config({**values, "model.compile": True}))
    assert asked == [target.network.language_model]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_captured_forward_replays_with_other_data():
    device = torch.device("cuda")
    llama = Llama(tiny_config().llm).to(device).eval().requires_grad_(False)
    cache = llama.new_cache(32)
    layouts = [tree_rows(3, 2, tree, 32).to(device) for tree in (TREE, DraftTree.chain([1] * 5))]
    inputs = [torch.randn(1, 7, 16, device=device) for _ in layouts]

    def forward(embeds, rows):
        return llama(embeds, rows.positions, rows.slots, rows.mask, cache)

    with torch.inference_mode():
        expected = [forward(*pair).clone() for pair in zip(inputs, layouts, strict=True)]
        fixed, rows = inputs[0].clone(), layouts[0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = forward(fixed, rows)
        for embeds, layout, wanted in zip(inputs, layouts, expected, strict=True):
            fixed.copy_(embeds)
            for name in ("positions", "slots", "mask"):
                getattr(rows, name).copy_(getattr(layout, name))
            graph.replay()
            torch.testing.assert_close(answer, wanted)
    assert np.isfinite(answer.cpu().numpy()).all()
