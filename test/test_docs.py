"""The documents say what is true: names exist, defaults agree, examples run."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = re.findall(r"`(heisd_ros\.[\w.]+)`", (ROOT / "docs" / "equations.md").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_equations_table_exists(name):
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[split:]:
            found = getattr(found, attribute)
        return
    pytest.fail(f"{name} cannot be imported")


def test_the_equations_table_is_not_empty():
    assert len(NAMES) > 15


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_every_example_runs(example):
    done = subprocess.run(
        [sys.executable, example],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
