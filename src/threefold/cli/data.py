"""`threefold data`: fetch and check datasets."""

from typing import Annotated

import typer

from threefold.cli.stdout import say

app = typer.Typer(help="Fetch and check datasets.", no_args_is_help=True)
Name = Annotated[str | None, typer.Argument(help="Dataset; all known ones if not given.")]


@app.command()
def fetch(name: Name = None) -> None:
    """Make sure that a dataset is in the data folder, whole and verified."""
    from threefold import data
    from threefold.experiments.progress import fetching

    for wanted in [name] if name else data.names():
        with fetching() as report:
            folder = data.fetch(wanted, report=report)
        say(f"{wanted}: verified in {folder}")


@app.command()
def check(name: Name = None) -> None:
    """Look at the files of a dataset; exit status 1 if any is missing or damaged."""
    from threefold import data

    states = [state for wanted in ([name] if name else data.names()) for state in data.check(wanted)]
    for state in states:
        say(f"{state.file}: {state.state}")
    if any(state.state != "good" for state in states):
        raise typer.Exit(1)
