"""`threefold forget`: remove runs from a store."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from threefold.cli import options
from threefold.cli.stdout import say
from threefold.errors import ThreefoldError


def forget(
    experiment: options.ExperimentNames = None,
    only: options.OnlyStored = None,
    older_than: Annotated[float | None, typer.Option(help="Runs that were stored more than so many DAYS ago.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: options.StoreFile = Path("threefold.db"),
) -> None:
    """Remove runs from a store: those that fit all that is given. Asks first. What is removed can be trained again."""
    from threefold.experiments.selection import EVERYTHING, Selection, to_forget
    from threefold.results import Store

    selection = Selection(tuple(experiment or ()), tuple(options.names(only)), older_than)
    if selection == EVERYTHING:
        raise ThreefoldError("forget needs experiment, only or older-than; to forget everything, delete the store.")
    with Store(store, readonly=True) as opened:
        keys, experiments = to_forget(opened, selection)
    what = f"{len(keys)} run{'s' * (len(keys) != 1)}"
    if experiments:
        what += f" and the experiment{'s' * (len(experiments) != 1)} {', '.join(sorted(experiments))}"
    if not keys and not experiments:
        say(f"{store}: no run fits.")
        return
    if not yes and not _agreed(f"Forget {what} of {store}?"):
        say("Nothing was forgotten.")
        return
    with Store(store) as opened:
        networks = opened.forget(keys, experiments)
    if networks:
        what += f", and {networks} network{'s' * (networks != 1)} that they kept,"
    say(f"{store}: {what} forgotten.")


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ThreefoldError("forget asks first, and nobody can answer here; use --yes.")
    return typer.confirm(question, err=True)
