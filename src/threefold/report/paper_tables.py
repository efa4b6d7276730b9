"""Tables for a paper: the columns that were asked for, the best of each scenario in bold."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from threefold.experiments import Section
from threefold.experiments.costs import costs
from threefold.methods import citation_of
from threefold.report.document import Block, Heading, Table, Text
from threefold.report.formatting import DASH, NOT_RUN, number
from threefold.report.metric_table import COSTS, Column
from threefold.report.panels import seeds_of
from threefold.report.tables import ResultTable, TableCell, incomplete, result_tables
from threefold.results import Best, Summary, best

NO_COMPETITORS = "Baselines"
TESTS = {
    "paired": "paired t test over seeds",
    "Welch": "Welch's t test where methods have different seeds",
    "none": "untested where there are fewer than five seeds",
}
MANY = 4  # columns of metrics from which only means are shown


def paper_tables(
    sections: Sequence[Section], columns: Sequence[Column], *, cite: bool = False, narrow: bool = False
) -> Iterator[Block]:
    """A table for each stream of each experiment; narrow ones have a few of the columns each."""
    brief = sum(column.name not in COSTS for column in columns) >= MANY
    few = (MANY if brief else 2) if narrow else len(columns)
    for section in sections:
        if not section.results:
            continue
        yield Heading(section.title, 2)
        if missing := incomplete(section):
            yield Text(f"Not complete: {missing}")
        for table in result_tables(section):
            if table.cells:
                for first in range(0, len(columns), few):
                    yield paper_table(table, columns[first : first + few], cite=cite, brief=brief)
                yield from _below(table, columns)


def paper_table(table: ResultTable, columns: Sequence[Column], *, cite: bool = False, brief: bool = False) -> Table:
    """Methods × scenarios for one column; for several, a row for each method in each scenario."""
    bests = bests_of(table, columns)
    alone = columns[0] if len(columns) == 1 else None
    lines: list[tuple[str, str, list[tuple[TableCell | str, Column]]]] = []  # group, method, and each cell's content
    if alone:
        lines = [(group, row, [(_at(table, row, name), alone) for name in table.columns]) for group, row in table.rows]
    else:
        of_scenario = [(name, row, table.at.get((row, name))) for name in table.columns for _, row in table.rows]
        lines = [(name, row, [(cell, column) for column in columns]) for name, row, cell in of_scenario if cell]
    left = 1 if alone else 2
    groups, rows, bold = [group for group, _, _ in lines], [], set()
    for place, (group, row, contents) in enumerate(lines):
        again = place and groups[place - 1] == group
        rows.append([row] if alone else ["" if again else group, row])
        for cell, column in contents:
            if isinstance(cell, TableCell) and cell.row in bests[cell.column, column.name].names:
                bold.add((place, len(rows[-1])))
            rows[-1].append(_text(cell, table, column, brief=brief) if isinstance(cell, TableCell) else cell)
    what = f"{alone.meaning}, " if alone else ""
    spread = "" if all(column.name in COSTS for column in columns) else "means of " if brief else "mean ± SEM of "
    seeds = seeds_of([cell.accuracy for cell in table.cells])
    caption = f"{table.heading}: {what}{spread}{seeds}. {_meaning(bests.values())}".strip()
    header = ["Method", *table.columns] if alone else ["Scenario", "Method", *(column.short for column in columns)]
    keys = {cell.row: ",".join(citation_of(cell.cell.method)) for cell in table.cells} if cite else {}
    return Table(caption, header, rows, groups, left, bold, [keys.get(row, "") for _, row, _ in lines])


def _at(table: ResultTable, row: str, name: str) -> TableCell | str:
    return table.at.get((row, name)) or (DASH if (row, name) in table.why_not else NOT_RUN)


def _text(cell: TableCell, table: ResultTable, column: Column, *, brief: bool) -> str:
    value = column.value(table, cell)
    if math.isnan(value.mean):
        return DASH
    return number(value.mean) if brief and column.name not in COSTS else column.text(value)


def bests_of(table: ResultTable, columns: Sequence[Column]) -> Mapping[tuple[str, str], Best]:
    """The best methods of each scenario in each column, baselines aside; none for what costs."""
    found = {}
    for name in table.columns:
        cells = [cell for cell in table.cells if cell.column == name and cell.strategy != NO_COMPETITORS]
        for column in columns:
            values: dict[str, Summary] = {}
            if column.better:
                values = {cell.row: column.value(table, cell) for cell in cells}
            found[name, column.name] = best(values, high=column.better == "high")
    return found


def _meaning(bests: Iterable[Best]) -> str:
    """What bold means, and by which tests."""
    there = [each for each in bests if each.names]
    tests = {test for each in there for test in each.tests}
    if not there:
        return ""
    said = "; ".join(text for test, text in TESTS.items() if test in tests)
    tested = f", and what is not significantly worse at the level 0.05 ({said}; Holm's correction)" if said else ""
    return f"Bold: the best of a scenario{tested}. None and Offline, the bounds, do not compete."


def _below(table: ResultTable, columns: Sequence[Column]) -> Iterator[Text]:
    """The meanings of the columns, and why costs are unknown."""
    yield Text("; ".join(f"{column.short}: {column.meaning}" for column in columns) + ".")
    if any(column.name in COSTS and column.name != "seconds" for column in columns):
        why = {cell.row: reason for cell in table.cells if (reason := costs(cell.cell).unknown)}
        if why:
            yield Text(" ".join(f"{DASH} {row}: {reason}" for row, reason in why.items()))
