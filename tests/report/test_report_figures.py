"""What figures show, and that they can be drawn."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from fake_sections import a_cell, a_result, a_table, budgets, grids, protocol
from hostile import hostile_section

from threefold.errors import ThreefoldError
from threefold.experiments import Section
from threefold.report import save_figures
from threefold.report.panels import charts
from threefold.report.svg import nice, spread


@pytest.fixture(scope="module")
def small() -> list[Section]:
    return [a_table(methods=["none", "xdg", "dgr"], seeds=3), budgets(seeds=2), grids(seeds=2, decays=[0.8, 1.0])]


def test_budget_curves_have_the_other_methods_as_levels(small: list[Section]) -> None:
    chart = charts(small)[0][1]
    assert [panel.title for panel in chart.panels] == ["Task-IL", "Domain-IL", "Class-IL"]
    task, _, klass = chart.panels
    stored = ["stored data in training", "stored data in execution", "in both"]
    assert [line.label for line in task.lines] == stored
    assert [line.label for line in klass.lines] == [*stored, "iCaRL"]
    assert list(klass.lines[0].x) == [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert [level.label for level in task.levels] == ["None", "XdG", "DGR"]
    by_place = {(r.cell.scenario.name, r.cell.method.name): r.accuracy for r in small[0].results}
    assert task.levels[2].value == by_place["task", "dgr"]


def test_levels_have_brief_names_where_these_tell_them_apart() -> None:
    curve = a_result(a_cell(protocol(), "task", "er:budget=10"), 50.0)
    methods = ("lwf:reduction=mean", "dgr-distill:temperature=1", "dgr-distill:temperature=3")
    results = [curve, *(a_result(a_cell(protocol(), "task", method), 50.0) for method in methods)]
    (panel,) = charts([Section("c", "C", "budgets", results)])[0][1].panels
    names = ["LwF", "DGR+distill (temperature=1.0)", "DGR+distill (temperature=3.0)"]
    assert [level.label for level in panel.levels] == names


def test_levels_come_from_a_table_trained_alike_only() -> None:
    short = a_table(methods=["none"], seeds=2, iters=50)
    assert charts([short, budgets(seeds=2)])[0][1].panels[0].levels == []
    assert len(charts([short, budgets(seeds=2, iters=50)])[0][1].panels[0].levels) == 1


def test_grids_have_a_panel_for_each_method_and_marks(small: list[Section]) -> None:
    chart = charts(small)[1][1]
    titles = ["XdG", "EWC", "SI", "Online EWC, Task-IL", "Online EWC, Domain-IL", "Online EWC, Class-IL"]
    assert [panel.title for panel in chart.panels] == titles
    ewc = chart.panels[1]
    assert ewc.log
    assert ewc.x_label == "weight of the penalty, λ"
    chosen = {ewc.lines[m.line].label: m.x for m in ewc.marks if m.by == "paper"}
    assert chosen == {"Task-IL": 1e7, "Domain-IL": 1e6, "Class-IL": 1e8}
    for mark in ewc.marks:
        if mark.by == "best":
            means = [v.mean for v in ewc.lines[mark.line].values if v.mean == v.mean]
            assert mark.value
            assert mark.value.mean == max(means)
    online = chart.panels[3]
    assert [line.label for line in online.lines] == ["γ = 0.8", "γ = 1"]
    assert {m.x for m in online.marks if m.by == "paper"} == {1e8}
    row = next(s for s in chart.selected if (s.method, s.scenario) == ("Online EWC", "Task-IL"))
    assert row.paper == "strength 1e8, decay 0.8"


def test_a_paper_value_that_was_not_tried_has_no_accuracy() -> None:
    chart = charts([grids("permuted-mnist", seeds=2, decays=[0.8])])[0][1]
    row = next(s for s in chart.selected if (s.method, s.scenario) == ("EWC", "Task-IL"))
    assert (row.paper, row.paper_accuracy) == ("strength 500", None)
    (mark,) = [m for m in chart.panels[1].marks if m.by == "paper" and m.x == 500 and m.line == 0]
    assert mark.value is None


def test_a_choice_that_differs_between_scenarios_is_no_axis() -> None:
    """Online EWC with the paper's γ (0.8, 0.7, 0.8) and a grid over λ is one panel with three lines."""
    cells = [
        a_cell(protocol(), scenario, f"online-ewc:strength={s}") for scenario in ("task", "domain") for s in (1, 100)
    ]
    chart = charts([Section("g", "G", "grids", [a_result(cell, 60.0, seeds=2) for cell in cells])])[0][1]
    assert [panel.title for panel in chart.panels] == ["Online EWC"]


def test_every_figure_is_saved(small: list[Section], tmp_path: Path) -> None:
    files = save_figures(small, tmp_path / "new" / "folder", ["png"])
    assert sorted(path.name for path in files) == [
        "figureC1-split-mnist.png",
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
    some = a_result(a_cell(protocol(), "task", "ewc"), 90.0, seeds=3, diverged=[2])
    none = a_result(a_cell(protocol(), "task", "si"), 90.0, seeds=1, diverged=[1])
    assert len(save_figures([Section("a", "A", "table", [some, none])], tmp_path, ["png"])) == 2
    assert save_figures([Section("a", "A", "table", [none])], tmp_path, ["png"]) == []


def test_errors_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ThreefoldError, match="format 'gif' of figures is not known"):
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
