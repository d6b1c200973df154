import json

import numpy as np
import pytest

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
