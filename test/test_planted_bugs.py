"""The tests notice planted bugs; the whole list is `python test/planted_bugs.py`."""

import subprocess
import sys

import pytest
from planted_bugs import BUGS, ROOT


def test_core_of_the_planted_bugs_is_noticed():
    pytest.importorskip("torch")
    command = [sys.executable, "test/planted_bugs.py", "--core"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    core = sum(bug.core for bug in BUGS)
    assert done.stdout.splitlines()[-1] == f"{core} of {core} bugs noticed"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_can_be_planted_and_has_its_test(bug):
    source = (ROOT / "heisd_ros" / bug.file).read_text(encoding="utf-8")
    assert source.count(bug.right) == 1
    assert bug.wrong != bug.right
    path, _, name = bug.test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
