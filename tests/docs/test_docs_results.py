"""What the pages say about results is what the stored rows say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from threefold.results import Rows, lookup, published_cells

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_in_step_with_the_rows(generate: ModuleType) -> None:
    for page, text in generate.generated().items():
        assert (ROOT / page).read_text(encoding="utf-8") == text, f"{page}: run make docs"


def test_every_mark_is_there(generate: ModuleType) -> None:
    marks = {mark[2] for page in generate.PAGES for mark in generate.MARK.finditer((ROOT / page).read_text("utf-8"))}
    assert marks == set(generate.BLOCKS)


def test_a_mean_on_the_page_is_the_mean_of_the_rows(generate: ModuleType) -> None:
    """By hand, without the report: None in Class-IL of Table 4."""
    ends = [
        sum(record.matrix[-1]) / len(record.matrix[-1])
        for record in Rows(generate.ROWS).all()
        if (record.spec["protocol"]["name"], record.spec["scenario"]["name"]) == ("split-mnist", "class")
        and record.spec["method"]["name"] == "none"
    ]
    assert len(ends) == 20
    mean = sum(ends) / 20
    sem = (sum((end - mean) ** 2 for end in ends) / 19 / 20) ** 0.5
    published = lookup("split-mnist", "class", "none", None)
    assert published
    wanted = f"{mean:.2f} ± {sem:.2f} ✓ | {published.mean:.2f} ± {published.sem:.2f} |"
    row = next(line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if "| Baselines | None |" in line)
    assert row.endswith(wanted)


def test_each_row_says_where_it_comes_from(generate: ModuleType) -> None:
    records = list(Rows(generate.ROWS).all())
    assert len({record.key for record in records}) == len(records) >= 520
    for record in records:
        made = record.environment
        assert made["device"] == "NVIDIA H200"
        assert made["git"]
        assert made["threefold"] not in ("", "0.0.0")
        assert made["precision"] in ("fp32", "tf32")


def test_no_cell_differs_without_a_word(generate: ModuleType) -> None:
    """None does so far. One that does must be explained on the page, and then be named here."""
    found = generate.found()
    for name in generate.TABLES:
        for result in found[name].results:
            assert result.verdict is None or str(result.verdict.outcome) == "agrees", result.cell.name
    assert len(published_cells()) == 59
