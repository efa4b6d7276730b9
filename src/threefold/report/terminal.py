"""Tables for the terminal."""

import math
from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from threefold.experiments import Cell, Result
from threefold.experiments.cell import chosen
from threefold.methods import METHODS, Method
from threefold.results import Published, Summary

DASH = "–"


def comparison(results: Sequence[Result], refused: Sequence[tuple[Cell, str]], *, narrow: bool = False) -> Table:
    """Methods × scenarios: mean ± SEM of the average accuracy, and the published number beside it.

    `narrow`: below it instead.
    """
    cells = {(title(r.cell.method), r.cell.scenario.title): r for r in results}
    shown = [r.cell for r in results] + [cell for cell, _ in refused]
    scenarios = list(dict.fromkeys(cell.scenario.title for cell in shown))
    first = results[0]
    table = Table(
        title=escape(
            f"{first.cell.protocol.title}: average accuracy over all tasks, per cent (mean ± SEM of"
            f" {len(first.seeds)} seed{'s' * (len(first.seeds) > 1)}{'; below: published' * narrow})"
        ),
        title_justify="left",
        title_style="bold",
        show_lines=narrow,
    )
    table.add_column("Method")
    for scenario in scenarios:
        table.add_column(scenario, justify="right", no_wrap=True)
        if not narrow:
            table.add_column("published", justify="right", style="dim", no_wrap=True)
    for method in dict.fromkeys(title(cell.method) for cell in shown):
        row: list[str] = []
        for scenario in scenarios:
            result = cells.get((method, scenario))
            pair = (ours(result), theirs(result.cell.published())) if result else (DASH, DASH)
            row += [f"{pair[0]}\n[dim]{pair[1]}[/dim]"] if narrow else pair
        table.add_row(escape(method), *row)
    return table


def ours(result: Result) -> str:
    return plus_minus(result.accuracy)


def plus_minus(summary: Summary) -> str:
    if math.isnan(summary.mean):
        return "diverged"
    return f"{summary.mean:.2f}" + ("" if math.isnan(summary.sem) else f" ± {summary.sem:.2f}")


def theirs(published: Published | None) -> str:
    return f"{published.mean:.2f} ± {published.sem:.2f}" if published else DASH


def title(method: Method) -> str:
    """A method as tables name it, with the hyperparameters that were given."""
    return (
        " + ".join(
            (METHODS[part.name].title if part.name in METHODS else part.name)
            + (f" ({', '.join(chosen(part))})" if chosen(part) else "")
            for part in method.parts
        )
        or METHODS["none"].title
    )


def reasons(refused: Sequence[tuple[Cell, str]]) -> Mapping[str, str]:
    """Why a cell shows a dash, each reason once."""
    return {f"{title(cell.method)} in {cell.scenario.title}": reason for cell, reason in refused}
