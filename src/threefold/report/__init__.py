"""Tables, figures and pages of results."""

import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from threefold.experiments.section import Section

FORMATS = ("terminal", "markdown", "latex", "csv", "html", "json")
HEADS = {  # how a file begins: a later report replaces only files that begin like this
    "terminal": "threefold report\n",
    "markdown": "<!-- threefold report -->\n",
    "latex": "% threefold report\n",
    "csv": "experiment,stream,scenario,task_id_in,approach,method,written,",
    "html": "<!-- threefold report -->\n",
    "json": '{\n  "unit": "per cent",\n  "experiments": [',
}

__all__ = ["FORMATS", "HEADS", "render", "save_figures"]


def render(sections: Sequence[Section], format: str = "terminal", *, plain: bool = False) -> str:
    """The report in one of `FORMATS`. `plain`: the terminal's without colours, 120 columns wide, as for a file."""
    from threefold.errors import unknown
    from threefold.report import as_json, html, latex, markdown, tables_csv

    if format == "terminal":
        return _terminal(sections, plain or not sys.stdout.isatty())
    renderers = {"markdown": markdown.render, "latex": latex.render, "csv": tables_csv.render, "html": html.render}
    renderers["json"] = as_json.render
    if format not in renderers:
        raise unknown("format", format, FORMATS)
    return renderers[format](sections)


def _terminal(sections: Sequence[Section], plain: bool) -> str:
    from rich.console import Console

    from threefold.report import terminal

    text = StringIO()  # not rich's capture, which still writes to standard output, even if nothing
    console = Console(file=text, **({"width": 120, "color_system": None} if plain else {"force_terminal": True}))
    console.print(terminal.render(sections, narrow=console.width < 120))
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return "\n".join(lines) + "\n"


def save_figures(sections: Sequence[Section], folder: str | Path, formats: Sequence[str] | None = None) -> list[Path]:
    """Save every figure as SVG, PDF and PNG in a folder; returns the files."""
    from threefold.report import figures

    return figures.save(sections, folder, formats or figures.FORMATS)
