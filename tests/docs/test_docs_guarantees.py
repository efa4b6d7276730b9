"""docs/guarantees.md: every test that a promise names is there, and every promise names one."""

import ast
import re
from pathlib import Path

from doc_pages import DOCS

PAGE = (DOCS / "guarantees.md").read_text(encoding="utf-8")
ROOT = DOCS.parent
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]


def names_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_promise_names_a_test() -> None:
    assert len(ROWS) > 20
    for row in ROWS:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+` *(,|\|)", row), row


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) >= len(ROWS)
    missing = [f"{file}::{test}" for file, test in named if test not in names_in(ROOT / file)]
    assert missing == []
