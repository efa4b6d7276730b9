"""Tables for the terminal."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from threefold.experiments import Section
from threefold.report import document
from threefold.report.metric_table import Column
from threefold.report.tables import ResultTable
from threefold.text import printable

COLOURS = {"✓": "green", "✗": "bold red", "?": "yellow"}


def render(sections: Sequence[Section], *, narrow: bool = False, columns: Sequence[Column] = ()) -> Group:
    """The whole report. `narrow` (below 120 columns): tables that fit 80."""
    layout: document.Layout = "narrow" if narrow else "screen"
    return Group(*(_block(block) for block in document.document(sections, layout, columns)))


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


def _table(block: document.Table, *, titled: bool = True) -> Table:
    title = Text(printable(block.caption), style="bold") if titled else None
    table = Table(title=title, title_justify="left", title_style="")
    for place, name in enumerate(block.header):
        dim = "dim" if name == "published" else None
        table.add_column(Text(printable(name)), justify="left" if place < block.left else "right", style=dim)
    tall = any("\n" in cell for row in block.rows for cell in row)
    for place, row in enumerate(block.rows):
        if block.groups and place and (tall or block.groups[place] != block.groups[place - 1]):
            table.add_section()
        table.add_row(*(_cell(text, bold=(place, at) in block.bold) for at, text in enumerate(row)))
    return table


def _cell(text: str, *, bold: bool) -> Text:
    """A verdict's sign in its colour; a second line is dim."""
    first, _, rest = printable(text).partition("\n")
    cell = Text(first, style="bold" if bold else "")
    for sign, style in COLOURS.items():
        cell.highlight_regex(rf"(?<!\S)\{sign}(?!\S)", style)
    if rest:
        cell.append(f"\n{rest}", style="dim")
    return cell


def fitting(console: Console, table: ResultTable) -> Group:
    """The comparison of methods with its legend, narrow if it would be too wide for this terminal."""
    wide, narrow = (document.comparison(table, layout) for layout in ("screen", "narrow"))
    measured = console.measure(_table(wide, titled=False), options=console.options.update(max_width=1000)).maximum
    block = narrow if measured > console.width else wide
    shown: list[RenderableType] = [Text(printable(block.caption), style="bold")]  # not a title, which would wrap
    shown.append(_table(block, titled=False))
    shown += [Text(printable(text), style="dim") for text in document.below(table)]
    return Group(*shown)
