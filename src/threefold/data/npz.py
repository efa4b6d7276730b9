"""The user's own data: one .npz file with the arrays train_x, train_y, test_x and test_y."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefold.data.catalog import CATALOG
from threefold.data.dataset import Dataset
from threefold.errors import ThreefoldError

FIELDS = ("train_x", "train_y", "test_x", "test_y")

_DAMAGE = (ValueError, OSError, EOFError, RuntimeError, MemoryError, KeyError, zipfile.BadZipFile, zlib.error)


def load_npz(path: Path) -> Dataset:
    """The dataset in an .npz file. Nothing is ever unpickled: a file from a stranger can be wrong but not harmful."""
    if not path.is_file():
        why = "is not a file" if path.exists() else "does not exist"
        raise ThreefoldError(f"data file '{path}' {why}; give an .npz file with the arrays {', '.join(FIELDS)}.")
    try:
        zipped = zipfile.is_zipfile(path)
    except OSError as error:
        raise ThreefoldError(f"data file '{path}' cannot be read ({error.strerror}).") from error
    if not zipped:
        raise ThreefoldError(f"data file '{path}' is not a zip archive, or is cut short; save it with numpy.savez.")
    arrays = _read(path)
    try:
        name = path.name if path.stem in CATALOG else path.stem  # what is called mnist.npz need not be MNIST
        return Dataset.from_arrays(*arrays, name=name.encode("utf-8", "replace").decode())
    except ThreefoldError as error:
        raise ThreefoldError(f"data file '{path}': {error}") from error


def _read(path: Path) -> list[NDArray[Any]]:
    field = ""
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in FIELDS if name not in archive.files]
            if missing:
                raise ThreefoldError(
                    f"data file '{path}' lacks {', '.join(missing)}; it has {', '.join(archive.files) or 'no arrays'}, "
                    f"and must have {', '.join(FIELDS)}."
                )
            arrays = []
            for field in FIELDS:
                arrays.append(archive[field])
            return arrays
    except _DAMAGE as error:
        if "allow_pickle" in str(error):
            raise ThreefoldError(
                f"array {field} in data file '{path}' holds Python objects, which are never loaded; save plain numbers."
            ) from error
        where = f"array {field} in data file '{path}'" if field else f"data file '{path}'"
        raise ThreefoldError(f"{where} is damaged and cannot be read; save it again with numpy.savez.") from error
