"""Accuracy during training as reports draw it: what is drawn is what the stored curves say, by hand."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fake_sections import a_cell, a_result, stream
from fake_training import a_tested_result, stability
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from threefold.experiments import Result, Section
from threefold.report import render, svg
from threefold.report.charts import charts
from threefold.report.drawing_training import draw_training
from threefold.report.during_training import during, key_of, thinned
from threefold.report.figures import STYLE
from threefold.report.svg import LEFT, TALL, TOP, WHOLE, WIDE
from threefold.report.tables import result_tables
from threefold.results import Record, pack, unpack

Stored = dict[tuple[int, int], list[float]]


def stored(record: Record) -> Stored:
    """By task and step, each task's last step as −1."""
    points = unpack(record.curves["points"]).tolist()
    ends = {task: step for task, step, _ in points}
    accuracy = unpack(record.curves["accuracy"]).astype(float).tolist()
    return {
        (task, -1 if step == ends[task] else step): row for (task, step, _), row in zip(points, accuracy, strict=True)
    }


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def cut_short(record: Record, task: int, steps: int) -> Record:
    """The same run, had this task taken fewer steps: what was tested later is gone, its last point is earlier."""
    points, accuracy = unpack(record.curves["points"]).copy(), unpack(record.curves["accuracy"])
    last = int(points[points[:, 0] == task, 1].max())
    there = (points[:, 0] != task) | (points[:, 1] < steps) | (points[:, 1] == last)
    points[(points[:, 0] == task) & (points[:, 1] == last), 1] = steps
    return replace(record, curves={"points": pack(points[there]), "accuracy": pack(accuracy[there])})


@pytest.fixture(scope="module")
def result() -> Result:
    """Four seeds, of which one diverged and one took fewer steps on its second task."""
    found = a_tested_result("task", "er:budget=500", 85.0, iters=40, every=10, first=4, seeds=4, diverged=[3])
    records = [cut_short(record, 1, 25) if place == 1 else record for place, record in enumerate(found.records)]
    return Result(found.cell, records)


def test_means_and_errors_are_those_of_the_stored_curves(result: Result) -> None:
    shown = during(result)
    assert shown
    seeds = [stored(record) for record in result.records if record.status == "finished"]
    assert len(seeds) == 3
    common = [point for point in seeds[0] if all(point in each for each in seeds)]
    assert ((1, 30) in seeds[0], (1, 30) in common) == (True, False), "one seed was not tested there"
    assert shown.tasks.tolist() == [task for task, _ in common]
    for place, point in enumerate(common):
        for task in range(5):
            mean, error = mean_and_error([each[point][task] for each in seeds])
            assert shown.mean[place, task] == pytest.approx(mean)
            assert shown.sem[place, task] == pytest.approx(error)
    assert shown.switches == [40, 80, 120, 160]
    assert shown.steps == [40 * task + (40 if step < 0 else step) for task, step in common]


def test_the_gap_is_that_of_the_mean(result: Result) -> None:
    """In the second task: the first task's mean, from its end on."""
    shown = during(result)
    assert shown
    seeds = [stored(record) for record in result.records if record.status == "finished"]
    path = [(0, 0, -1), *((step, 1, step) for step in (1, 2, 3, 4, 10, 20)), (40, 1, -1)]
    curve = [(at, sum(each[task, step][0] for each in seeds) / 3) for at, task, step in path]
    lowest = min(curve, key=lambda point: point[1])
    depth = min(curve[0][1], curve[-1][1]) - lowest[1]
    gap = shown.gaps[0]
    assert (gap.at, gap.lowest, gap.depth) == (lowest[0], pytest.approx(lowest[1]), pytest.approx(depth))
    assert depth > 5
    regained = next(at for at, value in curve if at >= lowest[0] and value >= lowest[1] + 0.9 * depth)
    assert gap.recovered == regained
    earlier = shown.earlier()
    assert math.isnan(earlier[0])
    assert earlier[shown.steps.index(90)] == pytest.approx(shown.mean[shown.steps.index(90), :2].mean())


def back(wide: int, last: int) -> Callable[[str], list[tuple[float, float]]]:
    """From a picture's points to steps and per cent."""

    def read(points: str) -> list[tuple[float, float]]:
        pairs = [tuple(map(float, pair.split(","))) for pair in points.split()]
        across = wide - 46 - LEFT - 12
        return [((x - LEFT - 6) / across * last, 101 * (1 - (y - TOP) / (TALL - TOP - 36))) for x, y in pairs]

    return read


@pytest.mark.parametrize("wide", [WIDE, WHOLE])
def test_the_page_draws_these_numbers(result: Result, wide: int) -> None:
    shown = during(result)
    assert shown
    (board,) = result_tables(Section("a", "A", "table", [result]))
    (cell,) = board.cells
    text = svg.training(cell, shown, wide)
    assert f'viewBox="0 0 {wide} ' in text
    read, pixel = back(wide, 200), (200 / (wide - 104), 101 / 184)
    lines = re.findall(r'<polyline class="line thin" points="([^"]+)"', text)
    bands = re.findall(r'<polygon class="band" points="([^"]+)"', text)
    assert len(lines) == len(bands) == 5
    for task, (line, band) in enumerate(zip(lines, bands, strict=True)):
        drawn = read(line)
        assert len(drawn) == len(shown.steps), "few points: each of them is drawn"
        for (x, y), step, mean in zip(drawn, shown.steps, shown.mean[:, task], strict=True):
            assert x == pytest.approx(step, abs=pixel[0])
            assert y == pytest.approx(mean, abs=pixel[1])
        both = [y for _, y in read(band)]
        upper, lower = both[: len(drawn)], both[len(drawn) :][::-1]
        assert upper == pytest.approx((shown.mean + shown.sem)[:, task].tolist(), abs=pixel[1])
        assert lower == pytest.approx((shown.mean - shown.sem)[:, task].tolist(), abs=pixel[1])
    switches = [read(f"{x},0")[0][0] for x in re.findall(r'class="switch" d="M([\d.]+) ', text)]
    assert switches == pytest.approx([40, 80, 120, 160], abs=pixel[0])
    rings = re.findall(r'class="ring" cx="([\d.]+)" cy="([\d.]+)"', text)
    marked = [(switch + gap.at, gap.lowest) for switch, gap in zip(shown.switches, shown.gaps, strict=True)]
    assert len(rings) == len(marked) == 4
    for (x, y), (step, lowest) in zip(rings, marked, strict=True):
        ((at, value),) = read(f"{x},{y}")
        assert (at, value) == (pytest.approx(step, abs=pixel[0]), pytest.approx(lowest, abs=pixel[1]))
    dashed = [read(points) for points in re.findall(r'class="earlier" points="([^"]+)"', text)]
    assert [round(points[-1][0]) for points in dashed] == [80, 120, 160, 200]
    assert "mean of 3 of 4 seeds; 1 diverged" in text


def test_figures_draw_these_numbers(result: Result) -> None:
    shown = during(result)
    assert shown
    (board,) = result_tables(Section("a", "A", "table", [result]))
    (axis,) = draw_training(board).axes
    curves = [line for line in axis.lines if len(line.get_xdata()) == len(shown.steps)]
    assert len(curves) == 5
    for task, line in enumerate(curves):
        assert np.asarray(line.get_xdata()).tolist() == shown.steps
        assert np.asarray(line.get_ydata()).tolist() == pytest.approx(shown.mean[:, task].tolist())
    bands = [np.concatenate([path.vertices for path in each.get_paths()]) for each in axis.collections]
    assert {
        (step, round(value, 9)) for step, value in zip(shown.steps, shown.mean[:, 0] + shown.sem[:, 0], strict=True)
    } <= {(x, round(y, 9)) for x, y in bands[0]}


@pytest.mark.parametrize("iters", [2000, 120])
def test_no_words_of_a_figure_leave_it_or_meet(iters: int) -> None:
    """Two scenarios make a narrow figure of which the legend ran off; numbers below panels touched each other."""
    with rc_context(STYLE):
        figure = draw_training(result_tables(stability(seeds=2, iters=iters))[0])
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    beyond = {  # ticks that are not drawn
        label
        for axis in figure.axes
        for tick, label in zip(axis.get_xticks(), axis.get_xticklabels(), strict=False)
        if tick > axis.get_xlim()[1]
    }
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible() and text not in beyond]
    boxes = {text: text.get_window_extent() for text in texts}
    for text, box in boxes.items():
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, text
    below = [boxes[label] for axis in figure.axes for label in axis.get_xticklabels() if label in boxes]
    assert len({box.y0 for box in below}) == 1, "below the lowest panels only"
    assert len(below) > 3
    for left, right in pairwise(sorted(below, key=lambda box: box.x0)):
        assert right.x0 - left.x1 > 10


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 100)), min_size=1, max_size=60))
def test_thinning_keeps_what_can_be_seen(points: list[tuple[float, float]]) -> None:
    points = sorted(points, key=lambda point: point[0])
    xs, ys = zip(*points, strict=True)
    kept = thinned(xs, np.array(ys))
    assert kept == sorted(set(kept))
    for column in {int(x) for x in xs}:
        inside = [y for x, y in points if int(x) == column]
        shown = [ys[place] for place in kept if int(xs[place]) == column]
        assert (min(shown), max(shown), shown[0], shown[-1]) == (min(inside), max(inside), inside[0], inside[-1])
        assert len(shown) <= 4


def test_after_a_switch_means_are_taken_over_switches_then_seeds() -> None:
    found = a_tested_result("domain", "ewc", 70.0, iters=60, every=20, first=30, seeds=3)
    ((_, chart),) = charts([Section("gap", "Gap", "table", [found])])
    (panel,) = chart.panels
    (line,) = panel.lines
    assert (panel.title, line.label, list(line.x)) == ("split-mnist, Domain-IL", "EWC", [float(s) for s in range(31)])
    for step, value in zip(line.x, line.values, strict=True):
        each = []
        for record in found.records:
            curve = stored(record)
            of_task = [curve[(task, step) if step else (task - 1, -1)][:task] for task in range(1, 5)]
            each.append(sum(sum(row) / len(row) for row in of_task) / 4)
        mean, error = mean_and_error(each)
        assert (value.mean, value.sem, value.n) == (pytest.approx(mean), pytest.approx(error), 3)
    assert (
        "each of the first 30 steps of a new task, averaged over the 4 switches. Means over 3 seeds." in chart.caption
    )


def test_methods_are_lines_and_scenarios_panels() -> None:
    section = stability(seeds=2, iters=120)
    ((_, chart),) = charts([section])
    assert chart.columns == ["Task-IL", "Domain-IL"]
    for panel in chart.panels:
        assert [line.label for line in panel.lines] == ["None", "EWC", "ER (budget=1000)", "DGR", "Offline"]
    assert len({line.hue for line in chart.panels[0].lines}) == 5
    for kind in ("markdown", "latex", "terminal", "html"):
        text = render([section], kind, plain=True)
        assert "After a switch of tasks on split-mnist" in text, kind
    rows = [line for line in render([section], "markdown").splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row.split("|")[1]) for row in rows] == [0, 1, 2, 5, 10, 20, 50, 100] * 2, "few of the steps are listed"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"first": 0}, "not tested right after switches"),
        ({"boundaries": "blurred:width=5"}, "no task ends"),
        ({"diverged": [1, 2]}, "all seeds diverged"),
    ],
)
def test_where_there_is_nothing_after_switches(settings: dict[str, object], why: str) -> None:
    found = a_tested_result("task", "none", 70.0, **{"iters": 40, "every": 10, "first": 5, "seeds": 2} | settings)
    assert charts([Section("gap", "Gap", "table", [found])]) == [], why


BLURRED = "blurred:width=5"


@pytest.mark.parametrize(("boundaries", "turns"), [(BLURRED, [20, 60, 100, 140, 180]), ("none", [])])
def test_without_ends_fades_are_marked_and_no_gaps(boundaries: str, turns: list[int]) -> None:
    """The first task is there for half its steps, then each in turn, and the first again."""
    found = a_tested_result("class", "none", 30.0, iters=40, every=10, seeds=2, boundaries=boundaries)
    shown = during(found)
    assert shown
    assert (shown.switches, shown.gaps) == (turns, [])
    page = render([Section("a", "A", "table", [found])], "html")
    assert page.count('class="switch"') == 2 * len(turns)  # once for wide pages, once for narrow ones
    assert ("middle of each fade" in page) == bool(turns)
    for said, there in {
        "stretches of training": True,
        "after stretch of training": True,
        "tasks trained": False,
    }.items():
        assert (said in page) == there, said
    assert 'class="earlier"' not in page


def words(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text)}


def test_axes_say_what_rows_come_after() -> None:
    from threefold.report.drawing import draw_curves, draw_matrices

    ended = a_tested_result("task", "none", 70.0, iters=40, every=10, seeds=2)
    flow = a_tested_result("task", "none", 70.0, iters=40, every=10, seeds=2, boundaries=BLURRED)
    for results, across, down in (
        ([ended], "tasks trained", "after task"),
        ([flow], "stretches of training", "after stretch of training"),
        ([ended, flow], "tasks trained, stretches of training", "after task or stretch of training"),
    ):
        (board,) = result_tables(Section("a", "A", "table", results))
        assert across in words(draw_curves(board))
        assert down in words(draw_matrices(board))


def test_the_key_says_what_is_drawn() -> None:
    def key(dip: float, **settings: object) -> str:
        shown = during(a_tested_result("task", "er:budget=500", 90.0, iters=60, every=5, dip=dip, **settings))
        assert shown
        return key_of(shown)

    assert key(0.0) == "Bands: ± 1 SEM. Dotted: the switches of tasks. Dashed: the average over earlier tasks."
    assert key(30.0).startswith(key(0.0))
    assert "Rings: the lowest point of a gap" in key(30.0)
    assert key(0.0, boundaries="none") == "Bands: ± 1 SEM."


def bare(found: Result, points: list[list[int]]) -> Result:
    """The result, its first run with these points alone."""
    rows = pack(np.array(points, dtype=np.int64))
    curve = {"points": rows, "accuracy": pack(np.full((len(points), 5), 50.0))}
    return Result(found.cell, [replace(found.records[0], curves=curve), *found.records[1:]])


@pytest.mark.parametrize("points", [[[0, 0, 1]], [[4, 7, 5]], [[0, 0, 1], [3, 2, 4]]])
def test_curves_from_elsewhere_break_no_page(points: list[list[int]]) -> None:
    """One point before training, or none in common with the other seeds."""
    found = bare(a_tested_result("task", "none", 70.0, iters=40, every=10, first=5, seeds=2), points)
    for kind in ("html", "markdown"):
        assert "70" in render([Section("a", "A", "table", [found])], kind)


def test_a_run_that_nobody_tested_has_no_such_figure() -> None:
    plain = a_result(a_cell(stream(), "task", "none"), 70.0, seeds=2)
    assert during(plain) is None
    assert "during training" not in render([Section("a", "A", "table", [plain])], "html")


def test_all_kept_points_of_the_longest_runs_fit_a_page() -> None:
    """Twenty seeds, 599 points of five tasks: a cell of the page stays small."""
    found = a_tested_result("task", "er:budget=1000", 90.0, first=100, seeds=3)
    with_curves = len(render([Section("a", "A", "table", [found])], "html"))
    plain = Result(found.cell, [replace(record, curves={}) for record in found.records])
    assert with_curves - len(render([Section("a", "A", "table", [plain])], "html")) < 150_000
