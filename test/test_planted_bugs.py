"""The tests notice planted bugs; the whole list is `python test/planted_bugs.py`."""

import pytest
from planted_bugs import BUGS, ROOT, Workshop

CORE = [bug for bug in BUGS if bug.core]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("workshop") / "copy")


def test_without_a_bug_the_asked_tests_pass(workshop):
    pytest.importorskip("torch")
    assert workshop.passes(*(bug.test for bug in CORE)) == 0


@pytest.mark.parametrize("bug", CORE, ids=lambda bug: bug.name)
def test_bug_is_noticed(workshop, bug):
    if bug.file.startswith("models/"):
        pytest.importorskip("torch")
    assert workshop.notices(bug)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_can_be_planted(bug):
    source = (ROOT / "heisd_ros" / bug.file).read_text(encoding="utf-8")
    assert source.count(bug.right) == 1
    assert bug.wrong != bug.right
    path, _, name = bug.test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
