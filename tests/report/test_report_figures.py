"""What figures show, and that they can be drawn."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from fake_sections import a_cell, a_result, a_table, budgets, figure_c1, grids, stream
from hostile import hostile_section
from matplotlib.figure import Figure
from matplotlib.text import Text

from threefold.errors import ThreefoldError
from threefold.experiments import Result, Section
from threefold.report import save_figures, svg
from threefold.report.charts import charts
from threefold.report.drawing import draw_curves, draw_matrices
from threefold.report.panels import By, Line, Mark, Panel, reach
from threefold.report.svg import nice, spread
from threefold.report.tables import ResultTable, result_tables
from threefold.results import Summary


@pytest.fixture(scope="module")
def small() -> list[Section]:
    return [a_table(methods=["none", "xdg", "dgr"], seeds=3), budgets(seeds=2), grids(seeds=2, decays=[0.8, 1.0])]


def test_budget_curves_have_the_other_methods_as_levels(small: list[Section]) -> None:
    chart = charts(small)[0][1]
    assert (chart.rows, chart.columns) == (["split-mnist"], ["Task-IL", "Domain-IL", "Class-IL"])
    task, _, klass = chart.panels
    stored = ["stored data in training", "stored data in execution", "stored data in both"]
    assert [line.label for line in task.lines] == stored
    assert [line.label for line in klass.lines] == [*stored, "iCaRL"]
    assert list(klass.lines[0].x) == [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert [level.label for level in task.levels] == ["None", "XdG", "DGR"]
    by_place = {(r.cell.scenario.name, r.cell.method.name): r.accuracy for r in small[0].results}
    assert task.levels[2].value == by_place["task", "dgr"]


def test_both_streams_are_one_figure_with_a_row_each() -> None:
    ((_, chart),) = charts([figure_c1(2, 3)])
    assert chart.rows == ["A  split-mnist", "B  permuted-mnist"]
    assert len(chart.panels) == 6
    assert "A curves 2 seeds" in chart.caption
    assert "B curves 3 seeds" in chart.caption


def test_a_level_has_all_the_seeds_that_a_table_has_of_it() -> None:
    """Figure C.1 asks for five seeds of permuted MNIST; where Table 5 has twenty of None, these are shown."""
    own = [a_result(a_cell(stream(), "task", method), 70.0, seeds=2) for method in ("er:budget=10", "none", "ewc")]
    levels = charts([Section("c", "C", "budgets", own), a_table(methods=["none"], seeds=4)])[0][1].panels[0].levels
    assert {level.method: level.value.n for level in levels} == {"none": 4, "ewc": 2}


def test_a_level_is_no_mean_over_chosen_orders_of_the_tasks() -> None:
    own = [a_result(a_cell(stream(), "task", method), 70.0, seeds=2) for method in ("er:budget=10", "none")]
    many = a_result(a_cell(stream(), "task", "none"), 70.0, seeds=4)
    ordered = [replace(record, spec={**record.spec, "order": 1}) for record in many.records]
    study = Section("orders", "Orders", "table", [Result(many.cell, ordered)])
    levels = charts([Section("c", "C", "budgets", own), study])[0][1].panels[0].levels
    assert {level.method: level.value.n for level in levels} == {"none": 2}


def test_levels_have_brief_names_where_these_tell_them_apart() -> None:
    curve = a_result(a_cell(stream(), "task", "er:budget=10"), 50.0)
    methods = ("lwf:reduction=mean", "dgr-distill:temperature=1", "dgr-distill:temperature=3")
    results = [curve, *(a_result(a_cell(stream(), "task", method), 50.0) for method in methods)]
    (panel,) = charts([Section("c", "C", "budgets", results)])[0][1].panels
    names = ["LwF", "DGR+distill (temperature=1)", "DGR+distill (temperature=3)"]
    assert [level.label for level in panel.levels] == names


def test_levels_come_from_a_table_trained_alike_only() -> None:
    short = a_table(methods=["none"], seeds=2, iters=50)
    assert charts([short, budgets(seeds=2)])[0][1].panels[0].levels == []
    assert len(charts([short, budgets(seeds=2, iters=50)])[0][1].panels[0].levels) == 1


def test_grids_have_a_row_for_each_method_a_column_for_each_scenario_and_marks(small: list[Section]) -> None:
    chart = charts(small)[1][1]
    assert (chart.rows, chart.columns) == (["XdG", "EWC", "Online EWC", "SI"], ["Task-IL", "Domain-IL", "Class-IL"])
    panels = {(panel.row, panel.column): panel for panel in chart.panels}
    assert len(panels) == 1 + 3 * 3
    chosen = {}
    for scenario in chart.columns:
        ewc = panels["EWC", scenario]
        assert ewc.log
        assert ewc.x_label == "weight of the penalty, λ"
        (line,) = ewc.lines
        marks = {mark.by: mark for mark in ewc.marks}
        chosen[scenario] = marks["paper"].x
        assert marks["best"].value
        assert marks["best"].value.mean == max(v.mean for v in line.values if v.mean == v.mean)
    assert chosen == {"Task-IL": 1e7, "Domain-IL": 1e6, "Class-IL": 1e8}
    online = panels["Online EWC", "Task-IL"]
    assert [line.label for line in online.lines] == ["γ = 0.8", "γ = 1"]
    assert {m.x for m in online.marks if m.by == "paper"} == {1e8}
    row = next(s for s in chart.selected if (s.method, s.scenario) == ("Online EWC", "Task-IL"))
    assert row.paper
    assert row.paper.text == "λ = 1e8, γ = 0.8"


def test_the_hyperparameter_over_most_decades_is_across() -> None:
    """In Figure D.2 Online EWC has more values of γ than of λ."""
    cells = [a_cell(stream(), "task", f"online-ewc:strength={s},decay={d}") for s in (1, 1000) for d in (0.1, 0.2, 0.3)]
    (panel,) = charts([Section("g", "G", "grids", [a_result(cell, 60.0, seeds=2) for cell in cells])])[0][1].panels
    assert [list(line.x) for line in panel.lines] == [[1, 1000]] * 3


def test_a_paper_value_that_was_not_tried_has_the_accuracy_of_the_table() -> None:
    grid = grids("permuted-mnist", seeds=2, decays=[0.8])
    for sections, wanted in (([grid], None), ([a_table("table5", "permuted-mnist", ["ewc"], seeds=4), grid], 4)):
        (chart,) = (chart for section, chart in charts(sections) if section is grid)
        row = next(s for s in chart.selected if (s.method, s.scenario) == ("EWC", "Task-IL"))
        assert row.paper
        assert row.paper.text == "λ = 500"
        (panel,) = (panel for panel in chart.panels if panel.title == "EWC, Task-IL")
        (mark,) = (mark for mark in panel.marks if mark.by == "paper")
        assert (mark.x, mark.value) == (500, row.paper.accuracy)
        assert (row.paper.accuracy and row.paper.accuracy.n) == wanted
        assert row.paper.elsewhere == (wanted is not None)


def test_a_choice_that_differs_between_scenarios_is_no_axis() -> None:
    """Online EWC with the paper's γ (0.8, 0.7, 0.8) and a grid over λ has one curve in each scenario."""
    cells = [
        a_cell(stream(), scenario, f"online-ewc:strength={s}") for scenario in ("task", "domain") for s in (1, 100)
    ]
    chart = charts([Section("g", "G", "grids", [a_result(cell, 60.0, seeds=2) for cell in cells])])[0][1]
    assert [(panel.title, len(panel.lines)) for panel in chart.panels] == [
        ("Online EWC, Task-IL", 1),
        ("Online EWC, Domain-IL", 1),
    ]


def test_a_curve_breaks_off_where_a_run_diverged() -> None:
    results = [
        a_result(a_cell(stream(), "task", f"ewc:strength={s}"), 60.0, seeds=2, diverged=[2] if s == 100 else [])
        for s in (1, 10, 100, 1000)
    ]
    (panel,) = charts([Section("g", "G", "grids", results)])[0][1].panels
    assert panel.lost == [100]
    drawn = svg.chart(panel)
    assert drawn.count("<polyline") == 2
    assert drawn.count('class="lost"') == 1


def test_bands_are_inside() -> None:
    few = Summary(50.0, 20.0, 2, (30.0, 70.0))
    panel = Panel("r", "c", "x", False, [Line("l", [1, 2], [few, few])])
    low, high = svg.limits(reach(panel))
    assert low < 30
    assert high > 70


def test_a_triangle_above_the_highest_point_is_inside_too() -> None:
    values = [Summary(mean, 0.0, 2, (mean, mean)) for mean in (40.0, 80.0)]
    line = Line("l", [1, 2], values)
    rooms: dict[By, float] = {"best": 0.08, "honest": 0.16}
    for by, room in rooms.items():
        panel = Panel("r", "c", "x", False, [line], marks=[Mark(2, values[1], 0, by)])
        assert svg.limits(reach(panel))[1] >= 80 + room * 40


def test_every_figure_is_saved(small: list[Section], tmp_path: Path) -> None:
    files = save_figures(small, tmp_path / "new" / "folder", ["png"])
    assert sorted(path.name for path in files) == [
        "figureC1.png",
        "figureD1-split-mnist.png",
        "table4-split-mnist-dreams.png",
        "table4-split-mnist-forgetting.png",
        "table4-split-mnist-matrices.png",
    ]
    for path in files:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_svg_and_pdf_are_the_same_twice(tmp_path: Path) -> None:
    sections = [budgets(seeds=2)]
    first, second = (save_figures(sections, tmp_path / name, ["svg", "pdf"]) for name in ("a", "b"))
    assert [path.suffix for path in first] == [".svg", ".pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_hostile_names_stay_in_the_folder(tmp_path: Path) -> None:
    files = save_figures([hostile_section()], tmp_path, ["svg"])
    assert {path.parent for path in files} == {tmp_path}
    assert all("<script" not in path.read_text() for path in files)


def test_cells_that_diverged_are_left_out(tmp_path: Path) -> None:
    some = a_result(a_cell(stream(), "task", "ewc"), 90.0, seeds=3, diverged=[2])
    none = a_result(a_cell(stream(), "task", "si"), 90.0, seeds=1, diverged=[1])
    assert len(save_figures([Section("a", "A", "table", [some, none])], tmp_path, ["png"])) == 2
    assert save_figures([Section("a", "A", "table", [none])], tmp_path, ["png"]) == []


@pytest.fixture(scope="module")
def survivors() -> ResultTable:
    """Of EWC two seeds of five diverged, of SI none."""
    results = [
        a_result(a_cell(stream(), "task", "ewc"), 90.0, seeds=5, diverged=[2, 4]),
        a_result(a_cell(stream(), "task", "si"), 90.0, seeds=5),
    ]
    return result_tables(Section("a", "A", "table", results))[0]


TOLD = "mean of 3 of 5 seeds; 2 diverged"


@pytest.mark.parametrize("draw", [draw_curves, draw_matrices])
def test_a_mean_over_the_seeds_that_survived_says_so(
    survivors: ResultTable, draw: Callable[[ResultTable], Figure]
) -> None:
    texts = [" ".join(text.get_text().split()) for text in draw(survivors).findobj(Text)]
    assert texts.count(TOLD) == 1, "of EWC alone"


def test_cards_of_the_page_say_so_too(survivors: ResultTable) -> None:
    for found, times in zip(survivors.cells, (1, 0), strict=True):
        for card in (svg.forgetting(found), svg.heat_map(found)):
            assert card.count(f">{TOLD}</text>") == times
            assert card.count(f"({TOLD})") == times, "for those who hear it"


def test_a_level_that_cannot_be_drawn_is_named() -> None:
    results = [a_result(a_cell(stream(), "task", method), 50.0) for method in ("er:budget=10", "none")]
    results.append(a_result(a_cell(stream(), "task", "ewc"), 50.0, diverged=[2]))
    ((_, chart),) = charts([Section("c", "C", "budgets", results)])
    assert [level.label for level in chart.panels[0].levels] == ["None"]
    assert chart.key.endswith("Not drawn, as a seed diverged: EWC, Task-IL.")


def test_errors_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ThreefoldError, match="format of figures 'gif' is not known"):
        save_figures([], tmp_path, ["gif"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ThreefoldError, match="cannot be a folder"):
        save_figures([], tmp_path / "file")


@pytest.mark.parametrize(
    ("wanted", "low", "high"),
    [([1, 1, 1], 0, 10), ([0, 0, 0], 0, 10), ([10, 10, 10], 0, 10), ([1, 5, 5.1, 9], 0, 10), ([], 0, 1)],
)
def test_labels_are_spread(wanted: list[float], low: float, high: float) -> None:
    places = spread(wanted, 1.0, low, high)
    assert len(places) == len(wanted)
    assert all(b - a >= 1 - 1e-9 for a, b in pairwise(places))
    assert all(low <= place <= high for place in places)


def test_labels_that_do_not_meet_stay_where_they_are() -> None:
    assert spread([1.0, 5.0, 9.0], 1.0, 0, 10) == [1.0, 5.0, 9.0]


def test_ticks_are_round_and_inside() -> None:
    for low, high in ((0.0, 100.0), (18.2, 21.9), (84.0, 101.0)):
        ticks = nice(low, high)
        assert 3 <= len(ticks) <= 8
        assert low <= min(ticks)
        assert max(ticks) <= high
        assert np.allclose(np.diff(ticks), ticks[1] - ticks[0])
