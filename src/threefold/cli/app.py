"""The commands, and how their errors are told: one sentence, exit status 2, no traceback."""

import sys
from typing import Annotated

import typer

from threefold.cli import bench, data, listing, run
from threefold.errors import ThreefoldError

app = typer.Typer(
    name="threefold",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning, measured in three scenarios: Task-IL, Domain-IL and Class-IL.",
)
app.command("run")(run.run)
app.command("list")(listing.listing)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")


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
    """Entry point of the `threefold` command."""
    try:
        status = app(standalone_mode=False)
    except ThreefoldError as error:
        fail(str(error))
    except typer.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        print("threefold: stopped; the same command goes on from the last finished task.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # an error of the argument parser
            raise
        fail(_named(error))
    sys.exit(status if isinstance(status, int) else 0)


def _named(error: Exception) -> str:
    """The parser's message, with the option and the value it is about."""
    options = getattr(getattr(error, "param", None), "opts", [])
    for place, word in enumerate(sys.argv[:-1]):
        if word in options:
            return f"{word} is '{sys.argv[place + 1]}': {getattr(error, 'message', error)}"
    return str(error.format_message())  # type: ignore[attr-defined]


def fail(sentence: str) -> None:
    print(f"threefold: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(2)
