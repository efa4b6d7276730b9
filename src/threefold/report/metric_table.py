"""The metrics and costs of a table's cells: tables of all of them, and columns to choose from."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from threefold.errors import unknown
from threefold.experiments import Cell
from threefold.experiments.costs import costs
from threefold.memory import in_bytes
from threefold.report.formatting import duration, plus_minus
from threefold.report.tables import ResultTable, TableCell
from threefold.results import Summary, summarize
from threefold.results.metrics import LOWER, METRICS, REGISTERED, Metric, intransigence

JOINT = "offline"  # the method that intransigence is measured against
COSTS = {  # by the names in `--columns`: short names and meanings
    "params": ("params", "trained parameters, of all networks"),
    "memory": ("memory", "what the method keeps from task to task besides the network: weights, importances, samples"),
    "flops": ("FLOPs", "floating-point operations of the whole training"),
    "seconds": ("time", "of the stack, divided by its networks"),
}
POWERS = ("", "k", "M", "G", "T", "P", "E")
INTRANSIGENCE = "I", "intransigence, how much worse tasks are learned than by Offline"
OF_CURVES = ("average_anytime_accuracy", "minimum_accuracy", "worst_case_accuracy", "gap_depth", "gap_recovery")


Better = Literal["high", "low", ""]
"""Which values are better; empty: nobody says."""


@dataclass(frozen=True)
class Column:
    """A metric or a cost."""

    name: str
    short: str
    meaning: str
    better: Better
    value: Callable[[ResultTable, TableCell], Summary]
    text: Callable[[Summary], str] = plus_minus


@dataclass(frozen=True, eq=False)
class MetricTable:
    """The metrics that any cell has, and their values by cell."""

    title: str
    columns: Mapping[str, str]  # short names, with their meanings
    rows: Sequence[tuple[TableCell, Sequence[Summary]]]

    @property
    def legend(self) -> str:
        """The meaning of each column."""
        return "; ".join(f"{short}: {meaning}" for short, meaning in self.columns.items()) + "."


def metric_tables(table: ResultTable) -> list[MetricTable]:
    """One table of metrics from tests at the ends of tasks, and one of those that need tests during training."""
    every = [column for column in columns().values() if column.name not in COSTS]
    found = [
        _metric_table("tests at the ends of tasks", table, [each for each in every if each.name not in OF_CURVES]),
        _metric_table("tests during training", table, [each for each in every if each.name in OF_CURVES]),
    ]
    return [each for each in found if each.columns.keys() - {METRICS[0].short}]  # the table itself has the accuracy


def _metric_table(title: str, table: ResultTable, columns: Sequence[Column]) -> MetricTable:
    values = {column: [column.value(table, cell) for cell in table.cells] for column in columns}
    there = {column: each for column, each in values.items() if any(not math.isnan(value.mean) for value in each)}
    rows = list(zip(*there.values(), strict=True)) if there else []
    said = {column.short: column.meaning for column in there}
    return MetricTable(title, said, list(zip(table.cells, rows, strict=False)))


def columns() -> dict[str, Column]:
    """All columns that a table may have, by name: metrics, those of the user too, and costs."""
    found = [
        Column(metric.name, metric.short, _said(metric), _better(metric.name), partial(_metric, metric.name))
        for metric in METRICS
    ]
    found.append(Column("intransigence", *INTRANSIGENCE, "low", compared_with_joint))
    texts = {"params": _in_short, "memory": _in_bytes, "flops": _in_short, "seconds": _seconds}
    found += [Column(name, *said, "", partial(_cost, name), texts[name]) for name, said in COSTS.items()]
    return {column.name: column for column in found}


def chosen(names: Sequence[str]) -> list[Column]:
    """The columns of these names, or short names: acc, forgetting, params."""
    every = columns()
    known = {column.short.lower(): column for column in every.values()} | every
    for name in names:
        if name.lower() not in known:
            raise unknown("column", name, [*known])
    return list(dict.fromkeys(known[name.lower()] for name in names))


def _better(name: str) -> Better:
    return "" if name in REGISTERED else "low" if name in LOWER else "high"


def _said(metric: Metric) -> str:
    return f"{metric.title[0].lower()}{metric.title[1:]}, {metric.meaning}"


def _metric(name: str, table: ResultTable, cell: TableCell) -> Summary:
    return cell.result.metrics[name]


def _cost(name: str, table: ResultTable, cell: TableCell) -> Summary:
    """One number for all seeds; of the time, each seed's own."""
    if name == "seconds":
        return summarize([record.seconds for record in cell.result.records], cell.result.seeds)
    found = costs(cell.cell)
    return summarize([{"params": found.parameters, "memory": found.memory, "flops": found.flops}[name]])


def _in_short(value: Summary) -> str:
    """478 k, 2.90 T: three digits and a power of a thousand."""
    number, power = value.mean, 0
    while number >= 999.5 and power < len(POWERS) - 1:
        number, power = number / 1000, power + 1
    digits = max(0, 2 - int(math.log10(max(number, 1)))) if power else 0
    return f"{number:.{digits}f} {POWERS[power]}".rstrip()


def _in_bytes(value: Summary) -> str:
    return in_bytes(round(value.mean)) if value.mean else "0"


def _seconds(value: Summary) -> str:
    return duration(value.mean) if value.mean >= 1 else f"{value.mean:.2f} s"


def compared_with_joint(table: ResultTable, cell: TableCell) -> Summary:
    """Intransigence, over the seeds for which Offline was trained equally in the same scenario."""
    others = [e for e in table.cells if e.column == cell.column and e.cell.method.name == JOINT and e is not cell]
    joint = next((e for e in others if _way(e.cell) == _way(cell.cell)), None)
    if joint is None or cell.cell.stream.boundaries.clock:
        return summarize([math.nan])
    known = dict(zip(joint.result.seeds, joint.result.matrix, strict=True))
    pairs = zip(cell.result.seeds, cell.result.matrix, strict=True)
    found = {seed: intransigence(matrix, known[seed]) for seed, matrix in pairs if seed in known}
    return summarize(found.values(), found) if found else summarize([math.nan])


def _way(cell: Cell) -> dict[str, Any]:
    """How a cell is trained, without the method and where it uses the task."""
    return {name: value for name, value in cell.spec().items() if name not in ("method", "scenario")}
