"""The second rule of judgement, against scipy and by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_sections import a_cell, a_result, a_table, stream, table_b1
from scipy.stats import norm, ttest_ind_from_stats

from threefold.experiments import Section
from threefold.report import html, render, save_figures
from threefold.report.agreement import Agreement
from threefold.report.svg import chart as drawn
from threefold.results import published_cells


@pytest.fixture(scope="module")
def paper() -> list[Section]:
    return [a_table(), a_table("table5", "permuted-mnist"), table_b1()]


def test_z_is_the_statistic_of_welchs_test(paper: list[Section]) -> None:
    found = Agreement.of(paper).found
    assert {each.published for each in found} == set(published_cells()), "each of the 59 once"
    for each in found:
        ours, theirs = each.cell.accuracy, each.published
        spreads = [side.sem * math.sqrt(side.n) for side in (ours, theirs)]
        wanted = ttest_ind_from_stats(ours.mean, spreads[0], ours.n, theirs.mean, spreads[1], theirs.n, equal_var=False)
        assert each.z == pytest.approx(wanted.statistic, rel=1e-9)


def test_cells_are_counted_by_standard_errors_alone(paper: list[Section]) -> None:
    found = Agreement.of(paper)
    pairs = [(each.cell.accuracy, each.published) for each in found.found]
    zs = [(ours.mean - theirs.mean) / math.hypot(ours.sem, theirs.sem) for ours, theirs in pairs]
    two, three = (sum(abs(z) <= k for z in zs) for k in (2, 3))
    assert f"of 59 published numbers {two} within 2 and {three} within 3 combined standard errors" in found.sentence
    assert len(found.beyond) == 59 - three


def test_half_a_point_helps_no_cell() -> None:
    """0.4 from a published number with errors of 0.02: agrees by the first rule, is far off by the second."""
    cell = a_cell(stream(), "class", "none")
    result = a_result(cell, 20.3, 0.01, 20)
    assert result.verdict
    assert str(result.verdict.outcome) == "agrees"
    found = Agreement.of([Section("table4", "Table 4", "table", [result])])
    assert (found.within(2), found.within(3)) == (0, 0)
    assert found.beyond[0][0] == "None, Class-IL, split-mnist"
    assert float(found.beyond[0][-1]) > 15


def test_few_seeds_and_diverged_ones_are_not_counted() -> None:
    few = a_result(a_cell(stream(), "class", "none"), 19.9, 0.05, 4)
    lost = a_result(a_cell(stream(), "class", "ewc"), 19.9, 0.05, 20, diverged=[3])
    found = Agreement.of([Section("table4", "Table 4", "table", [few, lost])])
    assert (found.sentence, found.beyond, list(found.found)) == ("", [], [])
    assert "combined standard errors alone" not in html.render([replace(a_table(seeds=2))])


def test_the_plot_is_a_quantile_plot(paper: list[Section]) -> None:
    (panel,) = Agreement.of(paper).chart.panels
    normal, ours = panel.lines
    expected = norm.ppf((np.arange(59) + 0.5) / 59)
    assert np.allclose(ours.x, expected)
    assert np.allclose([value.mean for value in normal.values], expected), "the diagonal"
    heights = [value.mean for value in ours.values]
    assert heights == sorted(heights)
    picture = drawn(panel)
    assert picture.count('class="dot"') == 59, "a dot for each, and no curve through them"
    assert picture.count("<polyline") == 1
    assert "LwF, Domain-IL, permuted-mnist: " in picture


def test_reports_and_figures_have_it(paper: list[Section], tmp_path: Path) -> None:
    sentence = Agreement.of(paper).sentence
    assert "√(SEM² + SEM²)" in sentence
    told = {format: render(paper, format, plain=True) for format in ("html", "markdown", "terminal")}
    assert all("By standard errors alone, without the half point" in text for text in told.values())
    assert "expected of a normal distribution" in told["html"]
    names = {path.name for path in save_figures(paper[:1], tmp_path, ["svg"])}
    assert "agreement.svg" in names
