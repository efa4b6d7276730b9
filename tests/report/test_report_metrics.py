"""All metrics of a table, in every format, against the records."""

import csv
import io
import math
import re
from collections.abc import Sequence

import pytest
from fake_sections import a_cell, a_result, a_table, stream
from fake_training import a_tested_result
from page_reader import Page
from rich.cells import cell_len
from rich.console import Console

from threefold.experiments import Result, Section
from threefold.report import markdown, render, terminal
from threefold.report.formatting import number
from threefold.report.metric_table import metric_tables
from threefold.report.tables import result_tables

AT_ENDS = ["ACC", "LA", "F", "BWT", "FWT", "AIA", "I"]
DURING = ["AAA", "min-ACC", "WC-ACC", "gap", "recovery"]
NAMES = {
    **{"ACC": "average_accuracy", "LA": "learning_accuracy", "F": "forgetting", "BWT": "backward_transfer"},
    **{"FWT": "forward_transfer", "AIA": "average_incremental_accuracy", "AAA": "average_anytime_accuracy"},
    **{"min-ACC": "minimum_accuracy", "WC-ACC": "worst_case_accuracy", "gap": "gap_depth", "recovery": "gap_recovery"},
}


@pytest.fixture(scope="module")
def section() -> Section:
    """Two methods and Offline in Task-IL and Class-IL, with tests during training."""
    how = {"iters": 60, "every": 10, "first": 20, "seeds": 3}
    results = [
        a_tested_result(scenario, method, mean, **how)
        for scenario in ("task", "class")
        for method, mean in (("none", 70.0), ("ewc", 80.0), ("offline", 95.0))
    ]
    return Section("mine", "Mine", "table", results)


def by_hand(result: Result, short: str, joint: Result) -> tuple[float, float]:
    """Mean and standard error over the runs."""
    if short == "I":
        values = [
            sum(other.matrix[task][task] - record.matrix[task][task] for task in range(5)) / 5
            for record, other in zip(result.records, joint.records, strict=True)
        ]
    else:
        values = [record.metrics[NAMES[short]] for record in result.records]
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def wanted(section: Section, shorts: Sequence[str], *, brief: bool = False) -> list[list[str]]:
    """The rows that a table of these metrics must have."""
    rows = []
    for method in ("none", "ewc", "offline"):  # a method's scenarios together
        for scenario in ("task", "class"):
            cells = {r.cell.method.name: r for r in section.results if r.cell.scenario.name == scenario}
            result, row = cells[method], []
            for short in shorts:
                if (short, method) == ("I", "offline"):
                    row.append("–")
                    continue
                mean, error = by_hand(result, short, cells["offline"])
                row.append(number(mean) + ("" if brief else f" ± {error:.2f}"))
            titles = {"none": "None", "ewc": "EWC", "offline": "Offline", "task": "Task-IL", "class": "Class-IL"}
            rows.append([titles[method], titles[scenario], *row])
    return rows


def tables(text: str) -> dict[tuple[str, ...], list[list[str]]]:
    """Markdown's tables by their headers."""
    found: dict[tuple[str, ...], list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in block.splitlines()]
        found[tuple(head)] = rows
    return found


@pytest.mark.parametrize("shorts", [AT_ENDS, DURING], ids=["ends", "during"])
def test_markdown(section: Section, shorts: list[str]) -> None:
    assert tables(markdown.render([section]))["Method", "Scenario", *shorts] == wanted(section, shorts)


@pytest.mark.parametrize("shorts", [AT_ENDS, DURING], ids=["ends", "during"])
def test_latex(section: Section, shorts: list[str]) -> None:
    text = render([section], "latex")
    head = " & ".join(["Method", "Scenario", *shorts]) + r" \\"
    body = text[text.index(head) :].partition(r"\bottomrule")[0]
    rows = [line.strip().removesuffix(r" \\").split(" & ") for line in body.splitlines()[1:] if "&" in line]
    plain = [[cell.replace("$-$", "−").replace(r"$\pm$", "±").replace("--", "–") for cell in row] for row in rows]
    assert plain == wanted(section, shorts)


@pytest.mark.parametrize("shorts", [AT_ENDS, DURING], ids=["ends", "during"])
@pytest.mark.parametrize(("narrow", "width"), [(False, 120), (True, 80)])
def test_terminal(section: Section, shorts: list[str], narrow: bool, width: int) -> None:
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        console.print(terminal.render([section], narrow=narrow))
    text = captured.get()
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text
    rows = [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in text.splitlines() if "│" in line]
    numbers = [row[-len(shorts) :] for row in rows if len(row) == len(shorts) + (1 if narrow else 2)]
    assert [row for row in numbers if all(row) and "±" not in "".join(row)] == [
        row[2:] for row in wanted(section, shorts, brief=True)
    ]


def test_html(section: Section) -> None:
    texts = Page(render([section], "html")).texts
    for shorts in (AT_ENDS, DURING):
        for row in wanted(section, shorts):
            place = next(i for i, text in enumerate(texts) if texts[i : i + len(row) : 1] == row)
            assert place
    for short in (*AT_ENDS, *DURING):
        assert any(f"{short}: " in text for text in texts), "what it means is said"


def test_csv(section: Section) -> None:
    rows = list(csv.DictReader(io.StringIO(render([section], "csv"))))
    assert len(rows) == 6
    for row in rows:
        scenario, method = row["scenario"], row["written"]
        cells = {r.cell.method.name: r for r in section.results if r.cell.scenario.title == scenario}
        for short, name in {**NAMES, "I": "intransigence"}.items():
            if short == "ACC":
                continue
            if (short, method) == ("I", "offline"):
                assert row[name] == row[f"{name}_sem"] == ""
                continue
            mean, error = by_hand(cells[method], short, cells["offline"])
            assert float(row[name]) == pytest.approx(mean)
            assert float(row[f"{name}_sem"]) == pytest.approx(error)


def test_without_tests_during_training_there_is_no_such_table() -> None:
    text = markdown.render([a_table(methods=["none"], seeds=2)])
    assert "metrics of tests at the ends of tasks" in text
    assert "AAA" not in text
    (row, *_) = csv.DictReader(io.StringIO(render([a_table(methods=["none"], seeds=2)], "csv")))
    assert row["average_anytime_accuracy"] == row["average_anytime_accuracy_sem"] == ""


def test_without_ends_only_the_anytime_accuracy_is_told() -> None:
    results = [
        a_tested_result("task", method, 70.0, iters=40, every=10, boundaries="blurred:width=5")
        for method in ("none", "offline")
    ]
    (board,) = result_tables(Section("a", "A", "table", results))
    (during,) = metric_tables(board)
    assert list(during.columns) == ["AAA"]
    (row, _) = csv.DictReader(io.StringIO(render([board.section], "csv")))
    for name in ("forgetting", "forward_transfer", "intransigence", "minimum_accuracy"):
        assert row[name] == "", name


def test_intransigence_is_measured_against_what_was_trained_alike() -> None:
    """Of two that are Offline, the one with the same network and as many steps."""
    short, long = ({"iters": 40}, {"iters": 80})
    results = [a_result(a_cell(stream(), "class", "none", **short), 50.0, seeds=2)]
    for how, mean in ((long, 60.0), (short, 90.0)):
        results.append(a_result(a_cell(stream(), "class", "offline", **how), mean, seeds=2))
    (board,) = result_tables(Section("a", "A", "table", results))
    (at_ends,) = metric_tables(board)
    found = {cell.row: values[list(at_ends.columns).index("I")] for cell, values in at_ends.rows}
    mean, error = by_hand(results[0], "I", results[2])
    assert (found["None (iters=40)"].mean, found["None (iters=40)"].sem) == (pytest.approx(mean), pytest.approx(error))
    assert math.isnan(found["Offline (iters=80)"].mean)


def test_intransigence_takes_the_seeds_that_both_have() -> None:
    none = a_result(a_cell(stream(), "class", "none"), 50.0, seeds=4)
    offline = a_result(a_cell(stream(), "class", "offline"), 90.0, seeds=2)
    (board,) = result_tables(Section("a", "A", "table", [none, offline]))
    (at_ends,) = metric_tables(board)
    values = {cell.row: dict(zip(at_ends.columns, row, strict=True)) for cell, row in at_ends.rows}
    assert values["None"]["I"].seeds == (1, 2)
    assert values["None"]["ACC"].n == 4
