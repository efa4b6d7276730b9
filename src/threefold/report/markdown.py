"""The report as Markdown, to be pasted into a page or an issue."""

import re
from collections.abc import Sequence

from threefold.experiments import Section
from threefold.report.document import Block, Heading, Items, Table, Text, document
from threefold.report.metric_table import Column


def render(sections: Sequence[Section], columns: Sequence[Column] = ()) -> str:
    return "\n\n".join(block(each) for each in document(sections, columns=columns)) + "\n"


def block(block: Block) -> str:
    """One heading, paragraph, list or table."""
    match block:
        case Heading():
            return f"{'#' * block.level} {escape(block.text)}"
        case Text():
            return escape(block.text)
        case Items():
            return "\n".join(f"- {escape(item)}" for item in block.items)
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    marks = [":--" if place < table.left else "--:" for place in range(len(table.header))]
    cells = [[_cell(cell, bold=(y, x) in table.bold) for x, cell in enumerate(row)] for y, row in enumerate(table.rows)]
    rows = [f"| {' | '.join(line)} |" for line in [[*map(escape, table.header)], marks, *cells]]
    return f"**{escape(table.caption)}**\n\n" + "\n".join(rows)


def _cell(text: str, *, bold: bool) -> str:
    return f"**{escape(text)}**" if bold else escape(text)


def escape(text: str) -> str:
    """Text with all mark-up escaped, on one line."""
    plain = " ".join(text.split())
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", plain)
