"""A recorded live run becomes a run record: what went over the topics, nothing else."""

import json
import math

import numpy as np
import pytest

pytest.importorskip("rosbags")

from offline import bag_maker as maker

from heisd_ros.config import make_config, to_flat
from heisd_ros.errors import DataError
from heisd_ros.offline.bag import CONFIG_FACT, run_record_from_bag, run_records_from_bag


def test_a_recorded_run_becomes_a_record(tmp_path):
    config = make_config({"decode.method": "heisd", "trajectory.threshold": 0.31})
    custom = {CONFIG_FACT: json.dumps(to_flat(config))}
    folder = maker.write_bag(tmp_path / "run", maker.episode(), custom=custom)
    run = run_record_from_bag(folder, machine="a test", commands=("heisd demo",))
    assert (run.instruction, run.method, run.outcome) == (maker.TASK, "heisd", "success")
    assert (run.suite, run.task, run.init, run.steps) == ("libero_spatial", 2, 3, 8)
    assert (run.machine, run.commands) == ("a test", ("heisd demo",))
    assert [row.forwards for row in run.rows] == [7, 2, 7, 2, 7, 2, 7, 2]
    row = run.rows[3]
    assert row.stamp_s == pytest.approx(0.15)
    assert row.position == pytest.approx(maker.position(3))
    assert (row.gripper, row.gripper_command) == (0.0, 0.0)
    assert row.twist == (0.1, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert row.threshold == 0.31
    assert row.stage_ms == {"prefill": 4.0, "total": 9.0}
    assert row.tokens == tuple(range(31803, 31810))


def test_key_pictures_are_those_of_both_cameras_at_the_moments(tmp_path):
    run = run_record_from_bag(maker.write_bag(tmp_path / "run", maker.episode()))
    found = [(frame.moment, frame.step, frame.camera) for frame in run.frames]
    # The hand moves down all the time: nothing is lifted.
    assert found == [
        (moment, step, camera)
        for moment, step in (("start", 0), ("gripper closes", 3), ("gripper opens", 6), ("end", 7))
        for camera in ("third_person", "wrist")
    ]
    assert np.array_equal(run.frames[2].image, maker.picture(3, "third_person"))


def test_episodes_of_one_bag_are_told_apart(tmp_path):
    second = maker.START_NS + 100 * 10**9
    messages = [*maker.episode(4), *maker.episode(6, second)]
    runs = run_records_from_bag(maker.write_bag(tmp_path / "run", messages))
    assert [len(run.rows) for run in runs] == [4, 6]
    assert runs[1].rows[0].stamp_s == 0.0
    with pytest.raises(DataError, match="holds 2 episodes, there is no number 2"):
        run_record_from_bag(tmp_path / "run", episode=2)


def test_a_run_that_was_interrupted_is_not_judged(tmp_path):
    messages = [m for m in maker.episode() if not getattr(m[1], "done", False)]
    run = run_record_from_bag(maker.write_bag(tmp_path / "run", messages))
    assert (run.outcome, len(run.rows)) == ("not judged", 8)


def test_a_decision_that_failed_has_no_tokens_and_no_report(tmp_path):
    messages = list(maker.episode())
    place = next(i for i, (topic, _) in enumerate(messages) if topic == "/decode_report")
    ns = maker.START_NS
    failed = maker.report(
        ns + 7, ns, 0, decided=False, kind="", reason="decoder_failed", forwards=0, fused=math.nan
    )
    failed.stage, failed.stage_ms = [], np.zeros(0)
    messages[place] = ("/decode_report", failed)
    run = run_record_from_bag(maker.write_bag(tmp_path / "run", messages))
    assert (run.rows[0].tokens, run.rows[0].reason) == ((), "decoder_failed")
    assert len(run.reports()) == 7


def test_a_bag_without_decisions_is_no_run(tmp_path):
    folder = maker.write_bag(tmp_path / "run", maker.inputs_only(maker.episode()))
    with pytest.raises(DataError, match=r"no decode_report was recorded.*heisd replay"):
        run_record_from_bag(folder)


def test_an_older_configuration_is_read_as_far_as_it_is_known(tmp_path):
    text = json.dumps({"decode.method": "ar", "gone.option": 3})
    folder = maker.write_bag(tmp_path / "run", maker.episode(), custom={CONFIG_FACT: text})
    assert run_record_from_bag(folder).method == "ar"
