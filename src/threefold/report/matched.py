"""Accuracy over the floating-point operations that it took, all methods of an experiment."""

import math

from threefold.experiments import Section
from threefold.experiments.costs import costs
from threefold.report.formatting import DASH
from threefold.report.panels import Chart, Line, Panel, seeds_of
from threefold.report.tables import ResultTable, result_tables

OPERATIONS = "floating-point operations"


def matched(section: Section) -> list[Chart]:
    """One figure for each stream, a panel for each scenario."""
    charts = [_chart(section, table) for table in result_tables(section)]
    return [chart for chart in charts if chart.panels]


def _chart(section: Section, table: ResultTable) -> Chart:
    hues = {row: place for place, (_, row) in enumerate(table.rows)}
    panels, unknown = [], {}
    for column in table.columns:
        lines = []
        for cell in table.cells:
            found = costs(cell.cell)
            if found.unknown:
                unknown[cell.row] = found.unknown
            elif cell.column == column and not math.isnan(cell.accuracy.mean):
                lines.append(Line(cell.row, [found.flops], [cell.accuracy], hues[cell.row]))
        if lines:
            panels.append(Panel(table.stream, column, OPERATIONS, True, lines, stream=table.stream))
    seeds = seeds_of([line.values[0] for panel in panels for line in panel.lines]) if panels else ""
    caption = f"Average accuracy on {table.stream} over the {OPERATIONS} of the whole training. Means of {seeds}."
    key = "Bars: ± 1 SEM."
    if unknown:
        key += f" Not drawn: {'; '.join(f'{DASH} {row}: {reason}' for row, reason in unknown.items())}"
    return Chart(
        f"{section.name}-{table.stream}-compute", f"Accuracy and compute on {table.stream}", caption, key, panels
    )
