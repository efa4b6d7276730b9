"""Figures D.1 and D.2: accuracy over hyperparameters, and the values that each rule selects."""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from threefold.experiments import Cell, Result, Section
from threefold.methods import paper
from threefold.report.formatting import short, untuned
from threefold.report.labels import tell_apart
from threefold.report.panels import By, Chart, Choice, Line, Mark, Panel, Selected, seeds_of

Axis = tuple[str, str]  # a part, or TRAINING, and the hyperparameter
Values = dict[Axis, float]

TRAINING = ""  # of the network, the optimiser and the other settings
SETTINGS = {"iters": "training iterations per task", "epochs": "epochs per task", "batch": "samples in a batch"}

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
        kinds: dict[Hashable, list[Result]] = {}
        for result in results:
            if result.cell.method.name == method:
                kinds.setdefault(_hyperparameters(result.cell), []).append(result)
        searched = [(result, axes) for group in kinds.values() if (axes := _axes(group)) for result in group]
        items = [(untuned(r.cell.method), r.cell.scenario.title, _fixed(r.cell, axes)) for r, axes in searched]
        panels: dict[tuple[str, str], list[tuple[Result, list[Axis]]]] = {}
        for name, found in zip(tell_apart(items), searched, strict=True):
            panels.setdefault((name, found[0].cell.scenario.title), []).append(found)
        for (name, _), some in panels.items():
            like, axes = some[0][0].cell, some[0][1]
            held = [r for r in section.validation if _kind(r.cell) == _kind(like)]
            held = [r for r in held if _learning(r.cell, axes) == _learning(like, axes)]
            yield Search(name, [result for result, _ in some], held, tables, axes)


def _kind(cell: Cell) -> tuple[str, str, str]:
    """Method, scenario and stream, with any number of tasks."""
    return cell.method.name, cell.scenario.name, cell.stream.name


def _hyperparameters(cell: Cell) -> tuple[str, str, bool]:
    """What cells of a method must have in common to have the same hyperparameters."""
    return cell.training.network.name, cell.optimizer.name, cell.training.iters is None


def _fixed(cell: Cell, axes: Sequence[Axis]) -> dict[str, Any]:
    """Everything that determines a cell's runs except what is searched."""
    spec = deepcopy(cell.spec())
    for of, name in axes:
        if of == TRAINING:
            places = [spec["network"]["hyperparameters"], spec["optimizer"]["hyperparameters"], spec["training"]]
        else:
            places = [spec["method"]["hyperparameters"].get(of, {})]
        for place in places:
            place.pop(name, None)
    return spec


def _learning(cell: Cell, axes: Sequence[Axis]) -> dict[str, Any]:
    """The same of what learns and how, whatever it learns, and where."""
    spec = _fixed(cell, axes)
    training = {name: value for name, value in spec["training"].items() if name not in ("device", "precision")}
    return {"training": training, **{what: spec[what] for what in ("method", "network", "optimizer")}}


def numbers_of(cell: Cell) -> dict[Axis, float]:
    """All numbers that can be searched: hyperparameters of the method, the network and the optimiser, and settings."""
    training = cell.training
    lengths = {"iters": training.iters, "epochs": training.epochs, "batch": training.batch}
    every = {part.name: part.model_dump() for part in cell.method.parts}
    every[TRAINING] = training.network.model_dump() | cell.optimizer.model_dump() | lengths
    return {
        (of, name): float(value)
        for of, own in every.items()
        for name, value in own.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _axes(group: Sequence[Result]) -> list[Axis]:
    """The numbers that take several values in some scenario: the method's own first, sorted by decades covered, then by
    number of values. At most two are drawn."""
    values: dict[tuple[str, Axis], set[float]] = {}
    for cell in (result.cell for result in group):
        for axis, value in numbers_of(cell).items():
            values.setdefault((cell.scenario.name, axis), set()).add(value)
    most: dict[Axis, tuple[float, int]] = {}
    for (_, axis), found in values.items():
        if len(found) > 1:
            decades = math.log10(max(found) / min(found)) if min(found) > 0 else 0.0
            most[axis] = max(most.get(axis, (0.0, 0)), (decades, len(found)))
    return sorted(most, key=lambda axis: (axis[0] != TRAINING, most[axis]), reverse=True)[:2]


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
            values = numbers_of(result.cell)
            by_shade.setdefault(values[second[0]] if second else None, {})[values[first]] = result
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
        cell, usual = self.cell, self.cell.stream.defaults
        trained = {"iters": usual.iters, "lr": usual.lr, "width": usual.hidden, "batch": usual.batch}
        known: dict[Axis, Any] = {}
        for of, name in self.axes:
            chosen = trained if of == TRAINING else paper.chosen(cell.stream.name, cell.scenario.name, of)
            known[of, name] = chosen.get(name)
        if None in known.values() or not cell.published():
            return None
        return {axis: float(value) for axis, value in known.items() if value is not None}

    def _at(self, result: Result) -> Values:
        values = numbers_of(result.cell)
        return {axis: values[axis] for axis in self.axes if axis in values}

    def choice(self, values: Values) -> Choice:
        """The values in the paper's notation, and their accuracy in this grid, or else in a table."""
        text = ", ".join(f"{_symbol(self.cell, axis)} = {short(value)}" for axis, value in values.items())
        for result in self.results:
            if self._at(result) == values:
                return Choice(text, result.accuracy)
        for result in self.tables:
            alike = _kind(result.cell) == _kind(self.cell) and self._at(result) == values
            if alike and _fixed(result.cell, self.axes) == _fixed(self.cell, self.axes):
                return Choice(text, result.accuracy, elsewhere=True)
        return Choice(text)

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
    of, name = axis
    owners = [cell.training.network, cell.optimizer] if of == TRAINING else cell.method.parts
    known = [getattr(type(owner), "model_fields", {}) for owner in owners if of in (TRAINING, owner.name)]
    fields = [fields.get(name) for fields in known]
    meanings = [field.description for field in fields if field and field.description]
    return meanings[0].partition(";")[0] if meanings else SETTINGS.get(name, name)


def _symbol(cell: Cell, axis: Axis) -> str:
    """The paper's symbol for a hyperparameter, which ends its description; else its name."""
    last = _meaning(cell, axis).rpartition(", ")[2]
    return last if len(last) == 1 else axis[1]
