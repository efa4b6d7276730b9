"""`threefold report`, `status` and `merge`: what is in a store."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from threefold.cli.experiments import StoreFile


def report(
    store: StoreFile = Path("threefold.db"),
    format: Annotated[str, typer.Option(help="terminal, markdown, latex, csv or html.")] = "terminal",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write to this FILE, - for standard output; an earlier one is replaced."),
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Save the figures as SVG, PDF and PNG in this folder.")] = None,
) -> None:
    """Show what the experiments in a store came to, with verdicts, in a format of your choice."""
    from threefold.errors import ThreefoldError, unknown
    from threefold.experiments.ask import sections
    from threefold.report import ENDINGS, FORMATS, render, save_figures
    from threefold.results import Store
    from threefold.results.output import check_output

    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    with Store(store, readonly=True) as opened:
        found = sections(opened)
    if not any(section.results for section in found):
        raise ThreefoldError(f"store '{store}' holds no results of an experiment; right would be one that does.")
    shown = output == Path("-") or (output is None and figures is None)
    try:
        if output and not shown:
            check_output(output, ENDINGS[format], store)
        if figures:
            for path in save_figures(found, figures):
                typer.echo(path)
        text = render(found, format, plain=output is not None)
        if shown:
            sys.stdout.write(text)
        elif output:
            output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ThreefoldError(f"the report cannot be written ({error}); right would be a folder of your own.") from error


def status(store: StoreFile = Path("threefold.db")) -> None:
    """Tell what is done, running and left, and how long the rest will take."""
    from threefold.experiments.status import status_of
    from threefold.results import Store

    with Store(store, readonly=True) as opened:
        for line in status_of(opened):
            typer.echo(line)


def merge(
    destination: Annotated[Path, typer.Argument(help="Store to merge into.")],
    sources: Annotated[list[Path], typer.Argument(help="Stores to merge.")],
) -> None:
    """Gather results of several machines in one store."""
    from threefold.results import merge

    merged = merge(destination, sources)
    typer.echo(f"{destination}: {merged.added} runs added, {merged.present} were there already.")
