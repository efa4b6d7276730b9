"""Figure C.1 and its like: accuracy over the number of stored samples, compared with methods that store none."""

import math
from collections.abc import Mapping, Sequence

from threefold.experiments import Cell, Result, Section
from threefold.methods import METHODS
from threefold.report.formatting import strategy, title, untuned
from threefold.report.labels import tell_apart
from threefold.report.panels import Chart, Level, Line, Panel, seeds_of
from threefold.results import Summary

USES = {"training": "stored data in training", "execution": "stored data in execution", "both": "stored data in both"}


def budgets(section: Section, tables: Sequence[Result]) -> Chart:
    """A row of panels for each stream, a column for each scenario."""
    streams = list(dict.fromkeys(r.cell.stream.label for r in section.results))
    each = "of each class " if any(of_each_class(cell) for cell in section.cells) else ""
    labels = _labels(section)
    panels, places, seeds = [], [], []
    for place, stream in enumerate(streams):
        results = [r for r in section.results if r.cell.stream.label == stream]
        letter = chr(ord("A") + place) if len(streams) > 1 else ""
        row = f"{letter}  {stream}".strip()
        drawn = [
            _panel(row, scenario, [r for r in results if r.cell.scenario.title == scenario], tables, labels, each)
            for scenario in dict.fromkeys(r.cell.scenario.title for r in results)
        ]
        drawn = [panel for panel in drawn if panel.lines]
        if not drawn:
            continue
        panels += drawn
        places.append(f"{stream} ({letter})" if letter else stream)
        curves = seeds_of([value for panel in drawn for line in panel.lines for value in line.values])
        lines = seeds_of([level.value for panel in drawn for level in panel.levels])
        seeds.append(f"{letter} curves {curves}, horizontal lines {lines}".strip())
    caption = (
        f"Average accuracy over all tasks on {' and '.join(places)}, as a function of the number of samples {each}that"
        f" may be stored. Means over seeds: {'; '.join(seeds)}."
    )
    key = "Bands: ± 1 SEM. Horizontal lines: methods that store nothing."
    if lost := [f"{name}, {panel.column}" for panel in panels for name in panel.left_out]:
        key += f" Not drawn, as a seed diverged: {'; '.join(lost)}."
    names = dict.fromkeys(panel.stream for panel in panels)
    return Chart(section.name, f"Stored data on {' and '.join(names)}", caption, key, panels)


def _labels(section: Section) -> dict[Result, str]:
    """The name of each result's curve."""
    cells = [r.cell for r in section.results]
    items = [
        (label, (cell.stream.label, cell.scenario.title, budget), cell.spec())
        for cell in cells
        for budget, label in [stored(cell)]
    ]
    return dict(zip(section.results, tell_apart(items), strict=True))


def _panel(
    row: str,
    scenario: str,
    results: Sequence[Result],
    tables: Sequence[Result],
    labels: Mapping[Result, str],
    each: str,
) -> Panel:
    """`each`: what the budget is of, if not of everything that is stored."""
    by_label: dict[str, dict[float, Summary]] = {}
    for result in results:
        budget, _ = stored(result.cell)
        if budget is not None:
            by_label.setdefault(labels[result], {})[budget] = result.accuracy
    order = dict.fromkeys([*USES.values(), METHODS["icarl"].title, *by_label])
    lines = [Line.through(label, by_label[label], hue) for hue, label in enumerate(order) if label in by_label]
    stream = results[0].cell.stream.label
    every = _levels(results, tables, labels)
    levels = [level for level in every if not math.isnan(level.value.mean)]
    left_out = [level.label for level in every if math.isnan(level.value.mean)]
    x_label = f"stored samples {each.strip()}" if each else "number of stored samples"
    return Panel(row, scenario, x_label, True, lines, levels, (), stream, left_out)


def stored(cell: Cell) -> tuple[int | None, str]:
    """The memory budget of a cell (None if it has none), and what the samples are used for."""
    part = next((p for p in cell.method.parts if isinstance(getattr(p, "budget", None), int)), None)
    if part is None:
        return None, title(cell.method)
    label = METHODS[part.name].title if part.name in METHODS else part.name
    if part.name == "er" and len(cell.method.parts) == 1 and not of_each_class(cell):
        label = USES.get(str(getattr(part, "use", "")), label)
    elif len(cell.method.parts) > 1:
        label = cell.method.name
    return int(getattr(part, "budget", 0)), label


def of_each_class(cell: Cell) -> bool:
    """Is its budget one of each class?"""
    return any(getattr(part, "per_class", part.name == "fromp") for part in cell.method.parts)


def _levels(here: Sequence[Result], tables: Sequence[Result], labels: Mapping[Result, str]) -> list[Level]:
    """The methods without a memory, from this experiment or else from a table that was trained in the same way, each
    with all its seeds, even if the table has more of them."""
    like = here[0].cell
    alike = [
        r
        for r in tables
        if stored(r.cell)[0] is None
        and r.cell.task_id_in != "hidden"
        and (r.cell.stream.label, r.cell.scenario.title) == (like.stream.label, like.scenario.title)
        and (r.cell.training, r.cell.stream.tasks) == (like.training, like.stream.tasks)
    ]
    plain = [r for r in here if stored(r.cell)[0] is None] or alike
    found: dict[str, Result] = {}
    for result in plain:
        same = [r for r in alike if r.cell.spec() == result.cell.spec()]
        name = labels.get(result) or title(result.cell.method)
        found[name] = max([result, *same], key=lambda r: len(r.records))
    brief = [untuned(r.cell.method) for r in found.values()]
    return [
        Level(name if brief.count(name) == 1 else full, strategy(r.cell.method), r.accuracy, r.cell.method.name)
        for (full, r), name in zip(found.items(), brief, strict=True)
    ]
