"""What is drawn around the arm, by hand."""

import json
import re

import numpy as np
import pytest
import yaml

from heisd_ros.diagnosis import scene
from heisd_ros.diagnosis.palette import AT_REST, MODES, SKIPPED, look_of
from heisd_ros.nodes.topics import ENDPOINTS
from heisd_ros.share import config_file, share_dir
from heisd_ros.types import Hits


def hits(scores, deltas, valid):
    """Neighbours whose steps all move along x by `deltas` action units."""
    count, ahead = len(scores), 2
    action = np.zeros((count, 7))
    action[:, 0] = deltas
    lookahead = np.zeros((count, ahead, 7))
    lookahead[:, :, 0] = np.asarray(deltas)[:, None]
    whole = np.zeros(count, dtype=np.int64)
    return Hits(
        np.array(scores, np.float32),
        *(whole, whole, whole),
        action,
        lookahead,
        np.array(valid, np.int64),
        np.zeros((count, 3)),
    )


def test_looks_follow_source_skip_and_rest():
    assert look_of("retrieval", skipped=False) is MODES["retrieval"]
    assert look_of("retrieval", skipped=True) is MODES[SKIPPED]
    assert look_of("retrieval", skipped=True, decided=False) is AT_REST
    assert look_of("", skipped=False) is MODES["ar"]
    assert MODES["drafter"].rgb() == pytest.approx((0xE6 / 255, 0x9F / 255, 0.0))


def test_the_trail_has_one_colour_per_point_and_drops_what_it_cannot_draw():
    trail = scene.Trail(size=2)
    trail.add(np.array([np.nan, 0, 0]), AT_REST)
    assert trail.line().points.shape == (0, 3)
    for x, look in ((0.0, AT_REST), (0.1, MODES["ar"]), (0.1, AT_REST), (0.2, MODES["drafter"])):
        trail.add(np.array([x, 0, 0]), look)
    line = trail.line()
    assert line.points[:, 0].tolist() == [0.1, 0.2]  # two newest; the same place once
    assert line.colours[0].tolist() == [*MODES["ar"].rgb(), 1.0]
    trail.clear()
    assert len(trail.line().points) == 0


def test_candidates_lead_from_here_by_their_actions_in_metres():
    lines = scene.candidate_lines(np.array([1.0, 2.0, 3.0]), hits([0.9, 0.5], [2, 1], [2, 1]), 0.05)
    # 0.05 m per unit: three steps of 0.1 m, and two of 0.05 m because one row is padding.
    assert np.allclose(lines[0].points[:, 0], [1.0, 1.1, 1.2, 1.3])
    assert np.allclose(lines[1].points[:, 0], [1.0, 1.05, 1.1])
    assert np.allclose(lines[0].points[:, 1:], [2.0, 3.0])
    assert [line.colours[0, 3] for line in lines] == pytest.approx([1.0, 0.25])
    assert scene.candidate_lines(np.array([np.nan, 0, 0]), hits([1.0], [1], [2]), 1.0) == []


def test_the_annotated_picture_keeps_every_pixel_inside_a_frame_of_the_mode():
    picture = np.random.default_rng(0).integers(0, 256, (20, 60, 3), dtype=np.uint8)
    out = scene.annotate(picture, MODES["drafter"], ["F 0.20", "a \N{SNOWMAN}"])
    assert out.shape == (20 + 8 + 24, 68, 3)
    assert np.array_equal(out[4:24, 4:64], picture)
    assert out[0, 0].tolist() == [0xE6, 0x9F, 0x00]
    strip = out[28:-1, 4:-4]
    assert strip.min() < 60
    assert strip.max() > 200  # light letters on a dark ground


def topics_in(value):
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from (key, *topics_in(entry))
    elif isinstance(value, list):
        for entry in value:
            yield from topics_in(entry)
    else:
        yield value


@pytest.mark.parametrize("name", ["foxglove_heisd.json", "heisd.rviz"])
def test_layouts_name_topics_and_fields_that_exist(name):
    text = config_file(name).read_text()
    content = json.loads(text) if name.endswith("json") else yaml.safe_load(text)
    paths = {entry for entry in topics_in(content) if str(entry).startswith("/")}
    assert len(paths) >= 3
    known = {f"/{row.node}{row.name[1:]}" if row.name[0] == "~" else row.name for row in ENDPOINTS}
    known = {entry if entry[0] == "/" else f"/{entry}" for entry in known}
    for path in paths:
        topic, _, field = path.partition(".")
        assert topic in known, path
        if topic in ("/decode_report", "/trajectory_metric") and field:
            message = {"/decode_report": "DecodeReport", "/trajectory_metric": "TrajectoryMetric"}
            fields = (share_dir() / "msg" / f"{message[topic]}.msg").read_text()
            assert re.search(rf"\b{field.split('[')[0]}\b", fields), path
