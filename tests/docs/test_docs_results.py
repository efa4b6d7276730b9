"""What the pages say about results is what the stored rows say."""

import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from fake_sections import a_cell, a_result, figure_c1, grids, stream
from fake_training import ordered, stability
from scipy.stats import ttest_ind, ttest_rel

from threefold.experiments import Result, Section
from threefold.report.paper_statements import Truth, statements
from threefold.report.tables import result_tables
from threefold.results import Ordered, Record, Rows, lookup, published_cells
from threefold.results.statistics import holm, mean_sem

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def rows(generate: ModuleType) -> dict[str, Section]:
    found: dict[str, Section] = generate.found()
    return found


def test_the_pages_are_in_step_with_the_rows(generate: ModuleType, rows: dict[str, Section]) -> None:
    for page, text in generate.generated(rows).items():
        assert (ROOT / page).read_text(encoding="utf-8") == text, f"{page}: run make docs"


def test_the_pictures_are_in_step_with_the_rows(generate: ModuleType, rows: dict[str, Section]) -> None:
    wanted = {generate.picture(chart): chart for some in generate.drawn(rows).values() for _, chart in some}
    assert set(generate.PICTURES.glob("*")) == set(wanted), "run make docs"
    for path, chart in wanted.items():
        assert generate.shows(path, chart), f"{path}: run make docs"
        assert path.stat().st_size < 400_000


def test_what_was_not_run_is_told(generate: ModuleType, rows: dict[str, Section]) -> None:
    without = {name: section for name, section in rows.items() if name not in generate.FIGURES}
    told = generate.figures(without)
    assert told.count("Not run yet: no row of it is stored.") == 3
    for name in generate.FIGURES:
        assert f"`threefold reproduce {name} --device cuda`" in told
    assert generate.summary(without).count("| – | all | – | – |") == 3


def test_a_figure_is_drawn_once_its_rows_are_there(
    generate: ModuleType, rows: dict[str, Section], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "PICTURES", tmp_path)
    stored = replace(figure_c1(3, 2), left=7)
    grid = replace(grids(seeds=2, decays=[0.8, 1.0]), command="threefold reproduce figureD1")
    tables = {name: rows[name] for name in generate.TABLES}
    told = generate.figures(tables | {"figureC1": stored, "figureD1": grid})
    for wanted in (
        "](figures/figureC1.svg)",
        "Not complete: 7 runs still to be trained.",
        "What the paper says of it",
        "](figures/figureD1-split-mnist.svg)",
        "| Method | Scenario | Paper selected | Ours selects |",
        "Made by: threefold reproduce figureD1",
        "Made by: `threefold reproduce figureD2 --device cuda`",
    ):
        assert wanted in told
    (tmp_path / "old.svg").write_text("drawn from rows that are gone")
    names = [path.name for path in generate.draw(tables | {"figureC1": stored, "figureD1": grid})]
    assert names == ["figureC1.svg", "figureD1-split-mnist.svg", "agreement.svg"]
    assert {path.name for path in tmp_path.glob("*")} == set(names)
    assert generate.draw(tables | {"figureC1": stored, "figureD1": grid}) == [], "nothing has changed"
    again = generate.draw(tables | {"figureC1": figure_c1(3, 3), "figureD1": grid})
    assert [path.name for path in again] == ["figureC1.svg"]


def test_what_the_paper_has_not_was_run_or_says_by_which_command(
    generate: ModuleType, rows: dict[str, Section]
) -> None:
    told = generate.further({name: section for name, section in rows.items() if name not in generate.FURTHER})
    assert told.count("Not run yet: no row of it is stored.") == len(generate.FURTHER) == 3
    for name in generate.FURTHER:
        assert f"`threefold reproduce {name} --device cuda`" in told


def test_what_the_paper_has_not_is_drawn_and_told_once_its_rows_are_there(
    generate: ModuleType, rows: dict[str, Section], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "PICTURES", tmp_path)
    blurred = [
        a_result(a_cell(stream(boundaries="blurred:width=500"), scenario, method), 60.0, seeds=4)
        for method, scenario in (("none", "task"), ("none", "class"), ("er:budget=1000", "class"))
    ]
    orders = [ordered("none", [Ordered(1, 1), Ordered(1, 2), Ordered(2, 1)], "class")]
    made = {
        "stability": stability(seeds=2),
        "taskfree": Section("taskfree", "Task-free", "table", blurred, command="threefold reproduce taskfree"),
        "orders": Section("orders", "Orders", "table", orders, command="threefold reproduce orders"),
    }
    ours = {name: rows[name] for name in generate.TABLES} | made
    told = generate.further(ours)
    assert told.count("There are no published numbers to compare these with.") == 3
    gap, free, spread = told.split("\n## ")[-3:]
    for wanted in (
        "](figures/stability.svg)",
        "Made by: threefold reproduce stability --device cuda",
        "| Method | Scenario | AAA | min-ACC | WC-ACC | gap | recovery |",
        "20 runs, trained in",
    ):
        assert wanted in gap
    mean = made["stability"].results[4].metrics["gap_depth"]
    assert f"Task-IL: ER {mean.mean:.2f} ± {mean.sem:.2f} (" in gap
    assert "less than a point: " in gap
    assert "| Baselines | None |" in free
    assert "published" not in free.replace("no published numbers", ""), "and no column of theirs"
    assert "](figures/orders.svg)" in spread
    assert re.search(r"\| None \| [\d.]+ \(SD [\d.]+, n = 2\) \| [\d.]+ \(SD [\d.]+, n = 2\) \|", spread)
    names = {path.name for path in generate.draw(ours)}
    assert {"stability.svg", "orders.svg"} <= names
    assert all((tmp_path / name).stat().st_size < 400_000 for name in names)


@cache
def stored(path: Path) -> list[Record]:
    return list(Rows(path).all())


def ends(
    generate: ModuleType, stream: str, method: str, scenario: str = "class", **numbers: object
) -> dict[int, float]:
    """By hand, without the report: average accuracies after the last task, by seed."""
    return {
        record.spec["seed"]: sum(record.matrix[-1]) / len(record.matrix[-1])
        for record in stored(generate.ROWS)
        for given in [record.spec["method"]["hyperparameters"].get(method, {})]
        if (record.spec["stream"]["name"], record.spec["scenario"]["name"]) == (stream, scenario)
        and record.spec["method"]["name"] == method
        and "first" not in record.spec["stream"]
        and all(given[name] == value for name, value in numbers.items())
    }


def p_paired(first: dict[int, float], second: dict[int, float], alternative: str = "two-sided") -> float:
    """By scipy: the paired t test over common seeds."""
    common = sorted(first.keys() & second.keys())
    pairs = [[side[seed] for seed in common] for side in (first, second)]
    return float(ttest_rel(*pairs, alternative=alternative).pvalue)


def test_none_and_ewc_rise_and_fall_together(generate: ModuleType, rows: dict[str, Section]) -> None:
    """Domain-IL of split MNIST: the difference is there for almost every seed, which an unpaired test does not see."""
    none = ends(generate, "split-mnist", "none", "domain")
    ewc = ends(generate, "split-mnist", "ewc", "domain", strength=1e6)
    pairs = [[side[seed] for seed in range(1, 21)] for side in (none, ewc)]
    assert np.corrcoef(*pairs)[0, 1] == pytest.approx(0.93, abs=0.005)
    (board,) = result_tables(rows["table4"])
    column = next(column for column in board.significance if column.title == "Domain-IL")
    (found,) = (c for c in column.comparisons if {c.first, c.second} == {"None", "EWC"})
    assert found.difference.p == pytest.approx(p_paired(none, ewc), rel=1e-6)
    assert found.p_holm < 1e-4
    measured = [e.accuracy.per_seed for e in board.cells if e.column == "Domain-IL"]
    unpaired = [ttest_ind(*two, equal_var=False).pvalue for two in combinations(measured, 2)]
    mine = ttest_ind(*pairs, equal_var=False).pvalue
    assert holm(unpaired)[int(np.argmin(np.abs(np.subtract(unpaired, mine))))] == pytest.approx(0.28, abs=0.01)


def test_what_the_paper_says_of_stored_data(generate: ModuleType, rows: dict[str, Section]) -> None:
    """What was found of its three statements: a change to it is news. What does not hold is talked about."""
    page = (ROOT / "docs" / "reproduction.md").read_text("utf-8").replace("\\", "")
    ((section, chart),) = generate.drawn(rows)["figureC1"]
    found = statements(section, chart)
    assert [statement.truth for statement in found] == [Truth.HOLDS, Truth.FAILS, Truth.FAILS]
    assert all(statement.because in page for statement in found)
    assert {statement.title for statement in found if statement.truth is not Truth.HOLDS} == set(generate.SAID)
    assert all(text in page for text in generate.SAID.values())


REGULARISED = {
    "split-mnist": {
        "ewc": {"strength": 1e8},
        "online-ewc": {"strength": 1e9, "decay": 0.8},
        "si": {"strength": 0.5},
    },
    "permuted-mnist": {
        "ewc": {"strength": 1.0},
        "online-ewc": {"strength": 5.0, "decay": 1.0},
        "si": {"strength": 0.1},
    },
}
VARIANTS = [("er", {"use": use}) for use in ("training", "execution", "both")] + [("icarl", {"temperature": 2.0})]


@pytest.mark.parametrize(("stream", "one"), [("split-mnist", 10), ("permuted-mnist", 100)])
def test_one_stored_sample_per_class_beats_every_regularisation_method(
    generate: ModuleType, stream: str, one: int
) -> None:
    for method, use in VARIANTS:
        few = ends(generate, stream, method, budget=one, **use)
        assert len(few) == (20 if stream == "split-mnist" else 5)
        for rival, selected in REGULARISED[stream].items():
            others = ends(generate, stream, rival, **selected)
            assert len(others) == 20
            assert p_paired(few, others, "greater") < 0.05


@pytest.mark.parametrize(("stream", "one"), [("split-mnist", 10), ("permuted-mnist", 100)])
def test_matching_distilled_generative_replay_takes_far_more(generate: ModuleType, stream: str, one: int) -> None:
    best = ends(generate, stream, "dgr-distill", reduction="sum")
    for method, use in VARIANTS:
        for few in (one, 2 * one, 5 * one):
            few_stored = ends(generate, stream, method, budget=few, **use)
            assert p_paired(few_stored, best, "less") < 0.05


def test_fifty_thousand_stored_samples_stay_below_distilled_replay_but_for_those_used_in_training_alone(
    generate: ModuleType,
) -> None:
    full = [ends(generate, "permuted-mnist", method, budget=50_000, **use) for method, use in VARIANTS]
    assert [len(each) for each in full] == [5] * 4
    below = {}
    for reduction in ("sum", "mean"):  # by the text, and as published
        best = ends(generate, "permuted-mnist", "dgr-distill", reduction=reduction)
        assert len(best) == 20
        below[reduction] = [p_paired(each, best, "less") < 0.05 for each in full]
    assert below == {"sum": [False, True, True, True], "mean": [False, True, False, True]}


def test_every_mark_is_there(generate: ModuleType) -> None:
    marks = {mark[2] for page in generate.PAGES for mark in generate.MARK.finditer((ROOT / page).read_text("utf-8"))}
    assert marks == set(generate.BLOCKS)


def test_a_mean_on_the_page_is_the_mean_of_the_rows(generate: ModuleType) -> None:
    """By hand, without the report: None in Class-IL of Table 4."""
    ends = [
        sum(record.matrix[-1]) / len(record.matrix[-1])
        for record in stored(generate.ROWS)
        if (record.spec["stream"]["name"], record.spec["scenario"]["name"]) == ("split-mnist", "class")
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


def test_what_is_said_of_other_readings_is_what_the_rows_say(generate: ModuleType) -> None:
    """The sentences of docs/readings.md that are not generated: batches of 256, and the same seeds both ways."""
    page = " ".join((ROOT / "docs" / "readings.md").read_text("utf-8").split())
    twice: dict[int, float] = {}
    gated: dict[tuple[str, str], dict[int, float]] = {}
    for record in stored(generate.ROWS):
        spec, end = record.spec, sum(record.matrix[-1]) / len(record.matrix[-1])
        given = spec["method"]["hyperparameters"]
        if spec["training"]["batch"] == 256:
            twice[spec["seed"]] = end
        for name in {"lwf", "dgr"} & given.keys() if "xdg" in given else ():
            gated.setdefault((name, given[name]["replayed_for"]), {})[spec["seed"]] = end
    mean, sem = mean_sem(twice.values())
    assert len(twice) == 20
    assert f"--batch 256 --device cuda` came to {mean:.2f} ± {sem:.2f})" in page
    common = gated["dgr", "one"].keys() & gated["dgr", "every"].keys()
    moved = mean_sem(gated["dgr", "every"][seed] - gated["dgr", "one"][seed] for seed in common)[0]
    hidden, output = (lookup("permuted-mnist", "task", "dgr", where) for where in ("hidden", "output"))
    assert hidden
    assert output
    assert f"more than half of the published {hidden.mean - output.mean:.1f} points between them" in page
    assert moved > (hidden.mean - output.mean) / 2


def test_what_is_still_to_be_run_is_shown_by_an_earlier_run_and_told(
    generate: ModuleType, rows: dict[str, Section]
) -> None:
    """A reading by the text stands for the rule's, says so, and goes once the rule's runs are there."""
    from meanwhile import stands_in, stood_in

    def lwf(reduction: str, seeds: int) -> Result:
        return a_result(a_cell(stream(), "class", f"lwf:reduction={reduction}"), 22.0, 1.0, seeds)

    none, text, rule = a_result(a_cell(stream(), "class", "none"), 19.9), lwf("sum", 20), lwf("mean", 20)
    readings = Section("readings", "Readings", "table", [text], cells=[text.cell])
    stated = {"text": "By the code of 1999 (reduction=mean).", "options": {"lwf": {"reduction": "mean"}}}
    for there, shown in (([], text), ([replace(rule, records=rule.records[:4])], text), ([rule], rule)):
        cell = there[0].cell if there else rule.cell
        lacking = {} if shown is rule else {cell: 20 - sum(len(result.records) for result in there)}
        table = Section(
            "table4",
            "Table 4",
            "table",
            [none, *there],
            cells=[none.cell, cell],
            rules=[stated],
            left=sum(lacking.values()),
            lacking=lacking,
        )
        found = stood_in({"table4": table, "readings": readings}, ["table4"])["table4"]
        assert [result.records for result in found.results] == [none.records, shown.records]
        (board,) = result_tables(found)
        assert [row for _, row in board.rows] == ["None", "LwF"]
        told = [rule["text"] for rule in found.rules if rule["text"].startswith("Still to be run")]
        assert told == (
            [
                "Still to be run by this rule, and shown as an earlier run had it: LwF with reduction=sum"
                " (split-mnist: Class-IL)."
            ]
            if shown is text
            else []
        )
        assert [stands_in(found, result.cell) for result in found.results] == [False, shown is text]
    other = a_result(a_cell(stream(), "class", "lwf:reduction=sum,temperature=3"), 22.0, 1.0, 20)
    only = {"table4": replace(table, results=[none], lacking={rule.cell: 20}, cells=[none.cell, rule.cell])}
    found = stood_in(only | {"readings": replace(readings, results=[other])}, ["table4"])["table4"]
    assert [result.cell for result in found.results] == [none.cell], "another temperature is no reading of it"


def test_each_row_says_where_it_comes_from(generate: ModuleType) -> None:
    records = [record for path in (generate.ROWS, generate.TRAINING) if path.exists() for record in stored(path)]
    assert len({record.key for record in records}) == len(records) >= 520
    for record in records:
        made = record.environment
        assert made["device"] == "NVIDIA H200"
        assert made["git"]
        assert made["threefold"] not in ("", "0.0.0")
        assert made["precision"] in ("fp32", "tf32")


def test_no_cell_differs_without_a_word(generate: ModuleType, rows: dict[str, Section]) -> None:
    results = [result for name in generate.TABLES for result in rows[name].results]
    differ = {r.cell.published() for r in results if r.verdict and str(r.verdict.outcome) == "differs"}
    told = generate.differing(rows)
    assert (len(told.splitlines()) - 2 if differ else 0) == len(differ)
    assert "| open |" not in told, "a reason for each: WHY in docs/generate.py"
    assert all(f"| {why} |" in told for why in generate.WHY.values()), "and none for others"
    for cell in differ:
        assert cell
        assert f"{cell.mean:.2f} ± {cell.sem:.2f} |" in told
    assert len(published_cells()) == 59
