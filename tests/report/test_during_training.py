"""Curves of tests during training over the seeds of a cell, against plain loops; and curves from elsewhere."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_sections import a_cell, a_result, stream

from threefold.experiments import Result, Section
from threefold.report import save_figures
from threefold.report.during_training import after_switches, during
from threefold.results import pack

Points = Sequence[tuple[int, int]]


def with_curves(points: Sequence[Points], first: int = 2, lowest: float = 0.0) -> Result:
    """A cell of five tasks with these points of each seed, and accuracies drawn at random."""
    source = np.random.default_rng(3)
    how = {"iters": 9, "evaluate_every": 4, "evaluate_first": first}
    made = a_result(a_cell(stream(), "domain", "none", **how), 60, seeds=len(points))
    records = []
    for record, own in zip(made.records, points, strict=True):
        table = np.array([(*point, point[0] + 1) for point in own], dtype=np.int64).reshape(-1, 3)
        accuracy = source.uniform(lowest, 100, (len(own), 5))
        records.append(replace(record, curves={"points": pack(table), "accuracy": pack(accuracy)}))
    return replace(made, records=records)


def usual(last: int = 9) -> list[tuple[int, int]]:
    return [(0, 0), *((task, step) for task in range(5) for step in (1, 2, 4, 8, last))]


def section(*results: Result) -> Section:
    return Section("mine", "Mine", "table", list(results))


def test_means_and_errors_are_those_of_a_loop_over_seeds() -> None:
    """The last seed has other points besides, and another length, the end of a task is one point for all."""
    result = with_curves([usual(), usual(), sorted({*usual(11), (1, 3), (4, 7)} - {(2, 4)})])
    shown = during(result)
    assert shown is not None
    rows = []
    for record in result.records:
        curve = record.curve
        assert curve is not None
        points = list(zip(curve.task.tolist(), curve.step.tolist(), strict=True))
        ends = {task: max(step for own, step in points if own == task) for task in range(5)}
        names = [(task, "end" if step == ends[task] else step) for task, step in points]
        rows.append(dict(zip(names, curve.accuracy.tolist(), strict=True)))
    common = [name for name in rows[0] if all(name in row for row in rows)]
    assert len(common) == 1 + 5 * 5 - 1
    assert shown.steps == [11 * task + (11 if step == "end" else step) for task, step in common]
    assert shown.switches == [11, 22, 33, 44]
    for place, name in enumerate(common):
        each = list(zip(*(row[name] for row in rows), strict=True))
        assert shown.mean[place] == pytest.approx([statistics.fmean(own) for own in each])
        assert shown.sem[place] == pytest.approx([statistics.stdev(own) / math.sqrt(3) for own in each])


def test_one_seed_has_no_error() -> None:
    shown = during(with_curves([usual()]))
    assert shown is not None
    assert (shown.sem == 0).all()


def test_after_a_switch_it_is_the_mean_of_all_switches() -> None:
    result = with_curves([usual(), usual()])
    (chart,) = after_switches(section(result))
    ((line,),) = (panel.lines for panel in chart.panels)
    assert line.x == [0, 1, 2]
    for step, value in zip((9, 1, 2), line.values, strict=True):
        each = []
        for record in result.records:
            curve = record.curve
            assert curve is not None
            known = dict(zip(zip(curve.task.tolist(), curve.step.tolist(), strict=True), curve.accuracy, strict=True))
            each.append(statistics.fmean(known[task - (step == 9), step][:task].mean() for task in range(1, 5)))
        assert value.per_seed == pytest.approx(each)


@pytest.mark.parametrize("first", [9, 10**12])
def test_only_steps_that_are_there_are_looked_at(first: int) -> None:
    """However many first steps were asked for: a report must not count to 10¹²."""
    (chart,) = after_switches(section(with_curves([usual(), usual()], first)))
    assert chart.panels[0].lines[0].x == [0, 1, 2, 4, 8, 9]
    assert "each of the first 9 steps" in chart.caption


def test_seeds_that_have_no_point_in_common_have_no_curve(tmp_path: Path) -> None:
    result = with_curves([[(0, 1), (1, 1)], [(2, 1), (3, 1)]])
    assert during(result) is None
    assert after_switches(section(with_curves([[(1, 1), (3, 2)], [(0, 1), (4, 2)]]))) == []
    assert during(with_curves([[], []])) is None
    assert save_figures([section(result)], tmp_path, ["svg"])


def test_a_figure_of_very_many_points_is_small(tmp_path: Path) -> None:
    """What no eye can tell apart is not drawn."""
    points = [(task, step) for task in range(5) for step in range(1, 4001)]
    save_figures([section(with_curves([points, points]))], tmp_path, ["svg"])
    (file,) = tmp_path.glob("*training.svg")
    assert file.stat().st_size < 2_000_000


def test_curves_of_many_runs_are_not_kept_unpacked() -> None:
    record = with_curves([usual()]).records[0]
    assert record.metrics["average_anytime_accuracy"] > 0
    assert record.curve is not record.curve
