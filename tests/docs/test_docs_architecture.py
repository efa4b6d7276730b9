"""ARCHITECTURE.md names files, functions and packages that are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "threefold"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def defined(file: Path) -> set[str]:
    """Functions and classes of a file, and methods as Class.method."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_every_function_is_where_it_is_said_to_be():
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", TEXT)
    assert len(named) > 20
    for file, name in named:
        assert name in defined(SOURCE / file), f"{file}:{name}"


def test_every_file_of_the_map_is_there():
    rows = re.findall(r"^\| `(.*?)` \|.*\| (.*?) \|$", TEXT.partition("## One run")[0], re.MULTILINE)
    assert len(rows) > 8
    for packages, files in rows:
        for file in re.findall(r"`(.*?)`", files):
            assert (SOURCE / file).is_file() or (SOURCE / packages / file).is_file(), file


def test_every_package_is_on_the_map():
    table = TEXT.partition("## The map")[2].partition("## One run")[0]
    for package in SOURCE.iterdir():
        if package.is_dir() and (package / "__init__.py").exists():
            assert f"`{package.name}`" in table, package.name
