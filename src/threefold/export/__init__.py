"""Runs for other tools: TensorBoard, pandas and R (CSV), NumPy, Parquet. Each run with its curves, matrix, metrics
and spec. Accuracies are in per cent; a number that was never measured, because a run diverged, is left out or NaN."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from threefold.errors import ThreefoldError
from threefold.extras import need
from threefold.results import Record, Store
from threefold.results.output import check_output

ENDINGS: Mapping[str, Sequence[str]] = {"csv": (".csv", ".txt"), "npz": (".npz",), "parquet": (".parquet",)}


def records(store: Path) -> list[Record]:
    """The runs of a store."""
    with Store(store, readonly=True) as opened:
        found = list(opened.all())
    if not found:
        raise ThreefoldError(f"store '{store}' holds no runs; right would be one that does.")
    return found


def to_file(kind: str, runs: Sequence[Record], file: Path, store: Path | None = None) -> None:
    """Write one of `FILES`, whole or not at all; an earlier one that is there is replaced then, anything else never.

    `store` is the file that the runs came from.
    """
    with _explained(file):
        check_output(file, ENDINGS[kind], store)
        if kind == "npz" and file.is_file():
            _refuse_data(file)
    with _whole(file, " or - for standard output" if kind == "csv" else ", which is written whole") as part:
        FILES[kind](runs, part)


def _refuse_data(file: Path) -> None:
    """Data to train on are .npz files too."""
    with suppress(BadZipFile), ZipFile(file) as archive:
        if "train_x.npy" in archive.namelist():
            raise ThreefoldError(f"file '{file}' holds data to train on (train_x); right would be another file.")


def to_tensorboard(runs: Sequence[Record], folder: Path) -> int:
    """A folder for each run. Runs that are there already stay, as they do in a store; answers how many are new."""
    need("export tensorboard", "tensorboard", "tensorboard")
    from threefold.export.tensorboard import folder_name, write

    with _explained(folder):
        if folder.exists() and not folder.is_dir():
            raise ThreefoldError(f"'{folder}' is a file; right would be a folder, or a name that is not in use.")
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.absolute().parent) as aside:
            made = [run for run in runs if not (folder / folder_name(run)).exists()]
            for run in made:
                write(run, Path(aside) / folder_name(run))
            folder.mkdir(exist_ok=True)
            for run in made:
                target = folder / folder_name(run)
                target.parent.mkdir(parents=True, exist_ok=True)
                (Path(aside) / folder_name(run)).rename(target)
    return len(made)


def _csv(runs: Sequence[Record], file: Path) -> None:
    from threefold.export.flat import write_csv

    write_csv(runs, file)


def _npz(runs: Sequence[Record], file: Path) -> None:
    from threefold.export.arrays import write_npz

    write_npz(runs, file)


def _parquet(runs: Sequence[Record], file: Path) -> None:
    need("export parquet", "parquet", "pyarrow")
    from threefold.export.parquet import write_parquet

    write_parquet(runs, file)


FILES: Mapping[str, Callable[[Sequence[Record], Path], None]] = {"csv": _csv, "npz": _npz, "parquet": _parquet}


@contextmanager
def _whole(file: Path, right: str) -> Iterator[Path]:
    """A file to write to that takes the name when all is well."""
    with _explained(file):
        target = file.resolve()  # a link stays one
        if target.is_dir():
            raise ThreefoldError(f"'{file}' is a folder; right would be a file.")
        if target.exists() and not target.is_file():
            raise ThreefoldError(f"'{file}' is a device or pipe; right would be a file{right}.")
        with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as aside:
            part = Path(aside) / target.name
            yield part
            part.replace(target)


@contextmanager
def _explained(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ThreefoldError(
            f"'{place}' cannot be written ({error.strerror or error}); right would be a place in a folder of your own."
        ) from error
