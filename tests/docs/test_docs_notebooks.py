"""The notebooks of docs/notebooks: their code runs, and what is stored with them is what it puts out."""

import importlib.util
import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from doc_pages import DOCS, desk, fetchable

NOTEBOOKS = DOCS / "notebooks"
NUMBER = re.compile(r"[+−-]?\d+\.?\d*(e-?\d+)?")
SMALLER = {  # how the tests shorten each notebook; where they do, numbers are not compared
    "first-steps": {'"iters": 200': '"iters": 5'},
    "own-method": {'"iters": 200': '"iters": 5'},
    "own-data-and-network": {'"iters": 150': '"iters": 5'},
    "reading-a-reproduction": {},
}


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "run_notebooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shape(outputs: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(output["output_type"], sorted(output.get("data", {}))) for output in outputs]


def text(outputs: list[dict[str, Any]]) -> str:
    return "".join("".join(output.get("text") or output["data"]["text/plain"]) for output in outputs)


def test_each_notebook_is_tested() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SMALLER)


@pytest.mark.parametrize("name", SMALLER)
def test_a_notebook_runs_and_puts_out_what_is_stored(
    name: str, runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = runner.read(NOTEBOOKS / f"{name}.ipynb")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for old in SMALLER[name]:
        assert old in json.dumps(notebook, ensure_ascii=False).replace('\\"', '"'), f"{name} has no {old} to shorten"
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "run docs/run_notebooks.py"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with desk(tmp_path) if SMALLER[name] else nullcontext() as place:
        if place:
            fetchable("mnist", place.patch)
        monkeypatch.chdir(NOTEBOOKS)
        found = runner.executed(notebook, SMALLER[name])
    for cell, outputs in zip(code, found, strict=True):
        assert shape(outputs) == shape(cell["outputs"]), f"{cell['id']}: run docs/run_notebooks.py"
        stored, now = text(cell["outputs"]), text(outputs)
        if SMALLER[name]:  # other numbers in the same words
            stored, now = ("".join(NUMBER.sub("#", each).split()) for each in (stored, now))
        assert now == stored, f"{cell['id']}: run docs/run_notebooks.py"
