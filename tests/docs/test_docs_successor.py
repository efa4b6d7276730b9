"""What the pages and the reports say of the paper's successor, of made-up rows: none that are stored."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from fake_sections import a_cell, a_result, stream

from threefold.experiments import Section
from threefold.experiments.spec import STORED, SUCCESSORS
from threefold.report import render
from threefold.report.agreement import Agreement
from threefold.report.charts import charts
from threefold.report.paper_statements import statements
from threefold.results import SUCCESSOR, Rows

ROOT = Path(__file__).parent.parent.parent
SETTINGS = {"iters": 2000, "batch": 128, "hidden": 400, "lr": 0.001, "active": "all"}
ASSUMED = "(mean published without SEM, ours stands for it)"


def table2() -> Section:
    """A number that agrees, one that differs, one of which only the mean is known, and one of which nothing is."""
    cut, results = stream("split-mnist"), []
    for method, mean in (
        ("none", 19.9),
        ("lwf", 40.0),
        ("er:budget=100,per_class=true", 88.9),
        ("icarl:budget=90", 90),
    ):
        settings = SETTINGS if not method.startswith("icarl") else {**SETTINGS, "active": "seen"}
        cell = replace(a_cell(cut, "class", method, **settings), paper=SUCCESSOR)
        assert cell.comparable
        results.append(a_result(cell, mean, 0.2, seeds=20))
    cells = [result.cell for result in results]
    return Section("nmi-table2", "Table 2", "table", results, cells=cells, command="threefold reproduce nmi-table2")


def curves() -> Section:
    cut, results = stream("split-mnist"), []
    methods = ["none", *(f"{each}:budget={n}" for each in ("er:per_class=true", "fromp") for n in (1, 10, 100))]
    for method in methods:
        cell = a_cell(cut, "class", method.replace(":budget", ",budget") if "er:" in method else method, **SETTINGS)
        results.append(a_result(cell, 60.0, seeds=5))
    cells = [result.cell for result in results]
    return Section(STORED[0], "Curves", "budgets", results, cells=cells, command=f"threefold reproduce {STORED[0]}")


def test_what_was_not_run_is_told(generate: ModuleType) -> None:
    told = generate.successor({})
    assert "None of the 54 published numbers was measured at full length yet." in told
    assert told.count("Not run yet: no row of it is stored.") == 4
    for name in SUCCESSORS + STORED:
        assert f"`threefold reproduce {name} --device cuda`" in told


def test_tables_and_curves_are_told_once_their_rows_are_there(generate: ModuleType) -> None:
    ours = {"nmi-table2": table2(), STORED[0]: curves()}
    told = generate.successor(ours)
    assert told.count("Not run yet: no row of it is stored.") == 2
    assert "3 of the 54 published numbers were measured at full length, with 20 seeds: 2 agree, 1 differ." in told
    assert "51 still to be run. Of 1 only the mean is known: our standard error stands for theirs there." in told
    assert "| Table 2 | LwF | Class-IL |" in told
    assert "21.89 ± 0.32 | open |" in told
    assert f"agrees {ASSUMED}" in told
    assert f"](figures/{STORED[0]}.svg)" in told
    assert "| stored samples of each class | ER | FROMP |" in told
    assert list(generate.drawn_2022(ours)) == [STORED[0]]


def test_a_verdict_says_where_only_a_mean_is_known_in_every_format() -> None:
    section = table2()
    for format in ("terminal", "markdown", "html", "csv", "latex"):
        text = " ".join(render([section], format, plain=True).split())
        assert ASSUMED in text or (format == "terminal" and "without SEM," in text and "(no SEM)" in text), format
        assert "nothing" in text, format
        assert "88.79" in text, format
    judged = [json.loads(json.dumps(result.to_json()))["verdict"] for result in section.results]
    assert judged == ["agrees", "differs", f"agrees {ASSUMED}", None]
    assert len(Agreement.of([section]).found) == 2, "by standard errors alone only where both are known"


def test_curves_of_each_class_are_none_of_figure_c1(generate: ModuleType) -> None:
    ((section, chart),) = charts([curves()])
    assert [line.label for panel in chart.panels for line in panel.lines] == ["ER", "FROMP"]
    assert "the number of samples of each class that may be stored" in chart.caption
    assert statements(section, chart) == []


def test_each_row_says_where_it_comes_from(generate: ModuleType) -> None:
    if generate.SUCCESSOR_ROWS.exists():
        for record in Rows(generate.SUCCESSOR_ROWS).all():
            assert record.environment["device"] == "NVIDIA H200"
            assert record.environment["git"]
