"""Accuracy during training, averaged over seeds: a curve for each task, and what a switch does to the earlier tasks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from threefold.experiments import Result, Section
from threefold.report.formatting import count, title
from threefold.report.panels import Chart, Line, Panel, seeds_of
from threefold.results import Curve, summarize
from threefold.results.metrics import Gap, gaps

Array = NDArray[np.float64]
Point = tuple[int, int]
SEEN = 1.0  # points of accuracy: a gap that is less deep is not marked
END = -1  # the step of a task's last point, whose number may differ between seeds
SHOWN = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)  # steps after a switch that tables list


@dataclass(frozen=True, eq=False)
class During:
    """The curves of one cell. Points are those at which all seeds were tested that did not diverge."""

    steps: Sequence[int]  # of training so far
    tasks: NDArray[np.int64]  # in whose training each point lies
    mean: Array  # points × tasks
    sem: Array
    switches: Sequence[int]  # steps after which the second task begins, the third, …; or in the middle of a fade
    gaps: Sequence[Gap]  # of the mean over seeds

    def earlier(self) -> Array:
        """The average over all tasks before the one in training; NaN in the first."""
        rows = zip(self.mean, self.tasks, strict=True)
        return np.array([row[:task].mean() if task else math.nan for row, task in rows])


def during(result: Result) -> During | None:
    """None where tasks were tested at their ends only, or all seeds diverged."""
    curves = [curve for curve in _curves(result) if curve.total.any()]
    by_point = [_by_point(curve) for curve in curves]
    points = [point for point in (by_point or [{}])[0] if all(point in each for each in by_point)]
    if not points:
        return None
    values = np.array([[each[point] for point in points] for each in by_point])
    mean = values.mean(axis=0)
    sem = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
    tasks = np.array([task for task, _ in points])
    lengths = [max(_length(curve, task) for curve in curves) for task in range(int(tasks.max()) + 1)]
    steps = np.array([lengths[task] if at == END else at for task, at in points])
    begins = np.cumsum([0, *lengths])
    whole = Curve(tasks, steps, tasks + 1, mean)
    stream, ends = result.cell.stream, curves[0].has_ends
    shares = lengths if ends else [lengths[0] // stream.tasks] * stream.tasks
    return During(
        steps=(begins[tasks] + steps).tolist(),
        tasks=tasks,
        mean=mean,
        sem=sem,
        switches=stream.boundaries.turns(shares),
        gaps=gaps(whole) if ends else [],
    )


def key_of(shown: During) -> str:
    """What is marked beside the curves, as far as it is there."""
    if not shown.gaps:
        return "Bands: ± 1 SEM." + " Dotted: the middle of each fade from one task to another." * bool(shown.switches)
    told = "Bands: ± 1 SEM. Dotted: the switches of tasks. Dashed: the average over earlier tasks."
    deep = any(gap.depth >= SEEN for gap in shown.gaps)
    return told + " Rings: the lowest point of a gap that is made up later." * deep


def thinned(pixels: Sequence[float] | Array, values: Array) -> list[int]:
    """Of many points those that can be told apart: in each column of pixels the first, the lowest, the highest, the
    last."""
    columns: dict[int, list[int]] = {}
    for place, x in enumerate(pixels):
        columns.setdefault(int(x), []).append(place)
    kept = set()
    for column in columns.values():
        own = values[column]
        kept |= {column[0], column[int(own.argmin())], column[int(own.argmax())], column[-1]}
    return sorted(kept)


def _curves(result: Result) -> list[Curve]:
    found = (record.curve for record in result.records if record.status == "finished")
    return [curve.complete() for curve in found if curve]


def _length(curve: Curve, task: int) -> int:
    """How many steps a task took."""
    return int(curve.step[curve.task == task].max(initial=0))


def _by_point(curve: Curve) -> dict[Point, Array]:
    """The accuracies at each point, a task's last point as `END`."""
    last = np.append(np.diff(curve.task) > 0, True)
    steps = np.where(last, END, curve.step)
    points = zip(curve.task.tolist(), steps.tolist(), strict=True)
    return dict(zip(points, curve.accuracy, strict=True))


def after_switches(section: Section) -> list[Chart]:
    """The stability gap of an experiment that tests all tasks after each of the first steps of every task: for each
    stream a figure with a panel for each scenario and a line for each method."""
    found = [result for result in section.results if _first(result) and _ends(result)]
    charts = []
    for stream in dict.fromkeys(result.cell.stream.title for result in found):
        mine = [result for result in found if result.cell.stream.title == stream]
        names = list(dict.fromkeys(title(result.cell.method) for result in mine))
        panels = [
            _panel(stream, scenario, [r for r in mine if r.cell.scenario.title == scenario], names)
            for scenario in dict.fromkeys(result.cell.scenario.title for result in mine)
        ]
        panels = [panel for panel in panels if panel.lines]
        most = max(_first(result) for result in mine)
        switches = mine[0].cell.stream.tasks - 1
        seeds = seeds_of([value for panel in panels for line in panel.lines for value in line.values])
        charts.append(
            Chart(
                f"{section.name}-{stream}-switch",
                f"After a switch of tasks on {stream}",
                f"Average accuracy on all earlier tasks of {stream} after each of the first {count(most, 'step')} of a"
                f" new task, averaged over the {count(switches, 'switch', 'switches')}. Means over {seeds}.",
                "Bands: ± 1 SEM. Step 0 is the end of the task before.",
                panels,
                listed=SHOWN,
            )
        )
    return [chart for chart in charts if chart.panels]


def _first(result: Result) -> int:
    evaluation = result.cell.training.evaluation
    return evaluation.first if evaluation and result.cell.stream.tasks > 1 else 0


def _ends(result: Result) -> bool:
    curves = _curves(result)
    return bool(curves) and all(curve.has_ends for curve in curves)


def _panel(stream: str, scenario: str, results: Sequence[Result], names: Sequence[str]) -> Panel:
    lines = []
    for result in results:
        name = title(result.cell.method)
        of_seed = [_after_switches(curve, _first(result)) for curve in _curves(result)]
        points = {
            float(step): summarize(values[step] for values in of_seed)
            for step in range(_first(result) + 1)
            if all(step in values for values in of_seed)
        }
        if points:
            lines.append(Line.through(name, points, names.index(name)))
    return Panel(stream, scenario, "steps after the switch", False, lines, stream=stream)


def _after_switches(curve: Curve, first: int) -> dict[int, float]:
    """The average accuracy on earlier tasks so many steps after a switch, over all switches."""
    places = {point: place for place, point in enumerate(zip(curve.task.tolist(), curve.step.tolist(), strict=True))}
    tasks = range(1, int(curve.task.max()) + 1)
    found = {}
    for step in range(first + 1):
        at = [places.get((task, step) if step else (task - 1, _length(curve, task - 1))) for task in tasks]
        if at and None not in at:
            rows = zip(at, tasks, strict=True)
            found[step] = float(np.mean([curve.accuracy[place, :task].mean() for place, task in rows]))
    return found
