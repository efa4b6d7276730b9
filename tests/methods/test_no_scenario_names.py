"""A scenario is a value: no method and no part of the engine asks for its name."""

import ast
from pathlib import Path

import pytest

import threefold
from threefold.scenarios import SCENARIOS

SOURCE = Path(threefold.__file__).parent
FILES = sorted(path for package in ("methods", "engine") for path in (SOURCE / package).rglob("*.py"))
NAMES = {*SCENARIOS, *(scenario.title for scenario in SCENARIOS.values())}


def names_in(node):
    """Names of scenarios written out below this node, and questions for a scenario's name or title."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and inner.value in NAMES:
            yield repr(inner.value)
        if isinstance(inner, ast.Attribute) and inner.attr in ("name", "title"):
            asked = inner.value
            last = asked.attr if isinstance(asked, ast.Attribute) else getattr(asked, "id", "")
            if "scenario" in last.lower():
                yield ast.unparse(inner)
        if isinstance(inner, ast.Name) and inner.id in ("scenario_name", "SCENARIOS"):
            yield inner.id


def compared(source):
    """Where a scenario's name is compared, matched, or used as a key of a table of branches."""
    found = []
    for node in ast.walk(ast.parse(source)):
        tested = []
        if isinstance(node, ast.Compare):
            tested = [node]
        elif isinstance(node, ast.Match):
            tested = [node.subject, *(case.pattern for case in node.cases)]
        elif isinstance(node, ast.Subscript):
            tested = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "endswith", "__eq__", "index", "find"):
                tested = [node]
        elif isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if len(keys & NAMES) > 1:
                found.append((node.lineno, ast.unparse(node)))
        found += [(node.lineno, name) for part in tested for name in names_in(part)]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_file_compares_a_scenarios_name(path):
    assert compared(path.read_text(encoding="utf-8")) == []


def test_there_are_files_to_read():
    assert {"replay.py", "exemplars.py", "stack.py", "train.py"} <= {path.name for path in FILES}


@pytest.mark.parametrize(
    "source",
    [
        "if setting.outputs.scenario.name == other: pass",
        "if scenario.title in known: pass",
        "x = 'class' if kind == 'class' else 0",
        "if kind in ('task', 'domain'): pass",
        "match kind:\n    case 'Task-IL': pass",
        "units = {'task': 1, 'class': 2}[kind]",
        "if outputs.scenario.name.startswith(x): pass",
        "x = branches[outputs.scenario.name]",
        "if scenario is SCENARIOS['task']: pass",
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert compared(source)


def test_the_search_lets_values_pass():
    assert not compared("if outputs.scenario.task_known and task == 0: x = f'{outputs.scenario.title} it is'")
