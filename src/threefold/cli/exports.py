"""`threefold export`: runs for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from threefold.cli.experiments import StoreFile

app = typer.Typer(help="Hand runs over to other tools.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="File to write; an earlier one is replaced.")]


@app.command()
def tensorboard(
    folder: Annotated[Path, typer.Argument(help="Folder for TensorBoard's --logdir; runs that are there stay.")],
    store: StoreFile = Path("threefold.db"),
) -> None:
    """Curves, metrics, spec and dreams of each run, for TensorBoard."""
    from threefold.export import records, to_tensorboard

    found = records(store)
    new = to_tensorboard(found, folder)
    typer.echo(f"{folder}: {new} runs written, {len(found) - new} were there already.")


@app.command()
def csv(file: File, store: StoreFile = Path("threefold.db")) -> None:
    """A row for each accuracy of each run: after so many tasks, on this task."""
    _write("csv", file, store)


@app.command()
def npz(file: File, store: StoreFile = Path("threefold.db")) -> None:
    """NumPy arrays: the first axis is a run each."""
    _write("npz", file, store)


@app.command()
def parquet(file: File, store: StoreFile = Path("threefold.db")) -> None:
    """A row for each run, its accuracy matrix as nested lists."""
    _write("parquet", file, store)


@app.command()
def rows(file: File, store: StoreFile = Path("threefold.db")) -> None:
    """All runs and experiments as small text, to keep beside a paper; `threefold merge` reads it like a store."""
    from threefold.errors import ThreefoldError
    from threefold.results import Store, is_rows, write_rows

    if not is_rows(file):
        raise ThreefoldError(f"file is '{file}'; right would be a name that ends in .jsonl or .jsonl.gz.")
    with Store(store, readonly=True) as opened:
        written = write_rows(opened, file)
    typer.echo(f"{file}: {written} runs.")


def _write(kind: str, file: Path, store: Path) -> None:
    from threefold.export import records, to_file

    found = records(store)
    to_file(kind, found, file, store)
    typer.echo(f"{file}: {len(found)} runs.")
