import json

import numpy as np
import pytest

from heisd_ros.errors import ConfigError
from heisd_ros.offline.device_profile import flat_tree, measure
from heisd_ros.offline.latency_model import DeviceProfile


@pytest.mark.parametrize("nodes", [1, 6, 36, 64, 96])
def test_flat_tree_has_exactly_the_nodes_asked_for(nodes):
    tree = flat_tree(31744, nodes)
    assert len(tree) == nodes
    assert tree.depth.max() <= 5
    assert tree.tokens.min() >= 31744
    assert tree.tokens.max() <= 31999
    assert flat_tree(31744, 0) is None


def test_warm_up_is_not_measured_and_the_median_is_taken():
    # The clock gives start and end of each measured call: 1, 2 and 9 ms.
    ticks = iter([0.0, 0.001, 1.0, 1.002, 2.0, 2.009])
    calls = []
    timing = measure(lambda: calls.append(1), repeats=3, warmup=2, clock=lambda: next(ticks))
    assert len(calls) == 5
    assert timing.p50_ms == pytest.approx(2.0)
    # 95th percentile of 1, 2, 9: 2 + 0.9 * 7
    assert timing.p95_ms == pytest.approx(8.3)


@pytest.mark.torch
def test_measured_profile_of_a_tiny_checkpoint_explains_its_own_step(tmp_path):
    pytest.importorskip("torch")
    from heisd_ros.models.tiny import make_tiny_checkpoint
    from heisd_ros.offline.profile import main

    checkpoint = make_tiny_checkpoint(tmp_path / "tiny")
    out = tmp_path / "profile.json"
    settings = ["--set", "model.self_check=false", "--set", "model.threads=1"]
    command = ["--checkpoint", str(checkpoint), "--out", str(out), "--repeats", "5"]
    assert main([*command, *settings]) == 0
    profile = DeviceProfile.load(out)
    content = json.loads(out.read_text(encoding="utf-8"))
    assert profile.prefix_length > 16
    assert all(np.isfinite(entry["p50_ms"]) for entry in content["measured"].values())
    # Model and measurement are the same forwards: they differ by noise and a little glue.
    check = content["check"]
    assert 0.3 < check["ar_by_the_model_ms"] / check["ar_step_ms"] < 3.0
    assert content["provenance"]["command"].startswith("heisd profile --checkpoint")
    assert {f"prefill_{n}" for n in (0, 6, 36, 64, 96)} < set(content["measured"])
    assert profile.prefill_with(36) == content["measured"]["prefill_36"]["p50_ms"]
    assert profile.drafting > 0.0
    assert "cpu" in content["hardware"]


@pytest.mark.torch
def test_a_shape_is_profiled_with_random_weights_and_as_many_layers_as_asked(tmp_path):
    pytest.importorskip("torch")
    from heisd_ros.offline.profile import main

    out = tmp_path / "profile.json"
    command = ["--shape", "tiny", "--layers", "3", "--repeats", "2", "--out", str(out)]
    assert main([*command, "--set", "model.threads=1"]) == 0
    content = json.loads(out.read_text(encoding="utf-8"))
    assert content["shape"] == {"name": "tiny", "layers": 3}
    assert DeviceProfile.load(out).decode > 0.0
    with pytest.raises(ConfigError, match="not both"):
        main([*command, "--checkpoint", str(tmp_path)])


def test_prefills_between_measured_node_counts_lie_on_a_line(tmp_path):
    values = dict.fromkeys(("overhead", "vision", "vision_two_views", "decode", "tree"), 1.0)
    values |= {"name": "x", "source": "y", "retrieval": 1.0, "drafting": 0.0, "prefill": 20.0}
    file = tmp_path / "profile.json"

    def loaded(**more):
        content = {"latency": {**values, "prefix_length": 100, **more}}
        file.write_text(json.dumps(content), encoding="utf-8")
        return DeviceProfile.load(file)

    # Without points 20 (1 + 50/100); with them half way between 20 and 24.
    assert loaded().prefill_with(50) == pytest.approx(30.0)
    measured = loaded(prefill_by_nodes=[[0, 20.0], [100, 24.0]])
    assert measured.prefill_with(50) == pytest.approx(22.0)
