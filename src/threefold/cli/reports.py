"""`threefold report`, `status` and `merge`: the content of stores."""

from pathlib import Path
from typing import Annotated

import typer

from threefold.cli import options
from threefold.cli.stdout import say, write, write_foreign
from threefold.text import printable


def report(
    store: options.StoreFile = Path("threefold.db"),
    format: Annotated[str, typer.Option(help="terminal, markdown, latex, csv, html, json or bibtex.")] = "terminal",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write to this FILE, - for standard output; an earlier one is replaced."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Tables for a paper, of these alone: acc,forgetting,bwt,fwt,params,memory,flops,seconds."),
    ] = None,
    cite: Annotated[
        bool, typer.Option("--cite", help="In LaTeX, methods cite their papers: their entries are the format bibtex.")
    ] = False,
    figures: Annotated[Path | None, typer.Option(help="Save the figures in this folder.")] = None,
    figure_format: Annotated[
        str | None, typer.Option(help="svg, pdf or png, or several with commas; all if not given.")
    ] = None,
    match: Annotated[
        str | None, typer.Option(help="compute: also accuracy over floating-point operations, of all methods.")
    ] = None,
    experiment: options.ExperimentNames = None,
    only: options.OnlyStored = None,
    plugin: options.Plugin = None,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> None:
    """Show what the experiments in a store came to, with verdicts, in a format of your choice."""
    from dataclasses import replace

    from threefold.errors import ThreefoldError, unknown
    from threefold.experiments import sections
    from threefold.experiments.selection import Selection
    from threefold.experiments.status import cannot_be_read
    from threefold.report import FORMATS, HEADS, render, save_figures
    from threefold.results import Store
    from threefold.results.output import begins_with, check_output, is_special, write_output

    if as_json and format not in ("terminal", "json"):
        raise ThreefoldError(f"json is set, but format is '{format}'; give one of them.")
    format = "json" if as_json else format
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if match not in (None, "compute"):
        raise unknown("match", match, ["compute"])
    if figure_format and not figures:
        raise ThreefoldError(f"figure-format is '{figure_format}', but nothing is drawn; give --figures FOLDER.")
    kinds = options.names(figure_format) or None
    with Store(store, readonly=True) as opened:
        found, unreadable = sections(opened), opened.unreadable()
    if not any(section.results for section in found):
        raise ThreefoldError(f"store '{store}' holds no results of an experiment; give one that does.")
    found = Selection(tuple(experiment or ()), tuple(options.names(only))).sections(found)
    found = [replace(section, matched=match is not None) for section in found]
    for name, why in unreadable.items():
        typer.echo(printable(f"threefold: experiment {cannot_be_read(name, why)}"), err=True)
    text = render(found, format, columns=options.names(columns), cite=cite, plain=output is not None)
    head, is_ours = HEADS[format], begins_with(HEADS[format])
    shown = output == Path("-") or (output is None and figures is None)
    if output and not shown and not is_special(output):
        check_output(output, is_ours, store)
    for path in save_figures(found, figures, kinds) if figures else ():
        say(str(path))
    if shown:
        (write if format == "terminal" else write_foreign)(text)
    elif output:
        whole = text if text.startswith(head) else f"{head}{text}"
        write_output(output, whole.encode(errors="replace"), is_ours, store)


def status(
    store: options.StoreFile = Path("threefold.db"), plugin: options.Plugin = None, as_json: options.Json = False
) -> None:
    """Tell what is done, running and left, and how long the rest will take."""
    from threefold.experiments.status import Status
    from threefold.report import as_json as documents
    from threefold.results import Store

    with Store(store, readonly=True) as opened:
        found = Status.of(opened)
    if as_json:
        write(documents.text(found.to_json()))
    else:
        for line in found.lines():
            say(line)


def merge(
    destination: Annotated[Path, typer.Argument(help="Store to merge into.")],
    sources: Annotated[list[Path], typer.Argument(help="Stores to merge, or files that export rows wrote.")],
) -> None:
    """Gather results of several machines in one store."""
    from threefold.results import merge

    merged = merge(destination, sources)
    networks = f", {merged.networks} networks copied" if merged.networks else ""
    say(f"{destination}: {merged.added} runs added, {merged.present} were there already{networks}.")
