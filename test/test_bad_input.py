"""docs/bad_input.md names a test for every line, and every one of them exists."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "bad_input.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def functions(path):
    return {
        node.name
        for node in ast.walk(ast.parse((TESTS / path).read_text()))
        if isinstance(node, ast.FunctionDef)
    }


def rows():
    """Rows of all tables, as three cells."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("input", "---")]


def test_every_line_names_tests_that_exist():
    assert len(rows()) > 30
    for row in rows():
        assert len(row) == 3, row
        named = NAMED.findall(row[2])
        assert named, row[0]
        assert NAMED.sub("", row[2]).strip() == ""
        missing = [f"{path}::{name}" for path, name in named if name not in functions(path)]
        assert not missing
