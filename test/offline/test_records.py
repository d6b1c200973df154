import math

import numpy as np
import pytest

from heisd_ros.errors import DataError
from heisd_ros.offline.records import (
    EpisodeKey,
    EpisodeRecord,
    StepRecord,
    read_record,
    read_records,
    write_record,
)
from heisd_ros.types import DecodeReport, DraftKind, TrajectoryMetric

pytest.importorskip("pyarrow")
NO_TOKENS = np.zeros(0, dtype=np.int64)


def some_record(*, crash="", rows=()):
    key = EpisodeKey("libero_spatial", 2, 7, "heisd")
    return EpisodeRecord(key, "pick up the bowl", not crash, len(rows), crash, 1.5, rows)


def some_row():
    report = DecodeReport(
        DraftKind.RETRIEVAL,
        skipped=False,
        accept_length=4,
        forwards=4,
        stage_ms={"vision": 1.0, "total": 9.0},
        fused=0.25,
        nodes=36,
        top_score=0.97,
        reason="",
        vetoes=("near", "agreed"),
        scores=(0.97, 0.5),
        spread=4.5,
        gripper_consensus=0.5,
    )
    metric = TrajectoryMetric(0.02, 0.1, 0.25, 0.9, 0.2, 15)
    tokens = np.arange(31744, 31751)
    return StepRecord(report, tokens, np.linspace(-1, 1, 7), np.ones(3), metric, tokens + 1)


def test_an_episode_survives_the_file(tmp_path):
    path = write_record(tmp_path, some_record(rows=(some_row(),)))
    assert path.name == "libero_spatial-task02-init07-heisd.parquet"
    back = read_record(path)
    assert back.key == EpisodeKey("libero_spatial", 2, 7, "heisd")
    assert (back.success, back.steps, back.crash, back.wall_s) == (True, 1, "", 1.5)
    assert back.rows[0].report == some_row().report
    assert back.rows[0].metric == some_row().metric
    for name in ("tokens", "values", "position", "shadow_tokens"):
        np.testing.assert_array_equal(getattr(back.rows[0], name), getattr(some_row(), name))


def test_a_record_of_an_older_version_knows_nothing_of_the_neighbours(tmp_path):
    from pyarrow import parquet

    path = write_record(tmp_path, some_record(rows=(some_row(),)))
    columns = ["vetoes", "scores", "spread", "gripper_consensus"]
    parquet.write_table(parquet.read_table(path).drop_columns(columns), path)
    report = read_record(path).rows[0].report
    assert (report.top_score, report.vetoes, report.scores) == (0.97, (), ())
    assert math.isnan(report.spread)
    assert math.isnan(report.gripper_consensus)


def test_step_without_pose_and_shadow_survives_too(tmp_path):
    nan = np.full(3, math.nan)
    row = StepRecord(some_row().report, np.zeros(7, int), np.zeros(7), nan, None, NO_TOKENS)
    back = read_record(write_record(tmp_path, some_record(rows=(row,)))).rows[0]
    assert back.metric is None
    assert back.shadow_tokens.shape == (0,)
    assert np.isnan(back.position).all()


def test_crash_without_a_step_is_kept(tmp_path):
    path = write_record(tmp_path, some_record(crash="ModelError: no"))
    assert read_record(path).crash == "ModelError: no"
    assert [record.success for record in read_records(tmp_path, rows=False)] == [False]


def test_foreign_file_is_refused_by_name(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match=r"x\.parquet"):
        list(read_records(tmp_path))
