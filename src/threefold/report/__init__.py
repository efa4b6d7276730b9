"""Tables, figures and pages of results."""

import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from threefold.experiments.section import Section

if TYPE_CHECKING:
    from threefold.report.metric_table import Column

FORMATS = ("terminal", "markdown", "latex", "csv", "html", "json", "bibtex")
HEADS = {  # how a file begins: a later report replaces only files that begin like this
    "terminal": "threefold report\n",
    "markdown": "<!-- threefold report -->\n",
    "latex": "% threefold report\n",
    "csv": "experiment,stream,scenario,task_id_in,approach,method,written,",
    "html": "<!-- threefold report -->\n",
    "json": '{\n  "unit": "per cent",\n  "experiments": [',
    "bibtex": "% threefold citations\n",
}

__all__ = ["FORMATS", "HEADS", "render", "save_figures"]


def render(
    sections: Sequence[Section],
    format: str = "terminal",
    *,
    columns: Sequence[str] = (),
    cite: bool = False,
    plain: bool = False,
) -> str:
    """The report in one of `FORMATS`.

    `columns`: tables for a paper with these metrics and costs instead; `cite`: in LaTeX, their methods cite their
    papers. `plain`: the terminal's without colours, 120 columns wide, as for a file.
    """
    from threefold.errors import ThreefoldError, unknown
    from threefold.methods import bibliography, citation_of
    from threefold.report import as_json, html, latex, markdown, tables_csv
    from threefold.report.metric_table import chosen

    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if columns and format in ("html", "json", "bibtex"):
        raise ThreefoldError(f"columns are for terminal, markdown, latex and csv; leave them out with {format}.")
    if cite and not (columns and format == "latex"):
        raise ThreefoldError("cite is for tables in LaTeX; give columns and the format latex with it.")
    shown = chosen(columns)
    match format:
        case "terminal":
            return _terminal(sections, shown, plain or not sys.stdout.isatty())
        case "markdown":
            return markdown.render(sections, columns=shown)
        case "latex":
            return latex.render(sections, columns=shown, cite=cite)
        case "csv":
            return tables_csv.render(sections, shown)
        case "html":
            return html.render(sections)
        case "json":
            return as_json.render(sections)
    every = [result.cell.method for section in sections for result in section.results]
    return bibliography(key for method in every for key in citation_of(method))


def _terminal(sections: Sequence[Section], columns: "Sequence[Column]", plain: bool) -> str:
    from rich.console import Console

    from threefold.report import terminal

    text = StringIO()  # not rich's capture, which still writes to standard output, even if nothing
    console = Console(file=text, **({"width": 120, "color_system": None} if plain else {"force_terminal": True}))
    console.print(terminal.render(sections, narrow=console.width < 120, columns=columns))
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return "\n".join(lines) + "\n"


def save_figures(sections: Sequence[Section], folder: str | Path, formats: Sequence[str] | None = None) -> list[Path]:
    """Save every figure in a folder, as SVG, PDF and PNG or some of these; returns the files."""
    from threefold.report import figures

    return figures.save(sections, folder, formats or figures.FORMATS)
