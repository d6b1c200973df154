"""The import order, the style and the types are tests like any other."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command):
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_rooms_import_only_what_stands_below_them():
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing():
    pytest.importorskip("ruff")
    done = run("ruff", "check", ".")
    assert done.returncode == 0, done.stdout
    done = run("ruff", "format", "--check", ".")
    assert done.returncode == 0, done.stdout


def test_types_are_strict():
    pytest.importorskip("mypy")
    done = run("mypy")
    assert done.returncode == 0, done.stdout
