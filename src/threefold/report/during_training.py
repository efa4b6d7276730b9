"""Accuracy during training, averaged over seeds: a curve for each task, and the effect of switches on earlier tasks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from threefold.experiments import Result, Section
from threefold.report.formatting import count, title
from threefold.report.panels import Chart, Line, Panel, seeds_of
from threefold.results import Curve, summarize
from threefold.results.curve import STEPS
from threefold.results.metrics import Gap, gaps

Array = NDArray[np.float64]
SEEN = 1.0  # per cent points: shallower gaps are not marked
END = STEPS + 1  # the step of a task's last point, whose number may differ between seeds
SHOWN = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)  # steps after a switch that tables list


@dataclass(frozen=True, eq=False)
class During:
    """The curves of one cell, at points where all seeds that did not diverge were tested."""

    steps: Sequence[int]  # of training so far
    tasks: NDArray[np.int64]  # the task in training at each point
    mean: Array  # points × tasks
    sem: Array
    switches: Sequence[int]  # steps after which the second task begins, the third, …; or the middle of each fade
    gaps: Sequence[Gap]  # of the mean over seeds

    def earlier(self) -> Array:
        """The average over all tasks before the one in training; NaN in the first."""
        rows = zip(self.mean, self.tasks, strict=True)
        return np.array([row[:task].mean() if task else math.nan for row, task in rows])


def during(result: Result) -> During | None:
    """The curves of a result; None if tasks were tested at their ends only, or all seeds diverged.

    Curves are read one at a time, as all of them may not fit into memory.
    """
    common: NDArray[np.int64] | None = None
    lengths = np.zeros(0, dtype=np.int64)
    has_ends = True
    for curve in _curves(result):
        places = _places(curve)
        common = places if common is None else common[np.isin(common, places)]
        size = max(len(lengths), len(curve.lengths))
        lengths = np.maximum(*(np.pad(each, (0, size - len(each))) for each in (lengths, curve.lengths)))
        has_ends = has_ends and curve.has_ends
    if common is None or not len(common):
        return None
    mean, squares, seeds = np.zeros(1), np.zeros(1), 0
    for seeds, curve in enumerate(_curves(result), start=1):
        values = curve.accuracy[np.searchsorted(_places(curve), common)]
        before = mean
        mean = before + (values - before) / seeds
        squares = squares + (values - before) * (values - mean)
    sem = np.sqrt(squares / (seeds - 1) / seeds) if seeds > 1 else np.zeros_like(mean)
    tasks, steps = np.divmod(common, END + 1)
    steps = np.where(steps == END, lengths[tasks], steps)
    begins = np.cumsum([0, *lengths[: int(tasks.max()) + 1]])
    whole = Curve(tasks, steps, tasks + 1, mean)
    stream = result.cell.stream
    shares = lengths.tolist() if has_ends else [int(lengths[0]) // stream.tasks] * stream.tasks
    return During(
        steps=(begins[tasks] + steps).tolist(),
        tasks=tasks,
        mean=mean,
        sem=sem,
        switches=stream.boundaries.turns(shares),
        gaps=gaps(whole) if has_ends else [],
    )


def key_of(shown: During) -> str:
    """The legend of the marks that occur."""
    if not shown.gaps:
        return "Bands: ± 1 SEM." + " Dotted: the middle of each fade from one task to another." * bool(shown.switches)
    told = "Bands: ± 1 SEM. Dotted: the switches of tasks. Dashed: the average over earlier tasks."
    deep = any(gap.depth >= SEEN for gap in shown.gaps)
    return told + " Rings: the lowest point of a gap that is made up later." * deep


def thinned(pixels: Sequence[float] | Array, values: Array) -> list[int]:
    """The points that are distinguishable: in each column of pixels the first, the lowest, the highest and the last."""
    columns: dict[int, list[int]] = {}
    for place, x in enumerate(pixels):
        columns.setdefault(int(x), []).append(place)
    kept = set()
    for column in columns.values():
        own = values[column]
        kept |= {column[0], column[int(own.argmin())], column[int(own.argmax())], column[-1]}
    return sorted(kept)


def _curves(result: Result) -> Iterator[Curve]:
    """The curves of seeds that did not diverge, except those tested only before training."""
    found = (record.curve for record in result.records if record.status == "finished")
    return (curve for curve in (each.complete() for each in found if each) if curve.total.any())


def _places(curve: Curve) -> NDArray[np.int64]:
    """Each point as an increasing number; a task's last point has `END` for its step."""
    last = np.append(np.diff(curve.task) > 0, True)
    return curve.task * (END + 1) + np.where(last, END, curve.step)


def after_switches(section: Section) -> list[Chart]:
    """Figures of the stability gap, for an experiment that tests all tasks after each of the first steps of every task:
    one for each stream, with a panel for each scenario and a line for each method."""
    found = [result for result in section.results if _first(result) and _ends(result)]
    charts = []
    for stream in dict.fromkeys(result.cell.stream.label for result in found):
        mine = [result for result in found if result.cell.stream.label == stream]
        names = list(dict.fromkeys(title(result.cell.method) for result in mine))
        panels = [
            _panel(stream, scenario, [r for r in mine if r.cell.scenario.title == scenario], names)
            for scenario in dict.fromkeys(result.cell.scenario.title for result in mine)
        ]
        if not (panels := [panel for panel in panels if panel.lines]):
            continue
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
    return charts


def _first(result: Result) -> int:
    """How many steps at the start of every task are each followed by a test."""
    evaluation = result.cell.training.evaluation
    if not evaluation or result.cell.stream.tasks == 1:
        return 0
    return min(evaluation.first, max((int(curve.step.max()) for curve in _curves(result)), default=0))


def _ends(result: Result) -> bool:
    ends = [curve.has_ends for curve in _curves(result)]
    return bool(ends) and all(ends)


def _panel(stream: str, scenario: str, results: Sequence[Result], names: Sequence[str]) -> Panel:
    lines = []
    for result in results:
        name, first = title(result.cell.method), _first(result)
        of_seed = [_after_switches(curve, first) for curve in _curves(result)]
        common = sorted({*of_seed[0]}.intersection(*of_seed))
        points = {float(step): summarize(values[step] for values in of_seed) for step in common}
        lines += [Line.through(name, points, names.index(name))] if points else []
    return Panel(stream, scenario, "steps after the switch", False, lines, stream=stream)


def _after_switches(curve: Curve, first: int) -> dict[int, float]:
    """The average accuracy on earlier tasks by the number of steps after a switch, over all switches."""
    places = {point: place for place, point in enumerate(zip(curve.task.tolist(), curve.step.tolist(), strict=True))}
    tasks, lengths = range(1, int(curve.task.max()) + 1), curve.lengths.tolist()
    found = {}
    for step in [0, *(step for task, step in places if task == 1 and 0 < step <= first)]:
        at = [places.get((task, step) if step else (task - 1, lengths[task - 1])) for task in tasks]
        if at and None not in at:
            rows = zip(at, tasks, strict=True)
            found[step] = float(np.mean([curve.accuracy[place, :task].mean() for place, task in rows]))
    return found
