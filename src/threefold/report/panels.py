"""What figures show, before anything is drawn: panels of curves over a memory budget or a hyperparameter."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from threefold.experiments import Cell, Result, Section
from threefold.methods import METHODS, Method, paper
from threefold.report.words import short, strategy, title
from threefold.results import Summary


@dataclass(frozen=True)
class Line:
    """A curve. Its colour is a place in the palette (`hue`), or on a scale from 0 to 1 (`shade`)."""

    label: str
    x: Sequence[float]
    values: Sequence[Summary]
    hue: int = 0
    shade: float | None = None


@dataclass(frozen=True)
class Level:
    """A method that does not depend on x: a horizontal line."""

    label: str
    strategy: str
    value: Summary


@dataclass(frozen=True)
class Mark:
    """A point of a line that was selected: by the paper, or as the best of ours."""

    x: float
    value: Summary | None  # None: not one of the points that were tried
    line: int
    by: str  # "paper" or "best"


@dataclass(frozen=True)
class Panel:
    title: str
    x_label: str
    log: bool
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class Selected:
    """Which value of a hyperparameter was chosen in a scenario, and the accuracy it leads to."""

    method: str
    scenario: str
    paper: str
    paper_accuracy: Summary | None
    best: str
    best_accuracy: Summary | None
    honest: str = "–"  # chosen on a validation share of the first tasks: nothing that a learner could not have seen
    honest_accuracy: Summary | None = None


@dataclass(frozen=True)
class Chart:
    """Panels that belong together: one figure."""

    name: str
    title: str
    caption: str
    key: str  # what bands and marks mean
    panels: Sequence[Panel]
    selected: Sequence[Selected] = field(default=())


def charts(sections: Sequence[Section]) -> list[tuple[Section, Chart]]:
    """Every figure over budgets or hyperparameters, one for each experiment and protocol."""
    found = []
    for section in sections:
        if section.kind == "table":
            continue
        for protocol in dict.fromkeys(r.cell.protocol.title for r in section.results):
            results = [r for r in section.results if r.cell.protocol.title == protocol]
            name = f"{section.name}-{protocol}"
            others = [r for s in sections if s.kind == "table" for r in s.results if r.cell.protocol.title == protocol]
            draw = (
                _budgets(name, protocol, results, others)
                if section.kind == "budgets"
                else _grids(name, results, section.validation)
            )
            if draw.panels:
                found.append((section, draw))
    return found


USES = {"training": "stored data in training", "execution": "stored data in execution", "both": "in both"}


def _budgets(name: str, protocol: str, results: Sequence[Result], others: Sequence[Result]) -> Chart:
    panels = []
    for scenario in dict.fromkeys(r.cell.scenario.title for r in results):
        here = [r for r in results if r.cell.scenario.title == scenario]
        by_label: dict[str, dict[float, Summary]] = {}
        for result in here:
            budget, label = stored(result.cell)
            if budget is not None:
                by_label.setdefault(label, {})[budget] = result.accuracy
        order = [*USES.values(), METHODS["icarl"].title]
        hues = {label: i for i, label in enumerate(dict.fromkeys([*order, *by_label]))}
        lines = [_line(label, points, hues[label]) for label, points in by_label.items()]
        lines.sort(key=lambda line: line.hue)
        if lines:
            panels.append(Panel(scenario, "number of stored samples", True, lines, _levels(here, others)))
    caption = (
        f"Average accuracy over all tasks on {protocol}, as a function of the number of samples that may be stored."
    )
    key = "Bands: ± 1 SEM. Horizontal lines: methods that store nothing."
    return Chart(name, f"Stored data on {protocol}", caption, key, panels)


def stored(cell: Cell) -> tuple[int | None, str]:
    """The memory budget of a cell, None if it has none, and what the samples are stored for."""
    part = next((p for p in cell.method.parts if hasattr(p, "budget")), None)
    if part is None:
        return None, title(cell.method)
    label = METHODS[part.name].title if part.name in METHODS else part.name
    if part.name == "er" and len(cell.method.parts) == 1:
        label = USES.get(str(getattr(part, "use", "")), label)
    elif len(cell.method.parts) > 1:
        label = cell.method.name
    return int(part.budget), label


def _levels(here: Sequence[Result], others: Sequence[Result]) -> list[Level]:
    """The methods without a memory: of this experiment, or else of a table that was trained in the same way."""
    like = here[0].cell
    plain = [r for r in here if stored(r.cell)[0] is None]
    plain = plain or [
        r
        for r in others
        if stored(r.cell)[0] is None
        and r.cell.task_id_in != "hidden"
        and (r.cell.scenario.title, r.cell.training.iters) == (like.scenario.title, like.training.iters)
    ]
    found = {title(r.cell.method): r for r in plain if not math.isnan(r.accuracy.mean)}
    brief = [_untuned(r.cell.method) for r in found.values()]
    return [
        Level(name if brief.count(name) == 1 else full, strategy(r.cell.method), r.accuracy)
        for (full, r), name in zip(found.items(), brief, strict=True)
    ]


def _grids(name: str, results: Sequence[Result], validation: Sequence[Result]) -> Chart:
    protocol = results[0].cell.protocol.title
    single, double, selected = [], [], []
    for method in dict.fromkeys(r.cell.method.name for r in results):
        group = [r for r in results if r.cell.method.name == method]
        by_scenario = {
            scenario: [r for r in group if r.cell.scenario.title == scenario]
            for scenario in dict.fromkeys(r.cell.scenario.title for r in group)
        }
        axes = _axes(by_scenario.values())
        if not axes:
            continue
        label = _untuned(group[0].cell.method)
        held = [
            r
            for r in validation
            if r.cell.method.name == method and r.cell.protocol.name == results[0].cell.protocol.name
        ]
        for scenario, some in by_scenario.items():
            seen = [r for r in held if r.cell.scenario.title == scenario]
            selected.append(_selected(label, scenario, some, axes, _best(seen)))
        if len(axes) == 1:
            single.append(_grid_panel(label, by_scenario, axes[0]))
        else:
            for scenario, some in by_scenario.items():
                shades = {_value(r.cell.method, axes[1]): r for r in some}
                lines = {v: [r for r in some if _value(r.cell.method, axes[1]) == v] for v in sorted(shades)}
                double.append(_two_way_panel(f"{label}, {scenario}", lines, axes))
    caption = f"Average accuracy over all tasks on {protocol} for each value of the hyperparameters."
    key = (
        "Bands: ± 1 SEM. Rings: the value that the paper selected (on the axis if it is not one of those tried)."
        " Dots: the best of ours. Both look at the test sets of all tasks. Crosses: diverged."
    )
    return Chart(name, f"Hyperparameters on {protocol}", caption, key, [*single, *double], selected)


Axis = tuple[str, str]  # part, hyperparameter


def _axes(groups: Iterable[Sequence[Result]]) -> list[Axis]:
    """The numeric hyperparameters that take several values in some scenario, the one with most values first.

    Two at most are drawn.
    """
    most: dict[Axis, int] = {}
    for group in groups:
        values: dict[Axis, set[float]] = {}
        for part in (part for result in group for part in result.cell.method.parts):
            for name in type(part).model_fields:
                value = getattr(part, name)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    values.setdefault((part.name, name), set()).add(float(value))
        for axis, found in values.items():
            most[axis] = max(most.get(axis, 0), len(found))
    return sorted((axis for axis, number in most.items() if number > 1), key=lambda axis: -most[axis])[:2]


def _value(method: Method, axis: Axis) -> float:
    return float(next(getattr(part, axis[1]) for part in method.parts if part.name == axis[0]))


def _untuned(method: Method) -> str:
    """The method without what was given for it."""
    names = [METHODS[part.name].title if part.name in METHODS else part.name for part in method.parts]
    return " + ".join(names) or METHODS["none"].title


def _grid_panel(label: str, by_scenario: dict[str, list[Result]], axis: Axis) -> Panel:
    hues = {"Task-IL": 0, "Domain-IL": 1, "Class-IL": 2}
    lines, marks = [], []
    for scenario, some in by_scenario.items():
        points = {_value(r.cell.method, axis): r.accuracy for r in some}
        lines.append(_line(scenario, points, hues.get(scenario, 3)))
        for by, x in _marked(some, axis).items():
            marks.append(Mark(x, points.get(x), len(lines) - 1, by))
    every = [x for line in lines for x in line.x]
    return Panel(label, _meaning(next(iter(by_scenario.values()))[0].cell, axis), _log(every), lines, (), marks)


def _two_way_panel(label: str, rows: dict[float, list[Result]], axes: Sequence[Axis]) -> Panel:
    lines, marks = [], []
    every = [r for some in rows.values() for r in some]
    second = _marked(every, axes[1])
    first = _marked(every, axes[0])
    for place, (value, some) in enumerate(rows.items()):
        points = {_value(r.cell.method, axes[0]): r.accuracy for r in some}
        shade = place / max(1, len(rows) - 1)
        lines.append(_line(f"{_symbol(some[0].cell, axes[1])} = {short(value)}", points, 0, shade))
        for by, x in first.items():
            if second.get(by) == value:
                marks.append(Mark(x, points.get(x), place, by))
    x_label = _meaning(every[0].cell, axes[0])
    return Panel(label, x_label, _log([x for line in lines for x in line.x]), lines, (), marks)


def _marked(some: Sequence[Result], axis: Axis) -> dict[str, float]:
    """The selected values on an axis: the paper's, where it is the paper's data, and the best of ours."""
    cell, marked = some[0].cell, {}
    theirs = paper.chosen(cell.protocol.name, cell.scenario.name, axis[0]).get(axis[1])
    if theirs is not None and cell.published():
        marked["paper"] = float(theirs)
    best = _best(some)
    if best:
        marked["best"] = _value(best.cell.method, axis)
    return marked


def _best(some: Sequence[Result]) -> Result | None:
    known = [r for r in some if not math.isnan(r.accuracy.mean)]
    return max(known, key=lambda r: r.accuracy.mean) if known else None


def _selected(
    label: str, scenario: str, some: Sequence[Result], axes: Sequence[Axis], honest: Result | None
) -> Selected:
    marked = {axis: _marked(some, axis) for axis in axes}
    if honest:
        for axis in axes:
            marked[axis]["honest"] = _value(honest.cell.method, axis)

    def written(by: str) -> tuple[str, Summary | None]:
        values: dict[Axis, Any] = {axis: marked[axis].get(by) for axis in axes}
        if None in values.values():
            return "–", None
        found = [r for r in some if all(_value(r.cell.method, a) == v for a, v in values.items())]
        text = ", ".join(f"{axis[1]} {short(value)}" for axis, value in values.items())
        return text, found[0].accuracy if found else None

    return Selected(label, scenario, *written("paper"), *written("best"), *written("honest"))


def _line(label: str, points: dict[float, Summary], hue: int, shade: float | None = None) -> Line:
    xs = sorted(points)
    return Line(label, xs, [points[x] for x in xs], hue, shade)


def _log(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > 50


def _meaning(cell: Cell, axis: Axis) -> str:
    part = next(p for p in cell.method.parts if p.name == axis[0])
    return type(part).model_fields[axis[1]].description or axis[1]


def _symbol(cell: Cell, axis: Axis) -> str:
    """The paper's letter for a hyperparameter, which ends its description; else its name."""
    last = _meaning(cell, axis).rpartition(", ")[2]
    return last if len(last) == 1 else axis[1]
