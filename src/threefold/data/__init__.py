"""Datasets as tensors in memory: known ones from verified sources, or the user's own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from threefold.data.cache import Cache, home
from threefold.data.catalog import CATALOG, KnownDataset
from threefold.data.dataset import Dataset
from threefold.data.encoding import Encoder
from threefold.data.joined import joined
from threefold.data.npz import load_npz
from threefold.data.progress import Report
from threefold.data.sources import obtain
from threefold.errors import ThreefoldError, unknown
from threefold.values import check_name

__all__ = ["Dataset", "Encoder", "FileState", "Report", "check", "fetch", "joined", "load", "names", "register_dataset"]


class FileState(NamedTuple):
    """A data file and its state: "good", "missing", or "damaged: " and why."""

    file: Path
    state: str


def names() -> tuple[str, ...]:
    """The known datasets."""
    return tuple(CATALOG)


REGISTERED: dict[str, Callable[[], Dataset]] = {}


def register_dataset(name: str, read: Callable[[], Dataset]) -> None:
    """Register your own data by name: `--data NAME`, `split-NAME`. `read` is called when they are needed."""
    check_name("name of a dataset", name, CATALOG)
    if not callable(read):
        raise ThreefoldError(f"dataset must be given as a function that reads it, got {read!r}.")
    REGISTERED[name] = read


def load(name_or_path: str | Path, *, report: Report | None = None) -> Dataset:
    """A known dataset by name, fetched if necessary, the user's own from a path that ends in .npz, or several joined,
    `mnist+fashion-mnist`.

    The checksums of a known dataset's files are verified at every load: that takes 50 ms for MNIST, and disks can fail
    at any time.
    """
    pieces = str(name_or_path).split("+")
    if len(pieces) > 1 and all(pieces) and not os.path.exists(name_or_path):
        each = {piece: load(piece, report=report) for piece in dict.fromkeys(pieces)}
        return joined([each[piece] for piece in pieces])
    if Path(name_or_path).suffix.lower() == ".npz":
        return load_npz(_expanded(Path(name_or_path)))
    if read := REGISTERED.get(str(name_or_path)):
        try:
            made = read()
        except (ThreefoldError, MemoryError):
            raise
        except Exception as error:  # a user's code may raise anything
            told = f"{type(error).__name__}: {error}"
            raise ThreefoldError(f"dataset '{name_or_path}' cannot be read ({told}).") from error
        if not isinstance(made, Dataset):
            raise ThreefoldError(f"dataset '{name_or_path}' must be read as a Dataset, got a {type(made).__name__}.")
        return made
    entry = _entry(str(name_or_path))
    found = obtain(entry, report=report).found
    arrays = entry.read({file.name: found[file] for file in entry.files})
    return Dataset.from_arrays(*arrays, name=entry.name)


def fetch(name: str, *, report: Report | None = None) -> Path:
    """Make sure that a known dataset is in the data folder, complete and verified; returns the folder of its files."""
    files = obtain(_entry(name), report=report)
    return Path(os.path.commonpath([path.parent for path in files.paths.values()]))


def check(name: str) -> list[FileState]:
    """The states of a known dataset's files in the data folder; fetches and changes nothing."""
    entry = _entry(name)
    cache = Cache(home(), entry)
    survey = cache.survey()
    states = []
    for file in entry.files:
        bad = [path for path in survey.damaged if path.name.removesuffix(".gz") == file.name]
        states += [FileState(path, f"damaged: {survey.damaged[path]}") for path in bad]
        if file in survey.paths:
            states.append(FileState(survey.paths[file], "good"))
        elif not bad:
            states.append(FileState(cache.folder / file.name, "missing"))
    return states


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ThreefoldError(
            f"data file '{path}' begins with a user's folder that is not known; give a path without ~."
        ) from error


def _entry(name: str) -> KnownDataset:
    if name in CATALOG:
        return CATALOG[name]
    if os.sep in name or os.path.isfile(name):
        raise ThreefoldError(
            f"data file '{name}' does not end in .npz; give an .npz file or one of {', '.join(CATALOG)}."
        )
    raise unknown("dataset", name, [*CATALOG, *REGISTERED])
