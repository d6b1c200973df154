"""docs/distributed.md: its arithmetic is right, its inputs are ours, its commands exist."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from heisd_ros.config import HeisdConfig

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
LINES = [
    match
    for block in re.findall(r"<!-- arithmetic -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    for match in re.findall(r"^\| (.+?) \| `([-+*/(). 0-9e]+)` \| ([0-9.]+) (\S+) \|$", block, re.M)
]


def result(what):
    (found,) = [float(value) for name, _, value, _ in LINES if what in name]
    return found


def test_every_line_of_arithmetic_is_found():
    blocks = re.findall(r"<!-- arithmetic -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    rows = sum(block.count("\n|") - 1 for block in blocks)
    assert len(LINES) == rows >= 20


@pytest.mark.parametrize(("what", "how", "value", "unit"), LINES, ids=[row[0] for row in LINES])
def test_a_line_of_arithmetic_is_right_to_its_last_digit(what, how, value, unit):
    computed = eval(how, {"__builtins__": {}})  # digits and operators alone, see the pattern
    digits = len(value.partition(".")[2])
    assert round(computed, digits) == pytest.approx(float(value), abs=0.51 * 10**-digits)


def test_the_time_outs_are_those_of_the_configuration():
    retrieval = HeisdConfig().retrieval
    assert f"`retrieval.timeout_s` ({retrieval.timeout_s:g} s)" in PAGE
    assert f"`retrieval.pause_s` ({retrieval.pause_s:g} s)" in PAGE
    assert f"`command.control_hz` {HeisdConfig().command.control_hz:g}" in PAGE


def test_a_row_is_no_larger_than_the_page_says(tmp_path):
    pytest.importorskip("qdrant_client")
    from qdrant_client import grpc as pb
    from qdrant_client import models
    from qdrant_client.conversions.conversion import RestToGrpc

    from heisd_ros.demonstrations.qdrant_export import Export
    from heisd_ros.demonstrations.qdrant_payload import payload_of
    from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store

    store = synthetic_store(tmp_path / "s", SyntheticSpec(1, 1, 20, 16))
    task = store.tasks[0]
    steps = store.rows_of(task)
    export = Export(store.manifest, "heisd")
    payload = payload_of(
        export, "pick up the black bowl and place it on the plate", steps, 3, gripper=0.5
    )
    assert 500 < len(json.dumps(payload)) <= 1000

    query = pb.QueryPoints(
        collection_name="heisd",
        query=pb.Query(nearest=pb.VectorInput(dense=pb.DenseVector(data=np.ones(4352)))),
        limit=5,
    )
    hit = models.ScoredPoint(id=3, version=0, score=1.0, payload=payload)
    answer = pb.QueryResponse(result=[RestToGrpc.convert_scored_point(hit)] * 5)
    size = query.ByteSize() + answer.ByteSize()
    assert size == pytest.approx(result("asked and answered"), rel=0.05)


def test_every_option_of_the_commands_exists():
    import argparse

    from heisd_ros.offline.copy_db import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    commands = re.findall(r"heisd copy-db (to-qdrant (?:[^\n\\]|\\\n)+)", PAGE)
    assert len(commands) == 2
    for command in commands:
        words = command.replace("\\\n", " ").partition("#")[0].split()
        options = parser.parse_args(words)
        assert (options.replicas, options.confirmed, options.alias) == (2, 2, "heisd")
    for name in re.findall(r"`(--[a-z-]+)`", PAGE):
        assert any(name in action.option_strings for action in parser._actions), name
