"""Figures D.1 and D.2: accuracy over hyperparameters, and which values were selected by whom."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from threefold.experiments import Cell, Result, Section
from threefold.methods import Method, paper
from threefold.report.labels import tell_apart
from threefold.report.panels import WHO, By, Chart, Choice, Line, Mark, Panel, Selected, seeds_of
from threefold.report.words import short, untuned

Axis = tuple[str, str]  # part, hyperparameter
Values = dict[Axis, float]
Kind = TypeVar("Kind")

ALIKE = 0.01  # of a per cent: less than one image of a task
ALL_ALIKE = "no choice: all alike"


def grids(section: Section, tables: Sequence[Result]) -> list[Chart]:
    """A figure for each stream: a row of panels for each method, a column for each scenario."""
    found = []
    for stream in dict.fromkeys(r.cell.stream.title for r in section.results):
        results = [r for r in section.results if r.cell.stream.title == stream]
        searches = list(_searches(section, results, tables))
        caption = (
            f"Average accuracy over all tasks on {stream} for each value of the hyperparameters, {_seeds(searches)}."
        )
        name = f"{section.name}-{stream}"
        panels = [search.panel() for search in searches]
        key = _key(panels)
        chosen = [search.selected() for search in searches]
        found.append(Chart(name, f"Hyperparameters on {stream}", caption, key, panels, chosen))
    return found


def _searches(section: Section, results: Sequence[Result], tables: Sequence[Result]) -> "Iterable[Search]":
    for method in dict.fromkeys(r.cell.method.name for r in results):
        group = [r for r in results if r.cell.method.name == method]
        axes = _axes(_by(group, [r.cell.scenario.title for r in group]).values())
        if not axes:
            continue
        items = []
        for cell in (r.cell for r in group):
            place = (cell.scenario.title, *(value_of(cell.method, axis) for axis in axes))
            items.append((untuned(cell.method), place, cell.spec()))
        names = tell_apart(items)
        scenarios = [r.cell.scenario.title for r in group]
        for (name, _), some in _by(group, list(zip(names, scenarios, strict=True))).items():
            like = _but_for(axes, some[0].cell)
            held = [r for r in section.validation if _alike(r.cell, some[0].cell) and _but_for(axes, r.cell) == like]
            yield Search(name, some, held, tables, axes)


def _by(results: Sequence[Result], kinds: Sequence[Kind]) -> "dict[Kind, list[Result]]":
    found: dict[Kind, list[Result]] = {}
    for kind, result in zip(kinds, results, strict=True):
        found.setdefault(kind, []).append(result)
    return found


def _but_for(axes: Sequence[Axis], cell: Cell) -> dict[Axis, Any]:
    """The hyperparameters that are not searched."""
    every = cell.method.hyperparameters()
    return {(part, name): v for part, own in every.items() for name, v in own.items() if (part, name) not in axes}


def _alike(one: Cell, other: Cell) -> bool:
    """The same method in the same scenario of the same stream, be it on fewer tasks."""
    return (one.method.name, one.scenario.name, one.stream.name) == (
        other.method.name,
        other.scenario.name,
        other.stream.name,
    )


def _axes(groups: Iterable[Sequence[Result]]) -> list[Axis]:
    """The numeric hyperparameters that take several values in some scenario: the one over most decades first, then the
    one with most values. Two at most are drawn."""
    most: dict[Axis, tuple[float, int]] = {}
    for group in groups:
        values: dict[Axis, set[float]] = {}
        for part in (part for result in group for part in result.cell.method.parts):
            for name, value in part.model_dump().items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    values.setdefault((part.name, name), set()).add(float(value))
        for axis, found in values.items():
            if len(found) > 1:
                decades = math.log10(max(found) / min(found)) if min(found) > 0 else 0.0
                most[axis] = max(most.get(axis, (0.0, 0)), (decades, len(found)))
    return sorted(most, key=lambda axis: most[axis], reverse=True)[:2]


@dataclass(frozen=True)
class Search:
    """All that was tried of a method in one scenario."""

    name: str
    results: Sequence[Result]
    held: Sequence[Result]  # the same on training data held out of the first tasks
    tables: Sequence[Result]  # where the paper's values were trained, should they be none of the grid's
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
            for by in WHO:
                values = self.values(by)
                if values and (not second or values[second[0]] == shade):
                    chosen = self.choice(values)
                    marks.append(Mark(values[first], chosen.accuracy, place, by))
        every = [x for line in lines for x in line.x]
        log = min(every) > 0 and max(every) / min(every) > 50
        row, column = self.name, self.cell.scenario.title
        return Panel(row, column, _meaning(self.cell, first), log, lines, (), marks, self.cell.stream.title)

    def selected(self) -> Selected:
        chosen = {by: self.choice(values) for by in WHO if (values := self.values(by))}
        return Selected(
            self.name,
            self.cell.scenario.title,
            chosen.get("paper"),
            chosen.get("best"),
            chosen.get("honest"),
            self._by_the_first_task(),
            self.held[0].cell.stream.tasks if self.held else 0,
        )

    def values(self, by: By) -> Values | None:
        """What was selected; None where nobody could."""
        match by:
            case "paper":
                return self._papers()
            case "best":
                return self._at(_best({r: r.accuracy.mean for r in self.results}))
            case "honest":
                return self._at(_best({r: r.accuracy.mean for r in self.held}))

    def _papers(self) -> Values | None:
        cell = self.cell
        known = {axis: paper.chosen(cell.stream.name, cell.scenario.name, axis[0]).get(axis[1]) for axis in self.axes}
        if None in known.values() or not cell.published():
            return None
        return {axis: float(value) for axis, value in known.items() if value is not None}

    def _at(self, best: Result | None) -> Values | None:
        return {axis: value_of(best.cell.method, axis) for axis in self.axes} if best else None

    def choice(self, values: Values) -> Choice:
        """The values in the paper's letters, and what they lead to: on this grid, or else in a table."""
        text = ", ".join(f"{_symbol(self.cell, axis)} = {short(value)}" for axis, value in values.items())
        for result in self.results:
            if self._at(result) == values:
                return Choice(text, result.accuracy)
        for result in self.tables:
            if _alike(result.cell, self.cell) and self._alike_but_for_axes(result.cell) and self._at(result) == values:
                return Choice(text, result.accuracy, elsewhere=True)
        return Choice(text)

    def _alike_but_for_axes(self, other: Cell) -> bool:
        specs = [cell.spec() for cell in (self.cell, other)]
        for spec in specs:
            for part, name in self.axes:
                spec["method"]["hyperparameters"][part].pop(name)
        return specs[0] == specs[1]

    def _by_the_first_task(self) -> Choice | None:
        """Chosen on the first task alone: it cannot be where the first task does not depend on the hyperparameters."""
        scores = {r: float(r.matrix[:, 0, 0].mean()) for r in self.held}
        best = _best(scores)
        if best is None:
            return None
        known = [score for score in scores.values() if not math.isnan(score)]
        if len(known) > 1 and max(known) - min(known) < ALIKE:
            return Choice(ALL_ALIKE)
        return self.choice(self._at(best) or {})


def _best(scores: Mapping[Result, float]) -> Result | None:
    known = {result: score for result, score in scores.items() if not math.isnan(score)}
    return max(known, key=lambda result: known[result]) if known else None


def value_of(method: Method, axis: Axis) -> float:
    return float(next(getattr(part, axis[1]) for part in method.parts if part.name == axis[0]))


def _seeds(searches: Sequence[Search]) -> str:
    """3 seeds for each; 1 seed where two hyperparameters were searched."""
    numbers = {
        two: seeds_of([r.accuracy for search in searches if (len(search.axes) > 1) == two for r in search.results])
        for two in {len(search.axes) > 1 for search in searches}
    }
    if len(set(numbers.values())) < 2:
        return f"{next(iter(numbers.values()), '0 seeds')} for each"
    return f"{numbers[False]} for each; {numbers[True]} where two hyperparameters were searched at once"


def _key(panels: Sequence[Panel]) -> str:
    """What bands and marks mean, as far as there are any."""
    marks = [(mark, panel.lines[mark.line]) for panel in panels for mark in panel.marks]
    rings = "Rings: the value that the paper selected"
    if any(mark.by == "paper" and mark.value and mark.x not in line.x for mark, line in marks):
        rings += ", with the tables' accuracy where it is none of the grid's"
    if any(mark.by == "paper" and not mark.value for mark, _ in marks):
        rings += ", on the axis where it was never trained"
    shades = any(line.shade is not None for panel in panels for line in panel.lines)
    bands = f"Bands: ± 1 SEM{', of many curves only of the best' if shades else ''}."
    told = [bands, f"{rings}.", "Dots: the best of ours.", "Both look at the test sets of all tasks."]
    if any(mark.by == "honest" for mark, _ in marks):
        told.append("Triangles: what training data held out of the first tasks would have selected.")
    if any(panel.lost for panel in panels):
        told.append("Crosses: diverged.")
    return " ".join(told)


def _meaning(cell: Cell, axis: Axis) -> str:
    part = next(p for p in cell.method.parts if p.name == axis[0])
    field = type(part).model_fields.get(axis[1])
    return (field.description if field else None) or axis[1]


def _symbol(cell: Cell, axis: Axis) -> str:
    """The paper's letter for a hyperparameter, which ends its description; else its name."""
    last = _meaning(cell, axis).rpartition(", ")[2]
    return last if len(last) == 1 else axis[1]
