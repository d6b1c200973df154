"""Every kind of malformed bag of bench/reliability gets its verdict."""

import pytest

pytest.importorskip("rosbags")
pytest.importorskip("geometry_msgs")

from bench.reliability import broken_bags


@pytest.mark.parametrize("kind", broken_bags.KINDS, ids=lambda kind: kind.name)
def test_a_broken_bag_gets_its_verdict(kind, tmp_path):
    assert broken_bags.verdict(kind, tmp_path) == ""


def test_a_wrong_verdict_is_told(tmp_path):
    kind = broken_bags.Kind("whole", broken_bags.KINDS[9].make, refusal="is empty")
    assert broken_bags.verdict(kind, tmp_path) == "read 8 observations"
