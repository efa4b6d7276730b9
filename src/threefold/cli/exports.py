"""`threefold export`: runs for other tools."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from threefold.cli import options
from threefold.cli.stdout import say, write_foreign
from threefold.errors import ThreefoldError

if TYPE_CHECKING:
    from threefold.experiments.selection import Selection

app = typer.Typer(help="Hand runs over to other tools.", no_args_is_help=True)
TEXTS = ("csv", "curves")  # what standard output can show
File = Annotated[Path, typer.Argument(help="File to write; an earlier one is replaced.")]
TextFile = Annotated[Path, typer.Argument(help="File to write, or - for standard output; an earlier one is replaced.")]


@app.command()
def tensorboard(
    folder: Annotated[Path, typer.Argument(help="Folder for TensorBoard's --logdir; runs that are there stay.")],
    experiment: options.ExperimentNames = None,
    only: options.OnlyStored = None,
    plugin: options.Plugin = None,
    store: options.StoreFile = Path("threefold.db"),
) -> None:
    """Curves, metrics, spec and images of each run, for TensorBoard."""
    from threefold.export import records, to_tensorboard

    if _is_stdout(folder):
        raise ThreefoldError("folder is '-', but TensorBoard reads files; give a folder.")
    found = records(store, _selection(experiment, only))
    new = to_tensorboard(found, folder)
    say(f"{folder}: {new} runs written, {len(found) - new} were there already.")


def _command(kind: str, meaning: str, file_type: Any) -> None:
    """Add the command that writes files of this kind."""

    def write(
        file: file_type,
        experiment: options.ExperimentNames = None,
        only: options.OnlyStored = None,
        plugin: options.Plugin = None,
        store: options.StoreFile = Path("threefold.db"),
    ) -> None:
        _write(kind, file, store, _selection(experiment, only))

    app.command(kind, help=meaning)(write)


_command("csv", "A row for each accuracy of each run: after so many tasks, on this task.", TextFile)
_command(
    "curves",
    "A row of CSV for each accuracy during training (--evaluate-every): after so many steps, on this task.",
    TextFile,
)
_command("npz", "NumPy arrays: the first axis is a run each.", File)
_command("parquet", "A row for each run, its accuracy matrix as nested lists.", File)


@app.command()
def rows(file: TextFile, store: options.StoreFile = Path("threefold.db")) -> None:
    """All runs and experiments as small text, to keep beside a paper; `threefold merge` reads it like a store."""
    from threefold.results import Store, is_rows, write_rows
    from threefold.results.rows import rows_text

    if _is_stdout(file):
        with Store(store, readonly=True) as opened:
            content, _ = rows_text(opened)
        write_foreign(content.decode())
        return
    if not is_rows(file):
        raise ThreefoldError(
            f"file is '{file}'; it must be a name that ends in .jsonl or .jsonl.gz, or - for standard output."
        )
    with Store(store, readonly=True) as opened:
        written = write_rows(opened, file)
    say(f"{file}: {written} runs.")


def _selection(experiments: list[str] | None, only: str | None) -> "Selection":
    from threefold.experiments.selection import Selection

    return Selection(tuple(experiments or ()), tuple(options.names(only)))


def _is_stdout(file: Path) -> bool:
    return str(file) == "-"


def _write(kind: str, file: Path, store: Path, chosen: "Selection") -> None:
    from threefold.export import FILES, records, to_file

    if not _is_stdout(file):
        found = records(store, chosen)
        to_file(kind, found, file, store)
        say(f"{file}: {len(found)} runs.")
        return
    if kind not in TEXTS:
        raise ThreefoldError(f"file is '-', but {kind} is no text for standard output; give a file.")
    content = BytesIO()
    FILES[kind].write(records(store, chosen), content)
    write_foreign(content.getvalue().decode())
