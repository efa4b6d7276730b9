"""Tables for the terminal."""

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from threefold.experiments import Cell, Result, Section
from threefold.report import document
from threefold.report.evidence import told_apart
from threefold.report.panels import seeds_of
from threefold.report.words import DASH, plus_minus, theirs, title
from threefold.text import printable

__all__ = ["DASH", "comparison", "fitting", "ours", "plus_minus", "reasons", "render", "theirs", "title"]

COLOURS = {"✓": "green", "✗": "bold red", "?": "yellow"}


def render(sections: Sequence[Section], *, narrow: bool = False) -> Group:
    """The whole report. `narrow` (below 120 columns): tables that fit 80."""
    layout: document.Layout = "narrow" if narrow else "screen"
    return Group(*(_block(block) for block in document.document(sections, layout)))


def _block(block: document.Block) -> RenderableType:
    match block:
        case document.Heading():
            return Padding(Text(printable(block.text), style="bold underline"), (1, 0, 0, 0))
        case document.Text():
            return Text(printable(block.text), style="dim")
        case document.Items():
            items = Table.grid(padding=(0, 1))
            for item in block.items:
                items.add_row("•", Text(printable(item)))
            return items
        case document.Table():
            return _table(block)


def _table(block: document.Table) -> Table:
    table = Table(title=Text(printable(block.caption), style="bold"), title_justify="left", title_style="")
    for place, name in enumerate(block.header):
        dim = "dim" if name == "published" else None
        table.add_column(Text(printable(name)), justify="left" if place < block.left else "right", style=dim)
    tall = any("\n" in cell for row in block.rows for cell in row)
    for place, row in enumerate(block.rows):
        if block.groups and place and (tall or block.groups[place] != block.groups[place - 1]):
            table.add_section()
        table.add_row(*map(_cell, row))
    return table


def _cell(text: str) -> Text:
    """A verdict's sign in its colour; what stands on a second line is dim."""
    first, _, rest = printable(text).partition("\n")
    cell = Text(first)
    for sign, style in COLOURS.items():
        cell.highlight_regex(rf"(?<!\S)\{sign}(?!\S)", style)
    if rest:
        cell.append(f"\n{rest}", style="dim")
    return cell


def fitting(console: Console, results: Sequence[Result], refused: Sequence[tuple[Cell, str]]) -> Group:
    """The comparison, narrow if it would be too wide for this terminal."""
    wide = console.measure(_numbers(results, refused), options=console.options.update(max_width=1000)).maximum
    return comparison(results, refused, narrow=wide > console.width)


def comparison(results: Sequence[Result], refused: Sequence[tuple[Cell, str]], *, narrow: bool = False) -> Group:
    """Methods × scenarios: mean ± SEM of the average accuracy, and the published number beside it, if there is any.

    `narrow`: below it instead. A dash is what cannot be done, a blank what was not asked for.
    """
    seeds, below = seeds_of([result.accuracy for result in results]), narrow and _published(results)
    caption = f"average accuracy over all tasks, per cent (mean ± SEM of {seeds}{'; below: published' * below})"
    heading = Text(printable(f"{results[0].cell.protocol.title}: {caption}"), style="bold")
    return Group(heading, _numbers(results, refused, narrow=narrow))


def _published(results: Sequence[Result]) -> bool:
    return any(result.cell.published() for result in results)


def _numbers(results: Sequence[Result], refused: Sequence[tuple[Cell, str]], *, narrow: bool = False) -> Table:
    cells: dict[tuple[str, str], Result] = {}
    for result in results:
        row = title(result.cell.method)
        while (row, result.cell.scenario.title) in cells:  # trained in another way: never hide one by the other
            row = told_apart(row, result.cell)
        cells[row, result.cell.scenario.title] = result
    dashes = {(title(cell.method), cell.scenario.title): cell for cell, _ in refused}
    scenarios = list(dict.fromkeys(scenario for _, scenario in (*cells, *dashes)))
    published = _published(results)
    table = Table(show_lines=narrow)
    table.add_column("Method")
    for scenario in scenarios:
        table.add_column(scenario, justify="right", no_wrap=True)
        if published and not narrow:
            table.add_column("published", justify="right", style="dim", no_wrap=True)
    for method in dict.fromkeys(method for method, _ in (*cells, *dashes)):
        numbers: list[str] = []
        for scenario in scenarios:
            found = cells.get((method, scenario))
            dash = DASH if (method, scenario) in dashes else ""
            pair = (ours(found), theirs(found.cell.published())) if found else (dash, dash)
            if not published:
                numbers.append(pair[0])
            else:
                numbers += [f"{pair[0]}\n[dim]{pair[1]}[/dim]"] if narrow else pair
        table.add_row(escape(printable(method)), *numbers)
    return table


def ours(result: Result) -> str:
    return plus_minus(result.accuracy)


def reasons(refused: Sequence[tuple[Cell, str]]) -> Mapping[str, str]:
    """Why a cell shows a dash, each reason once."""
    return {f"{title(cell.method)} in {cell.scenario.title}": reason for cell, reason in refused}
