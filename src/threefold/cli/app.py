"""The commands, and how they report errors: one sentence, exit status 2, no traceback."""

import sys
from typing import Annotated, NoReturn

import typer

from threefold.cli import (
    bench,
    data,
    experiments,
    exports,
    forget,
    listing,
    new,
    pretrain,
    reports,
    run,
    standard_streams,
    stopping,
    usage,
    watch,
)
from threefold.errors import ThreefoldError
from threefold.text import printable

INTERRUPTED = 130  # the argument parser's exit status for KeyboardInterrupt

app = typer.Typer(
    name="threefold",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning, measured in three scenarios: Task-IL, Domain-IL and Class-IL.",
)
app.command("run")(run.run)
app.command("pretrain")(pretrain.pretrain)
app.command("reproduce")(experiments.reproduce)
app.command("experiment")(experiments.experiment)
app.command("report")(reports.report)
app.command("status")(reports.status)
app.command("watch")(watch.watch)
app.command("merge")(reports.merge)
app.command("forget")(forget.forget)
app.command("list")(listing.listing)
app.command("new")(new.new)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(exports.app, name="export")
for group in (app, data.app, exports.app):
    for registered in group.registered_commands:
        registered.cls = usage.Command


def _version(wanted: bool) -> None:
    if wanted:
        from threefold.version import VERSION

        typer.echo(f"threefold {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command that was typed, and exit."""
    try:
        standard_streams.prepare()
        if not stopping.trains():  # commands that train call it themselves once loaded
            stopping.loaded()
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except ThreefoldError as error:
        fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except SystemExit:  # ours are all below
        fail("a method, network, stream or plug-in of your own called sys.exit; take that out.")
    except Exception as error:
        if not hasattr(error, "format_message"):  # not an error of the argument parser, so ours
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # it has shown the help already
            sys.exit(2)
        fail(usage.sentence(error))
    if status == INTERRUPTED:
        print(stopping.sentence(), file=sys.stderr)
        status = stopping.status()
    stopping.done()
    sys.exit(status if isinstance(status, int) else 0)


def fail(sentence: str) -> NoReturn:
    print(f"threefold: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    stopping.done()
    sys.exit(2)
