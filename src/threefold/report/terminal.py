"""Tables for the terminal."""

import math
from collections.abc import Mapping, Sequence

from rich.table import Table

from threefold.experiments import Cell, Result
from threefold.methods import METHODS
from threefold.results import Published, Summary

DASH = "–"


def comparison(results: Sequence[Result], refused: Sequence[tuple[Cell, str]]) -> Table:
    """Methods × scenarios: mean ± SEM of the average accuracy, and the published number beside it."""
    cells = {(r.cell.method.name, r.cell.scenario.title): r for r in results}
    first = results[0]
    titles = list(dict.fromkeys([r.cell.scenario.title for r in results] + [c.scenario.title for c, _ in refused]))
    methods = list(dict.fromkeys([r.cell.method.name for r in results] + [c.method.name for c, _ in refused]))
    table = Table(
        title=f"{first.cell.protocol.title}: average accuracy over all tasks, per cent (mean ± SEM of"
        f" {len(first.seeds)} seed{'s' * (len(first.seeds) > 1)})",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("Method")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
        table.add_column("published", justify="right", style="dim", no_wrap=True)
    for method in methods:
        row = []
        for title in titles:
            result = cells.get((method, title))
            row += [ours(result), theirs(result.cell.published())] if result else [DASH, DASH]
        table.add_row(_title(method), *row)
    return table


def ours(result: Result) -> str:
    return plus_minus(result.accuracy)


def plus_minus(summary: Summary) -> str:
    if math.isnan(summary.mean):
        return "diverged"
    return f"{summary.mean:.2f}" + ("" if math.isnan(summary.sem) else f" ± {summary.sem:.2f}")


def theirs(published: Published | None) -> str:
    return f"{published.mean:.2f} ± {published.sem:.2f}" if published else DASH


def _title(method: str) -> str:
    return " + ".join(METHODS[name].title if name in METHODS else name for name in method.split("+"))


def reasons(refused: Sequence[tuple[Cell, str]]) -> Mapping[str, str]:
    """Why a cell shows a dash, each reason once."""
    return {f"{_title(cell.method.name)} in {cell.scenario.title}": reason for cell, reason in refused}
