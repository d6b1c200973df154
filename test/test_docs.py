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


def test_the_equations_table_has_every_equation_and_every_part_of_the_algorithm():
    page = (ROOT / "docs" / "equations.md").read_text()
    parts = [
        cell.strip() for row in re.findall(r"^\| (.*?) \|", page, re.M) for cell in row.split(",")
    ]
    assert {f"Eq. {number}" for number in range(1, 9)} <= set(parts)
    stages = set(re.findall(r"^\| Algorithm 1, (\w+) \|", page, re.M))
    assert stages == {"online", "offline", "feedback"}
    assert len(NAMES) == len(re.findall(r"^\| .* \| `", page, re.M)) > 40


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


def test_every_reason_has_a_row_that_says_what_to_do():
    from heisd_ros.command.reasons import Reason
    from heisd_ros.decode import assembler

    page = (ROOT / "docs" / "real_arm.md").read_text()
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    waiting = {
        value
        for name, value in vars(assembler).items()
        if name.isupper() and isinstance(value, str)
    }
    assert {reason.value for reason in Reason} <= named
    assert waiting <= named


@pytest.mark.parametrize("page", ["real_arm.md", "security_ros.md"])
def test_files_that_a_page_names_exist(page):
    text = (ROOT / "docs" / page).read_text()
    for name in re.findall(r"`?(config/[\w./]+|docs/[\w./]+)`?", text):
        assert (ROOT / name).is_file(), name
    for name in re.findall(r"heisd_ros (\w+\.launch\.py)", text):
        assert (ROOT / "launch" / name).is_file(), name


def test_parameters_that_the_page_on_real_arms_names_exist():
    from heisd_ros.config import HeisdConfig, parameter_names

    known = parameter_names()
    sections = {name.split(".")[0] for name in known}
    text = (ROOT / "docs" / "real_arm.md").read_text()
    named = {n for n in re.findall(r"`(\w+\.\w+)`", text) if n.split(".")[0] in sections}
    assert len(named) > 15
    assert named <= set(known)
    assert HeisdConfig().skip.rule == "never"
