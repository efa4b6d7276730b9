"""The paper's three statements on stored data: on made-up results each holds, fails, or is undecided."""

from collections.abc import Callable

import pytest
from fake_sections import a_cell, a_result, stream

from threefold.experiments import Cell, Result, Section
from threefold.report import render
from threefold.report.charts import charts
from threefold.report.paper_statements import BudgetTest, Statement, Truth, statements
from threefold.results import Summary
from threefold.results.statistics import mean_sem, welch

LEVELS = {
    "split-mnist": {"none": 20, "ewc": 20, "online-ewc": 20, "si": 20, "dgr": 90, "dgr-distill": 92},
    "permuted-mnist": {"none": 17, "ewc": 25, "online-ewc": 34, "si": 29, "dgr": 92, "dgr-distill": 96},
}
STEPS = {"split-mnist": (10, 20, 50, 100, 500), "permuted-mnist": (100, 200, 500, 1000, 50000)}
CURVE = (50.0, 60.0, 70.0, 85.0, 94.0)


def usual(cell: Cell) -> float:
    """The paper's picture."""
    budget = next((getattr(part, "budget", None) for part in cell.method.parts), None)
    if budget is None:
        return LEVELS[cell.stream.title][cell.method.name]
    return CURVE[STEPS[cell.stream.title].index(budget)]


def found(
    mean: Callable[[Cell], float] = usual,
    seeds: int = 5,
    keep: Callable[[Cell], bool] = lambda cell: True,
    **settings: object,
) -> list[Statement]:
    results: list[Result] = []
    for name, steps in STEPS.items():
        methods = [f"er:use={use},budget={step}" for use in ("training", "execution", "both") for step in steps]
        methods += [f"icarl:budget={step}" for step in steps] + list(LEVELS[name])
        cells = [a_cell(stream(name), "class", method, **settings) for method in methods]
        results += [a_result(cell, mean(cell), 0.5, seeds) for cell in cells if keep(cell)]
    section = Section("figureC1", "Figure C.1", "budgets", results)
    assert ("What the paper says of it" in render([section], "html")) == (not settings)
    assert ("What the paper says of it" in render([section], "markdown")) == (not settings)
    return [statement for of, chart in charts([section]) for statement in statements(of, chart)]


def stored(cell: Cell, budget: int, of: str) -> bool:
    """Is it this budget of this stream?"""
    (part,) = cell.method.parts or (None,)
    return cell.stream.title == of and getattr(part, "budget", None) == budget


def truths(statements: list[Statement]) -> list[Truth]:
    return [statement.truth for statement in statements]


def test_all_three_hold_in_the_papers_picture() -> None:
    one, two, three = found()
    assert truths([one, two, three]) == [Truth.HOLDS] * 3
    assert "all 24 differences are above zero at 5%" in one.because
    assert "fewer than 10 samples per class all 48 differences are below zero at 5%" in two.because
    assert "all 4 differences" in three.because
    assert [row[:3] for row in one.rows][::4] == [
        ["split-mnist", "in training", "10"],
        ["permuted-mnist", "in training", "100"],
    ]
    assert {row[4] for row in one.rows if row[0] == "permuted-mnist"} == {"Online EWC"}, "the best of the three"
    assert two.rows[0] == ["split-mnist", "in training", "500 (50 per class)", "500 (50 per class)"]
    assert two.rows[-1] == ["permuted-mnist", "iCaRL", "50000 (500 per class)", "more than 50000"]
    assert three.rows[0][3] == "DGR+distill"
    assert three.rows[0][5] == "5", "seeds in common"


@pytest.mark.parametrize("stream", STEPS)
def test_one_variant_below_one_regulariser_is_enough_against_the_first(stream: str) -> None:
    least = STEPS[stream][0]

    def mean(cell: Cell) -> float:
        low = stored(cell, least, stream) and cell.method.hyperparameters().get("er", {}).get("use") == "execution"
        return 15.0 if low else usual(cell)

    one, two, three = found(mean)
    assert truths([one, two, three]) == [Truth.FAILS, Truth.HOLDS, Truth.HOLDS]
    assert f"{stream}, in execution, {least} stored, against EWC" in one.because
    assert "in training" not in one.because


@pytest.mark.parametrize(("budget", "truth"), [(50, Truth.FAILS), (100, Truth.HOLDS)])
def test_a_match_below_ten_samples_per_class_is_enough_against_the_second(budget: int, truth: Truth) -> None:
    def mean(cell: Cell) -> float:
        return 93.0 if stored(cell, budget, "split-mnist") and cell.method.name == "icarl" else usual(cell)

    one, two, three = found(mean)
    assert truths([one, two, three]) == [Truth.HOLDS, truth, Truth.HOLDS]
    icarl = next(row for row in two.rows if row[:2] == ["split-mnist", "iCaRL"])
    assert icarl[2] == f"{budget} ({budget // 10} per class)"


def test_not_significantly_below_is_a_match() -> None:
    def mean(cell: Cell) -> float:
        return 89.9 if stored(cell, 20, "split-mnist") and cell.method.name == "icarl" else usual(cell)

    assert found(mean)[1].truth is Truth.FAILS


def test_a_variant_that_reaches_distilled_replay_is_enough_against_the_third() -> None:
    def mean(cell: Cell) -> float:
        return 97.0 if stored(cell, 50000, "permuted-mnist") and cell.method.name == "icarl" else usual(cell)

    one, two, three = found(mean)
    assert truths([one, two, three]) == [Truth.HOLDS, Truth.HOLDS, Truth.FAILS]
    assert three.because == "not so for permuted-mnist, iCaRL, 50000 stored, against DGR+distill."


@pytest.mark.parametrize("level", [95.7, 96.2])
def test_a_difference_that_may_be_chance_tells_nothing(level: float) -> None:
    """Neither where it is just below DGR+distill nor where it is just above."""

    def mean(cell: Cell) -> float:
        return level if stored(cell, 50000, "permuted-mnist") and cell.method.name == "icarl" else usual(cell)

    three = found(mean)[2]
    assert three.truth is Truth.OPEN
    assert three.because.startswith("the difference is not significant for permuted-mnist, iCaRL")


@pytest.mark.parametrize("seeds", [1, 4])
def test_fewer_than_five_seeds_tell_nothing(seeds: int) -> None:
    assert truths(found(seeds=seeds)) == [Truth.OPEN] * 3


def test_runs_of_the_same_seed_are_compared() -> None:
    """Seeds scatter by twenty points, iCaRL with 50,000 samples is half a point below DGR+distill for each of them."""
    scatter = [-10.0, 10.0, -5.0, 5.0, 0.0]
    shifts = {"dgr-distill": [0.0] * 5, "icarl": [-0.5, -0.4, -0.6, -0.5, -0.5]}
    values = {
        method: Summary(
            *mean_sem([80 + a + b for a, b in zip(scatter, shift, strict=True)]),
            5,
            tuple(80 + a + b for a, b in zip(scatter, shift, strict=True)),
            (1, 2, 3, 4, 5),
        )
        for method, shift in shifts.items()
    }
    compared = BudgetTest("permuted-mnist", "iCaRL", 50_000, values["icarl"], "dgr-distill", values["dgr-distill"])
    assert compared.below()
    assert welch(values["icarl"], values["dgr-distill"]).p > 0.9


def test_what_is_missing_is_told() -> None:
    one, two, three = found(keep=lambda cell: cell.stream.name == "split")
    assert truths([one, two, three]) == [Truth.OPEN] * 3
    assert one.because == "of the comparisons that it takes, 12 of 12 on permuted-mnist cannot be made yet."
    assert len(one.rows) == 4
    assert three.rows == []
    no_dgr = found(keep=lambda cell: cell.method.name != "dgr")
    assert truths(no_dgr) == [Truth.HOLDS, Truth.OPEN, Truth.HOLDS]
    no_twenty = found(keep=lambda cell: not stored(cell, 20, "split-mnist"))
    assert truths(no_twenty) == [Truth.HOLDS, Truth.OPEN, Truth.HOLDS], "each step that decides must be there"


def test_shortened_runs_are_not_asked() -> None:
    assert found(iters=10) == []


def test_other_data_are_not_asked() -> None:
    cells = [a_cell(stream("split-letters"), "class", f"er:budget={budget}") for budget in (10, 20)]
    section = Section("c", "C", "budgets", [a_result(cell, 50.0) for cell in cells])
    ((_, chart),) = charts([section])
    assert statements(section, chart) == []
