"""The demo as a newcomer runs it: separate processes over DDS, LIBERO, a report page at the end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from heisd_ros.offline.run_record import load_record

pytest.importorskip("torch")
pytest.importorskip("rclpy")
pytest.importorskip("libero.libero", reason="LIBERO is not installed: pip install 'heisd_ros[sim]'")
pytestmark = [pytest.mark.sim, pytest.mark.ros, pytest.mark.torch, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
STEPS = 12


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Both methods on task 0, cut off long before it can be solved."""
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "heisd_ros.cli", "demo", "--task", "0", "--init", "1"]
    done = subprocess.run(
        [*command, "--max-steps", str(STEPS), "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return out, done


def test_an_unsolved_run_is_reported_as_such(demo):
    out, done = demo
    assert "report" in done.stdout, done.stdout + done.stderr
    assert (out / "report.html").is_file()


@pytest.mark.parametrize("method", ["heisd", "ar"])
def test_the_arm_moved_by_twists_that_went_over_the_wire(demo, method):
    record = load_record(demo[0] / method)
    assert record.method == method
    assert not record.success
    assert len(record.rows) == record.steps == STEPS
    path = [step.position for step in record.rows]
    moved = max(abs(a - b) for a, b in zip(path[0], path[-1], strict=True))
    assert moved > 0.02, "the hand of task 0 travels centimetres in its first twelve steps"


def test_heisd_took_fewer_forwards_than_autoregression(demo):
    def forwards(method):
        return [step.forwards for step in load_record(demo[0] / method).rows]

    assert forwards("ar") == [7] * STEPS
    assert sum(forwards("heisd")) < 7 * STEPS


def test_the_recorded_bag_is_replayed_to_the_same_tokens(demo, tmp_path):
    bag = next((demo[0] / "heisd").rglob("metadata.yaml")).parent
    command = [sys.executable, "-m", "heisd_ros.cli", "replay", "--bag", str(bag)]
    for name in ("first", "second"):
        done = subprocess.run(
            [*command, "--out", str(tmp_path / name)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    first, second = ((tmp_path / n / "decisions.jsonl").read_bytes() for n in ("first", "second"))
    assert first == second
    replayed = [json.loads(line)["tokens"] for line in first.splitlines()]
    live = [list(step.tokens) for step in load_record(demo[0] / "heisd").rows]
    assert replayed == live
