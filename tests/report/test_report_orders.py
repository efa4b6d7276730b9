"""The spread over orders of the tasks beside that over seeds."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import stdev

import pytest
from fake_training import ordered

from threefold.experiments import Result, Section
from threefold.report import render, save_figures, svg
from threefold.report.charts import charts
from threefold.report.drawing import draw_chart
from threefold.report.orders import SIDES, both_sides
from threefold.report.panels import deviation, runs_of, scattered
from threefold.results import Ordered, Seed, summarize

MANY_ORDERS = [Ordered(1, order) for order in (1, 2, 3, 4)]
MANY_SEEDS = [Ordered(seed, 1) for seed in (2, 3, 4, 5, 6)]
BOTH = [*MANY_ORDERS, *MANY_SEEDS]


def test_sides_by_hand() -> None:
    result = ordered("none", BOTH)
    ends = [sum(record.matrix[-1]) / 5 for record in result.records]
    sides = both_sides(result)
    assert sides
    assert list(sides[0].per_seed) == pytest.approx(ends[:4])
    assert list(sides[1].per_seed) == pytest.approx([ends[0], *ends[4:]]), "a run is on both sides"
    assert deviation(sides[0]) == pytest.approx(stdev(ends[:4]))
    assert deviation(sides[1]) == pytest.approx(stdev([ends[0], *ends[4:]]))


@pytest.mark.parametrize("seeds", [[1, 2, 3], MANY_ORDERS, MANY_SEEDS, [Ordered(1, 2), Ordered(2, 1)]])
def test_one_side_alone_is_not_drawn(seeds: Sequence[Seed]) -> None:
    section = Section("a", "A", "table", [ordered("none", seeds)])
    assert both_sides(section.results[0]) is None
    assert charts([section]) == []


@pytest.fixture(scope="module")
def section() -> Section:
    results = [
        ordered(method, BOTH, scenario)
        for method in ("none", "ewc", "lwf:reduction=mean", "er:budget=1000")
        for scenario in ("domain", "class")
    ]
    return Section("orders", "Orders", "table", results)


def test_a_panel_for_each_scenario_and_a_place_for_each_method(section: Section) -> None:
    ((_, chart),) = charts([section])
    assert [panel.title for panel in chart.panels] == ["split-mnist, Domain-IL", "split-mnist, Class-IL"]
    assert "4 orders of the tasks with one seed beside 6 seeds with one order" in chart.caption
    for panel in chart.panels:
        assert list(panel.names) == ["None", "EWC", "LwF", "ER"]
        assert [line.label for line in panel.lines] == list(SIDES)


def test_methods_that_are_alike_but_for_numbers_have_them_in_their_names() -> None:
    results = [ordered(f"er:budget={budget}", BOTH) for budget in (100, 1000)]
    ((_, chart),) = charts([Section("orders", "Orders", "table", results)])
    assert list(chart.panels[0].names) == ["ER (budget=100)", "ER (budget=1000)"]


def test_every_run_is_a_dot_at_its_accuracy(section: Section) -> None:
    ((_, chart),) = charts([section])
    panel = chart.panels[0]
    text = svg.chart(panel)
    paths = re.findall(r'class="runs" d="([^"]+)"', text)
    assert len(paths) == 2 * 4
    values = [value for line in panel.lines for value in line.values]
    ys = [[float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h0", path)] for path in paths]
    assert [len(each) for each in ys] == [4] * 4 + [6] * 4
    pairs = [
        (y, accuracy)
        for each, value in zip(ys, values, strict=True)
        for y, accuracy in zip(each, value.per_seed, strict=True)
    ]
    (y0, a0), (y1, a1) = min(pairs, key=lambda pair: pair[1]), max(pairs, key=lambda pair: pair[1])
    for y, accuracy in pairs:
        assert y == pytest.approx(y0 + (accuracy - a0) / (a1 - a0) * (y1 - y0), abs=0.2)
    bars = re.findall(r'class="range" d="M[\d.]+ ([\d.]+)V([\d.]+)"', text)
    slope = (y1 - y0) / (a1 - a0)
    for (low, high), value in zip(bars, values, strict=True):
        assert abs(float(low) - float(high)) == pytest.approx(-slope * 2 * stdev(value.per_seed), abs=0.3)
    xs = [[float(x) for x in re.findall(r"M([\d.]+) ", path)] for path in paths]
    spans = sorted((min(each), max(each)) for each in xs)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(spans)), "sides do not mix"


def test_figures_draw_the_same(section: Section) -> None:
    ((_, chart),) = charts([section])
    for axis, panel in zip(draw_chart(chart).axes, chart.panels, strict=True):
        drawn = [[float(y) for y in line.get_ydata()] for line in axis.lines if line.get_alpha()]
        assert drawn == [list(value.per_seed) for line in panel.lines for value in line.values]
        assert [label.get_text() for label in axis.get_xticklabels()] == list(panel.names)


def test_the_numbers_are_told(section: Section, tmp_path_factory: pytest.TempPathFactory) -> None:
    sides = both_sides(section.results[0])
    assert sides
    told = [f"{value.mean:.2f} (SD {stdev(value.per_seed):.2f}, n = {value.n})" for value in sides]
    assert f"| None | {told[0]} | {told[1]} |" in render([section], "markdown")
    for kind in ("html", "terminal", "latex"):
        text = " ".join(render([section], kind, plain=True).split())
        assert told[0].partition(",")[0] in text, kind
        assert "Runs share seeds or orders of the tasks" in text, kind
    names = [path.name for path in save_figures([section], tmp_path_factory.mktemp("figures"), ["svg"])]
    assert "orders-split-mnist-orders.svg" in names


def test_a_run_that_diverged_has_no_dot_and_its_side_no_mean() -> None:
    result = ordered("none", BOTH, diverged=[2])
    ((_, chart),) = charts([Section("a", "A", "table", [result])])
    lost, kept = (line.values[0] for line in chart.panels[0].lines)
    assert math.isnan(lost.mean)
    assert not math.isnan(kept.mean)
    text = svg.chart(chart.panels[0])
    assert (text.count("h0"), text.count('class="range"')) == (3 + 6, 1)
    assert "nan" not in text
    draw_chart(chart).draw_without_rendering()


def test_the_picture_of_other_numbers_is_another(section: Section) -> None:
    ((_, chart),) = charts([section])
    fewer = [Result(result.cell, result.records[:-1]) for result in section.results]
    ((_, other),) = charts([replace(section, results=fewer)])
    assert chart.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ([1, 2, 3], "3 seeds"),
        ([1], "1 seed"),
        (MANY_ORDERS, "1 seed in 4 orders"),
        ([Ordered(s, o) for s in (1, 2) for o in (1, 2, 3)], "2 seeds in 3 orders"),
        (BOTH, "9 runs"),
        ([1, *MANY_ORDERS], "5 runs"),
    ],
)
def test_runs_in_words(seeds: Sequence[Seed], said: str) -> None:
    assert runs_of(summarize([1.0] * len(seeds), seeds)) == said
    if len(seeds) > 1:
        text = render([Section("a", "A", "table", [ordered("none", seeds)])], "markdown")
        assert f"(mean ± SEM of {said})" in text
        assert f" over {said};" in render([Section("a", "A", "table", [ordered("none", seeds)])], "html")
        assert ("Runs share seeds" in text) == (said != "3 seeds")


def test_scattered_points_keep_their_distance() -> None:
    places = scattered([0.0] * 100)
    assert all(-0.5 <= place <= 0.5 for place in places)
    ordered_places = sorted(places)
    assert min(right - left for left, right in itertools.pairwise(ordered_places)) > 1e-4
