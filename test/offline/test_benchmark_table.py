import json
import math

import numpy as np
import pytest

from heisd_ros.errors import DataError
from heisd_ros.offline.benchmark_table import BEGIN, END, fill_block, markdown
from heisd_ros.offline.latency_model import DeviceProfile
from heisd_ros.offline.records import EpisodeKey, EpisodeRecord, StepRecord, write_record
from heisd_ros.offline.results import ALL_TASKS, read_results, write_results
from heisd_ros.offline.run_summary import summarise_run
from heisd_ros.types import DecodeReport, DraftKind

pytest.importorskip("pyarrow")
# Round numbers: AR = 10 + 5 + 20 + 6 * 3 = 53 ms
PROFILE = DeviceProfile("round", "made up", 10.0, 5.0, 7.0, 20.0, 3.0, 4.0, 1.0, 0.0, 100)
NONE = np.zeros(0, dtype=np.int64)
CONFIG = {
    "simulation.image_size": 96,
    "trajectory.threshold": 0.2,
    "trajectory.window": 15,
    "trajectory.radius": "centroid",
    "trajectory.displacement": "path",
    "retrieval.top_k": 5,
    "verify.sequence_budget": 30,
    "verify.token_budget": 15,
}


def step(kind, *, forwards, nodes=0, accept=1, tokens=31800, shadow=None):
    report = DecodeReport(
        kind, False, accept, forwards, {"total": 10.0}, nodes=nodes, prefill_nodes=nodes
    )
    shadows = NONE if shadow is None else np.array(shadow)
    values = NONE if shadow is None else np.array([0.3, 0.0, 0.4, 0.0, 0.0, 0.2, 1.0])
    return StepRecord(report, np.full(7, tokens), np.zeros(7), np.zeros(3), None, shadows, values)


def add(folder, method, init, rows, *, success=True, crash="", task=0):
    key = EpisodeKey("libero_spatial", task, init, method)
    record = EpisodeRecord(key, f"task {task}", success, len(rows), crash, 1.0, tuple(rows))
    write_record(folder / "episodes", record)


@pytest.fixture
def run(tmp_path):
    settings = {"suite": "libero_spatial", "max_steps": 220, "shadow": True, "stores": {}}
    facts = {"command": "heisd evaluate", "commit": "abc", "date": "d", "machine": "m"}
    about = {"settings": {**settings, "config": CONFIG}, "runs": [{**facts, "versions": "v"}]}
    (tmp_path / "run.json").write_text(json.dumps(about))
    plain = step(DraftKind.AR, forwards=7)
    add(tmp_path, "ar", 0, [plain, plain])
    add(tmp_path, "ar", 1, [plain], success=False)
    add(tmp_path, "ar", 2, [plain], success=True)
    # 6 of 7 tokens differ by 4, one by 10; then all equal but the gripper, which flips.
    near = [31800 + 10] + [31800 + 4] * 5 + [31800]
    flip = [31800] * 6 + [31800 + 128]
    drafted = step(DraftKind.RETRIEVAL, forwards=4, nodes=30, accept=4, shadow=near)
    add(tmp_path, "heisd", 0, [drafted, step(DraftKind.AR, forwards=7, shadow=flip)])
    add(tmp_path, "heisd", 1, [drafted], success=True)
    add(tmp_path, "heisd", 2, [drafted], success=False, crash="ModelError: x")
    return tmp_path


def row_of(results, method, task=ALL_TASKS):
    return next(row for row in results.rows if (row.method, row.task) == (method, task))


def test_crashes_are_in_no_rate(run):
    results = summarise_run(run, PROFILE)
    heisd = row_of(results, "heisd")
    assert (heisd.successes, heisd.episodes, heisd.crashes) == (2, 2, 1)
    assert row_of(results, "ar").successes == 2
    assert row_of(results, "ar", task=0).episodes == 3


def test_counts_and_projection_by_hand(run):
    results = summarise_run(run, PROFILE)
    heisd = row_of(results, "heisd")
    # Forwards 4, 7, 4; accept length only over the two drafted steps.
    assert heisd.forwards == pytest.approx(5.0)
    assert heisd.accept_length == pytest.approx(4.0)
    assert heisd.mode_share["retrieval"] == pytest.approx(2 / 3)
    # Drafted: 10 + 7 + 1 + 20 * 1.3 + 3 * 4 = 56; AR step of a hybrid: 10 + 7 + 20 + 18 = 55
    assert heisd.projected_ms == pytest.approx((56 + 55 + 56) / 3)
    lean = row_of(summarise_run(run, PROFILE, overhead_ms=4.0), "heisd")
    assert lean.lean_ms == pytest.approx((50 + 49 + 50) / 3)
    assert row_of(results, "ar").projected_ms == pytest.approx(53.0)
    assert heisd.steps == pytest.approx(1.5)


def test_deviation_from_the_shadow_by_hand(run):
    found = row_of(summarise_run(run), "heisd").deviation
    # Two steps near: L1 = 10 + 5 * 4 = 30, Linf = 10; one step flipped: 0 and 0.
    assert found.steps == 3
    assert found.l1 == pytest.approx(20.0)
    assert found.linf == pytest.approx(20 / 3)
    assert found.gripper_share == pytest.approx(1 / 3)
    assert found.equal_share == 0.0
    # |(0.3, 0, 0.4)| and |(0, 0, 0.2)|.
    assert (found.translation, found.rotation) == (pytest.approx(0.5), pytest.approx(0.2))
    assert row_of(summarise_run(run), "ar").deviation is None


def test_pairs_leave_out_initial_states_with_a_crash(run):
    pair = summarise_run(run).pairs[0]
    assert (pair.method, pair.pairs) == ("heisd", 2)
    assert (pair.only_base, pair.only_method, pair.p) == (0, 1, 1.0)


def test_identical_episodes_are_counted(run):
    plain = step(DraftKind.RETRIEVAL, forwards=1, nodes=30, accept=7)
    add(run, "heisd_lossless", 0, [plain, plain])
    add(run, "heisd_lossless", 1, [step(DraftKind.AR, forwards=7, tokens=31801)], success=False)
    results = summarise_run(run)
    assert row_of(results, "heisd_lossless").same_as_base == 1
    assert row_of(results, "ar").same_as_base == 3


def test_results_survive_their_file_and_nan_becomes_null(run, tmp_path):
    results = summarise_run(run)
    write_results(results, tmp_path / "results.json")
    assert '"projected_ms": null' in (tmp_path / "results.json").read_text()
    back = read_results(tmp_path / "results.json")
    assert math.isnan(row_of(back, "ar").projected_ms)
    assert row_of(back, "heisd").deviation == row_of(results, "heisd").deviation
    assert markdown(back) == markdown(results)


def test_tables_say_counts_intervals_and_origin(run):
    text = markdown(summarise_run(run, PROFILE))
    assert "| `ar` | 2/3 = 67 % | 21-94 % | 0 |" in text
    assert "2/2 (+1 crashed)" in text
    assert "53 (1.00x)" in text
    assert "- m; v. Commands (commit, start):\n  - `heisd evaluate` (abc, d)" in text


def test_a_solved_task_costs_its_steps_times_a_step(run):
    add(run, "ar", 3, [step(DraftKind.AR, forwards=7)] * 199, success=False)
    add(run, "jacobi", 0, [step(DraftKind.AR, forwards=7)] * 50, success=True)
    text = markdown(summarise_run(run, PROFILE, overhead_ms=10.0))
    assert "s per solved task, 10 ms overhead" in text
    line = next(x for x in text.splitlines() if x.startswith("| `jacobi` |"))
    # 50 steps of 53 ms are 2.65 s; AR's two solved ones have 1.5 steps of 53 ms, 0.08 s.
    assert line.endswith("| 53 (1.00x) | 53 (1.00x) | 2.6 (0.03x) |")


def test_open_loop_replay_has_no_decoding_figures(run):
    report = DecodeReport(DraftKind.RETRIEVAL, True, 0, 0, {})
    replayed = StepRecord(report, NONE, np.zeros(7), np.zeros(3), None, NONE)
    add(run, "replay", 0, [replayed], success=False)
    line = next(x for x in markdown(summarise_run(run, PROFILE)).splitlines() if "`replay`" in x)
    assert line == "| `replay` | 0/1 = 0 % | 0-79 % | 0 | 1 | - | - | - | - | - / - | - | - | - |"


def test_page_keeps_its_prose(run):
    page = f"Before\n{BEGIN.format(name='a')}\nold\n{END.format(name='a')}\nAfter\n"
    filled = fill_block(page, "a", "| new |\n")
    assert filled == page.replace("old", "| new |")
    assert fill_block(filled, "a", "| new |") == filled
    with pytest.raises(DataError, match="results b"):
        fill_block(page, "b", "x")


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="heisd evaluate"):
        summarise_run(tmp_path)


def test_plots_are_written(run):
    pytest.importorskip("matplotlib")
    from heisd_ros.offline.benchmark_plots import write_plots

    paths = write_plots(summarise_run(run, PROFILE), run)
    assert [path.name for path in paths] == ["success.png", "cost.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
