"""Figures D.1 and D.2: accuracy over hyperparameters, and the values that each rule selects."""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from threefold.experiments import Cell, Result, Section
from threefold.methods import Method, paper
from threefold.report.formatting import short, untuned
from threefold.report.labels import tell_apart
from threefold.report.panels import By, Chart, Choice, Line, Mark, Panel, Selected, seeds_of

Axis = tuple[str, str]  # part, hyperparameter
Values = dict[Axis, float]

ALIKE = 0.01  # of a per cent: less than one image of a task
ALL_ALIKE = "no choice: all alike"


def grids(section: Section, tables: Sequence[Result]) -> list[Chart]:
    """A figure for each stream: a row of panels for each method, a column for each scenario."""
    found = []
    for stream in dict.fromkeys(r.cell.stream.label for r in section.results):
        searches = list(_searches(section, [r for r in section.results if r.cell.stream.label == stream], tables))
        caption = (
            f"Average accuracy over all tasks on {stream} for each value of the hyperparameters, {_seeds(searches)}."
        )
        panels = [search.panel() for search in searches]
        chosen = [search.selected() for search in searches]
        title = f"Hyperparameters on {stream}"
        found.append(Chart(f"{section.name}-{stream}", title, caption, _key(panels), panels, chosen))
    return found


def _searches(section: Section, results: Sequence[Result], tables: Sequence[Result]) -> "Iterator[Search]":
    for method in dict.fromkeys(r.cell.method.name for r in results):
        group = [r for r in results if r.cell.method.name == method]
        axes = _axes(group)
        if not axes:
            continue
        items = []
        for cell in (r.cell for r in group):
            place = (cell.scenario.title, *(value_of(cell.method, axis) for axis in axes))
            items.append((untuned(cell.method), place, cell.spec()))
        searched: dict[tuple[str, str], list[Result]] = {}
        for name, result in zip(tell_apart(items), group, strict=True):
            searched.setdefault((name, result.cell.scenario.title), []).append(result)
        for (name, _), some in searched.items():
            like = some[0].cell
            held = [r for r in section.validation if _kind(r.cell) == _kind(like)]
            held = [r for r in held if _fixed(r.cell, axes) == _fixed(like, axes)]
            yield Search(name, some, held, tables, axes)


def _kind(cell: Cell) -> tuple[str, str, str]:
    """Method, scenario and stream, with any number of tasks."""
    return cell.method.name, cell.scenario.name, cell.stream.name


def _fixed(cell: Cell, axes: Sequence[Axis]) -> dict[Axis, Any]:
    """The hyperparameters that are not searched."""
    every = cell.method.hyperparameters()
    return {(part, name): v for part, own in every.items() for name, v in own.items() if (part, name) not in axes}


def _axes(group: Sequence[Result]) -> list[Axis]:
    """The numeric hyperparameters that take several values in some scenario, sorted by decades covered, then by number
    of values. At most two are drawn."""
    values: dict[tuple[str, Axis], set[float]] = {}
    for cell in (result.cell for result in group):
        for part in cell.method.parts:
            for name, value in part.model_dump().items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    values.setdefault((cell.scenario.name, (part.name, name)), set()).add(float(value))
    most: dict[Axis, tuple[float, int]] = {}
    for (_, axis), found in values.items():
        if len(found) > 1:
            decades = math.log10(max(found) / min(found)) if min(found) > 0 else 0.0
            most[axis] = max(most.get(axis, (0.0, 0)), (decades, len(found)))
    return sorted(most, key=lambda axis: most[axis], reverse=True)[:2]


@dataclass(frozen=True)
class Search:
    """All trained values of a method's hyperparameters in one scenario."""

    name: str
    results: Sequence[Result]
    held: Sequence[Result]  # the same, on training data held out of the first tasks
    tables: Sequence[Result]  # with the paper's values, in case they are not in the grid
    axes: Sequence[Axis]

    @property
    def cell(self) -> Cell:
        return self.results[0].cell

    def panel(self) -> Panel:
        """A curve over the first hyperparameter for each value of the second."""
        first, *second = self.axes
        by_shade: dict[float | None, dict[float, Result]] = {}
        for result in self.results:
            shade = value_of(result.cell.method, second[0]) if second else None
            by_shade.setdefault(shade, {})[value_of(result.cell.method, first)] = result
        shades = sorted(by_shade, key=lambda value: value or 0)
        lines, marks = [], []
        for place, shade in enumerate(shades):
            label = "mean ± SEM" if shade is None else f"{_symbol(self.cell, second[0])} = {short(shade)}"
            points = {x: result.accuracy for x, result in by_shade[shade].items()}
            lines.append(Line.through(label, points, 0, place / max(1, len(shades) - 1) if second else None))
            for by, values in self.chosen.items():
                if not second or values[second[0]] == shade:
                    marks.append(Mark(values[first], self.choice(values).accuracy, place, by))
        every = [x for line in lines for x in line.x]
        log = min(every) > 0 and max(every) / min(every) > 50
        row, column = self.name, self.cell.scenario.title
        return Panel(row, column, _meaning(self.cell, first), log, lines, (), marks, self.cell.stream.label)

    def selected(self) -> Selected:
        chosen = {by: self.choice(values) for by, values in self.chosen.items()}
        return Selected(
            self.name,
            self.cell.scenario.title,
            chosen.get("paper"),
            chosen.get("best"),
            chosen.get("honest"),
            self._by_the_first_task(),
            self.held[0].cell.stream.tasks if self.held else 0,
        )

    @cached_property
    def chosen(self) -> dict[By, Values]:
        """The selected values, by each rule that could select."""
        found: dict[By, Values] = {}
        if papers := self._papers():
            found["paper"] = papers
        if best := _best(self.results, _accuracy):
            found["best"] = self._at(best)
        if honest := _best(self.held, _accuracy):
            found["honest"] = self._at(honest)
        return found

    def _papers(self) -> Values | None:
        cell = self.cell
        known = {axis: paper.chosen(cell.stream.name, cell.scenario.name, axis[0]).get(axis[1]) for axis in self.axes}
        if None in known.values() or not cell.published():
            return None
        return {axis: float(value) for axis, value in known.items() if value is not None}

    def _at(self, result: Result) -> Values:
        return {axis: value_of(result.cell.method, axis) for axis in self.axes}

    def choice(self, values: Values) -> Choice:
        """The values in the paper's notation, and their accuracy in this grid, or else in a table."""
        text = ", ".join(f"{_symbol(self.cell, axis)} = {short(value)}" for axis, value in values.items())
        for result in self.results:
            if self._at(result) == values:
                return Choice(text, result.accuracy)
        for result in self.tables:
            alike = _kind(result.cell) == _kind(self.cell) and self._at(result) == values
            if alike and self._spec(result.cell) == self._spec(self.cell):
                return Choice(text, result.accuracy, elsewhere=True)
        return Choice(text)

    def _spec(self, cell: Cell) -> dict[str, Any]:
        """Everything that determines a cell's runs except the searched hyperparameters."""
        spec = deepcopy(cell.spec())
        for part, name in self.axes:
            spec["method"]["hyperparameters"][part].pop(name, None)
        return spec

    def _by_the_first_task(self) -> Choice | None:
        """The choice by the first task alone; none if the first task does not depend on the hyperparameters."""
        best = _best(self.held, _first_accuracy)
        if best is None:
            return None
        known = [score for score in map(_first_accuracy, self.held) if not math.isnan(score)]
        if len(known) > 1 and max(known) - min(known) < ALIKE:
            return Choice(ALL_ALIKE)
        return self.choice(self._at(best))


def _accuracy(result: Result) -> float:
    return result.accuracy.mean


def _first_accuracy(result: Result) -> float:
    """Accuracy on the first task, right after it was learned."""
    return float(result.matrix[:, 0, 0].mean())


def _best(results: Sequence[Result], score: Callable[[Result], float]) -> Result | None:
    return max((result for result in results if not math.isnan(score(result))), key=score, default=None)


def value_of(method: Method, axis: Axis) -> float:
    return float(next(getattr(part, axis[1]) for part in method.parts if part.name == axis[0]))


def _seeds(searches: Sequence[Search]) -> str:
    """3 seeds for each; 1 seed where two hyperparameters were searched."""
    one = [r.accuracy for search in searches if len(search.axes) == 1 for r in search.results]
    two = [r.accuracy for search in searches if len(search.axes) == 2 for r in search.results]
    if one and two and seeds_of(one) != seeds_of(two):
        return f"{seeds_of(one)} for each; {seeds_of(two)} where two hyperparameters were searched at once"
    return f"{seeds_of(one or two)} for each"


def _key(panels: Sequence[Panel]) -> str:
    """The meanings of the bands and marks that occur."""
    marks = [(mark, panel.lines[mark.line]) for panel in panels for mark in panel.marks]
    rings = "Rings: the value that the paper selected"
    if any(mark.by == "paper" and mark.value and mark.x not in line.x for mark, line in marks):
        rings += ", with the tables' accuracy where it is none of the grid's"
    if any(mark.by == "paper" and not mark.value for mark, _ in marks):
        rings += ", on the axis where it was never trained"
    shades = any(line.shade is not None for panel in panels for line in panel.lines)
    bands = f"Bands: ± 1 SEM{', of many curves only of the best' if shades else ''}."
    sentences = [bands, f"{rings}.", "Dots: the best of ours.", "Both look at the test sets of all tasks."]
    if any(mark.by == "honest" for mark, _ in marks):
        sentences.append("Triangles: what training data held out of the first tasks would have selected.")
    if any(panel.lost for panel in panels):
        sentences.append("Crosses: diverged.")
    return " ".join(sentences)


def _meaning(cell: Cell, axis: Axis) -> str:
    part = next(p for p in cell.method.parts if p.name == axis[0])
    field = type(part).model_fields.get(axis[1])
    return (field.description if field else None) or axis[1]


def _symbol(cell: Cell, axis: Axis) -> str:
    """The paper's symbol for a hyperparameter, which ends its description; else its name."""
    last = _meaning(cell, axis).rpartition(", ")[2]
    return last if len(last) == 1 else axis[1]
