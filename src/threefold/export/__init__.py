"""Runs for other tools: TensorBoard, pandas and R (CSV), NumPy, Parquet, with matrix, metrics and spec.

Accuracies are in per cent; numbers that were never measured, because a run diverged, are left out or NaN.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import BinaryIO, NamedTuple
from zipfile import BadZipFile, ZipFile

from threefold.errors import ThreefoldError
from threefold.experiments.selection import EVERYTHING, Selection
from threefold.export.columns import ABOUT, WHERE, write_csv, write_curves, write_npz
from threefold.extras import need
from threefold.results import Record, Store
from threefold.results.output import IsOurs, begins_with, explained, lock, part_name, remove_leftovers, replacing


def records(store: Path, chosen: Selection = EVERYTHING) -> list[Record]:
    """The selected runs of a store."""
    with Store(store, readonly=True) as opened:
        found = chosen.records(opened)
    if not found:
        which = "runs" if chosen == EVERYTHING else "such runs"
        raise ThreefoldError(f"store '{store}' holds no {which}; give one that does.")
    return found


def to_file(kind: str, runs: Sequence[Record], file: Path, store: Path | None = None) -> None:
    """Write one of `FILES` atomically; an earlier one is replaced, but never any other file.

    `store` is the file that the runs came from.
    """
    with replacing(file, FILES[kind].is_ours, store) as stream:
        FILES[kind].write(runs, stream)


def to_tensorboard(runs: Sequence[Record], folder: Path) -> int:
    """Write a folder for each run. Existing runs are kept, as in a store; returns the number of new ones."""
    need("export tensorboard", "tensorboard", "tensorboard")
    from threefold.export.tensorboard import folder_name, write

    with explained(folder):
        if folder.exists() and not folder.is_dir():
            raise ThreefoldError(f"folder '{folder}' is a file; give a folder, or a name that is not in use.")
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with _aside(folder) as aside:
            made = [run for run in runs if not (folder / folder_name(run)).exists()]
            for run in made:
                write(run, aside / folder_name(run))
            folder.mkdir(exist_ok=True)
            for run in made:
                target = folder / folder_name(run)
                target.parent.mkdir(parents=True, exist_ok=True)
                (aside / folder_name(run)).rename(target)
    return len(made)


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A temporary folder next to the requested one, for incomplete content."""
    remove_leftovers(folder.absolute())
    aside = part_name(folder.absolute())
    aside.mkdir()
    descriptor = os.open(aside, os.O_RDONLY)
    lock(descriptor)
    try:
        yield aside
    finally:
        rmtree(aside, ignore_errors=True)
        os.close(descriptor)


def _parquet(runs: Sequence[Record], stream: BinaryIO) -> None:
    need("export parquet", "parquet", "pyarrow")
    from threefold.export.parquet import write_parquet

    write_parquet(runs, stream)


def _is_npz(file: BinaryIO) -> bool:
    """Is this an exported .npz file? Training data are .npz files too, with other arrays."""
    try:
        with ZipFile(file) as archive:
            return {"initial.npy", "matrix.npy", "key.npy", "spec.npy"} <= {*archive.namelist()}
    except (BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def _is_parquet(file: BinaryIO) -> bool:
    need("export parquet", "parquet", "pyarrow")
    from threefold.export.parquet import is_ours

    return is_ours(file)


class Kind(NamedTuple):
    """How a file is written, and how an earlier one is recognised."""

    write: Callable[[Sequence[Record], BinaryIO], None]
    is_ours: IsOurs


FILES: Mapping[str, Kind] = {
    "csv": Kind(write_csv, begins_with("key,stream,tasks,scenario,task_id_in,")),
    "curves": Kind(write_curves, begins_with(",".join((*ABOUT, *WHERE)))),
    "npz": Kind(write_npz, _is_npz),
    "parquet": Kind(_parquet, _is_parquet),
}
