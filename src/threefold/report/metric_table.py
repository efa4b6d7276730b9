"""Tables of all metrics of a table's cells."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from threefold.experiments import Cell
from threefold.report.tables import ResultTable, TableCell
from threefold.results import Summary, summarize
from threefold.results.metrics import METRICS, Metric, intransigence

JOINT = "offline"  # the method that intransigence is measured against
INTRANSIGENCE = "I", "intransigence, how much worse tasks are learned than by Offline"
OF_CURVES = ("average_anytime_accuracy", "minimum_accuracy", "worst_case_accuracy", "gap_depth", "gap_recovery")


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
    whole = {metric.short: _said(metric) for metric in METRICS if metric.name not in OF_CURVES}
    curves = {metric.short: _said(metric) for metric in METRICS if metric.name in OF_CURVES}
    whole |= dict([INTRANSIGENCE])
    found = [_metric_table("tests at the ends of tasks", table, whole)]
    found.append(_metric_table("tests during training", table, curves))
    return [each for each in found if each.columns.keys() - {METRICS[0].short}]  # the table itself has the accuracy


def _said(metric: Metric) -> str:
    return f"{metric.title[0].lower()}{metric.title[1:]}, {metric.meaning}"


def _metric_table(title: str, table: ResultTable, columns: Mapping[str, str]) -> MetricTable:
    names = {metric.short: metric.name for metric in METRICS}
    values = {
        short: [
            cell.result.metrics[names[short]] if short in names else compared_with_joint(table, cell)
            for cell in table.cells
        ]
        for short in columns
    }
    there = {short: each for short, each in values.items() if any(not math.isnan(value.mean) for value in each)}
    rows = list(zip(*there.values(), strict=True)) if there else []
    return MetricTable(title, {short: columns[short] for short in there}, list(zip(table.cells, rows, strict=False)))


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
