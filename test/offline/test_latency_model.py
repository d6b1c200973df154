import dataclasses
import json
from pathlib import Path

import pytest

from heisd_ros.decode.methods import METHODS
from heisd_ros.errors import ConfigError
from heisd_ros.offline import latency_model as model
from heisd_ros.types import DecodeReport, DraftKind

PAPER = Path(__file__).parents[2] / "config/profiles/a100_paper.json"


@pytest.fixture
def a100():
    return model.DeviceProfile.load(PAPER)


def test_published_rows_are_reproduced(a100):
    # 53 + 8 + 25 + 6 * 14.67 = 174.02
    base = model.autoregressive(a100)
    assert base == pytest.approx(174.0, abs=0.05)
    assert model.retrieval_chain(a100, 1.03) == pytest.approx(181.4, abs=0.05)
    assert model.drafter_tree(a100, 1.68) == pytest.approx(203.1, abs=0.1)
    rows = {3.63: 1.24, 3.80: 1.26, 3.91: 1.28}
    for accept_length, speedup in rows.items():
        measured = base / model.drafter_tree(a100, accept_length)
        assert measured == pytest.approx(speedup, abs=0.005)


def test_ablation_of_the_paper_follows_from_the_schedule_and_its_accounting(a100):
    base = model.autoregressive(a100)
    drafter = base / 1.24
    hybrid = model.hybrid_mix(0.729, 0.0, skipped=0.0, verified=base, drafter=drafter)
    assert base / hybrid == pytest.approx(1.06, abs=0.005)
    skip = model.hybrid_mix(0.729, 2 / 3, skipped=5.13, verified=base, drafter=drafter)
    assert base / skip == pytest.approx(2.10, abs=0.01)
    # With T_drafter solved from the two published rows (143.4 ms) T_ver = 130.6 ms gives 2.38x.
    parts = {"verified": 130.6, "drafter": 143.4}
    published = model.hybrid_mix(0.729, 2 / 3, skipped=5.13, **parts)
    assert base / published == pytest.approx(2.38, abs=0.01)
    # Two views and the query without the overhead: 21 ms.
    views = model.hybrid_mix(0.729, 2 / 3, skipped=21.0, **parts)
    assert base / views == pytest.approx(2.15, abs=0.01)
    # End to end, a skipped step contains vision and overhead: the same mix is 1.63x.
    honest = model.hybrid_mix(0.729, 2 / 3, skipped=74.0, **parts)
    assert base / honest == pytest.approx(1.63, abs=0.01)


def test_draft_in_prefill_beats_a_separate_tree_forward(a100):
    # E[f] at p1 = p2 = 0.8 is 0.2 * 6 + 0.8 * 0.2 * 3 = 1.68
    assert model.expected_forwards(0.8, 0.8) == pytest.approx(1.68)
    fused = model.draft_in_prefill(a100, 90, 1.68)
    separate = model.tree_after_prefill(a100, 1.68)
    released = model.released_block(a100, 0.8, 0.8)
    assert (round(fused), round(separate), round(released)) == (127, 134, 141)


def test_rejected_draft_costs_more_than_autoregression(a100):
    assert round(model.draft_in_prefill(a100, 90, 6)) == 190


def test_prefill_grows_with_the_nodes(a100):
    assert a100.prefill_with(0) == 25.0
    assert a100.prefill_with(36) == pytest.approx(28.16, abs=0.01)
    assert a100.prefill_with(90) == pytest.approx(32.89, abs=0.01)


def step(kind, **values):
    report = DecodeReport(kind, skipped=False, accept_length=1, forwards=7, stage_ms={})
    return dataclasses.replace(report, **values)


def test_projection_of_recorded_steps_uses_the_same_formulas(a100):
    plain = step(DraftKind.AR)
    assert model.project_step(plain, a100, METHODS["ar"]) == model.autoregressive(a100)
    # In a hybrid method the wrist view has been encoded before the mode is known: + 3 ms.
    hybrid = model.project_step(plain, a100, METHODS["heisd"])
    assert hybrid == pytest.approx(model.autoregressive(a100) + 3.0)
    drafted = step(DraftKind.RETRIEVAL, forwards=4, nodes=36, prefill_nodes=36)
    expected = model.draft_in_prefill(a100, 36, 3)
    assert model.project_step(drafted, a100, METHODS["heisd_paper"]) == pytest.approx(expected)
    skipped = step(DraftKind.RETRIEVAL, skipped=True, forwards=0)
    assert model.project_step(skipped, a100, METHODS["heisd_paper"]) == model.retrieval_only(a100)


def test_a_later_forward_costs_what_the_method_runs_in_it(a100):
    # 53 + 8 + 25, then two trees with the drafting before each: 2 (17.3 + 15.5).
    drafted = step(DraftKind.DRAFTER, forwards=3, nodes=98)
    assert model.project_step(drafted, a100, METHODS["spec_vla"]) == pytest.approx(151.6)
    # Two views, the query, 36 nodes in a prefill of 285, one chain behind it.
    chain = step(DraftKind.RETRIEVAL, forwards=2, nodes=41, prefill_nodes=36)
    expected = 53 + 11 + 5.13 + 25 * (1 + 36 / 285) + 15.5
    assert model.project_step(chain, a100, METHODS["heisd_lossless"]) == pytest.approx(expected)
    # HeiSD's published code asks no store below the boundary, ours drafts from it in every step.
    below = step(DraftKind.DRAFTER, forwards=1)
    assert model.project_step(below, a100, METHODS["heisd_paper"]) == pytest.approx(89.0)
    assert model.project_step(below, a100, METHODS["heisd"]) == pytest.approx(94.13)


def test_profile_without_a_figure_is_refused(tmp_path):
    content = json.loads(PAPER.read_text(encoding="utf-8"))
    del content["latency"]["tree"]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match="tree"):
        model.DeviceProfile.load(file)
    with pytest.raises(ConfigError, match="heisd profile"):
        model.DeviceProfile.load(tmp_path / "none.json")
