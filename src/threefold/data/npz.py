"""The user's own data: one .npz file with the arrays train_x, train_y, test_x and test_y."""

import os
import zipfile
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from threefold.data.catalog import CATALOG
from threefold.data.dataset import Dataset
from threefold.errors import ThreefoldError
from threefold.memory import in_bytes, memory_limit
from threefold.reading import open_file
from threefold.text import printable

FIELDS = ("train_x", "train_y", "test_x", "test_y")

_DAMAGE = (ValueError, OSError, EOFError, RuntimeError, MemoryError, KeyError, zipfile.BadZipFile, zlib.error)


def load_npz(path: Path) -> Dataset:
    """The dataset in an .npz file. Nothing is ever unpickled: an untrusted file can be wrong but not harmful."""
    if not os.path.isfile(path):  # False for names that are too long, too
        why = "is not a file" if os.path.exists(path) else "does not exist"
        raise ThreefoldError(f"data file '{path}' {why}; give an .npz file with the arrays {', '.join(FIELDS)}.")
    try:
        with open_file(path) as file:
            if not zipfile.is_zipfile(file):
                raise ThreefoldError(
                    f"data file '{path}' is not a zip archive, or is cut short; save it with numpy.savez."
                )
            file.seek(0)
            arrays = _read(file, path)
    except OSError as error:
        raise ThreefoldError(f"data file '{path}' cannot be read ({error.strerror or error}).") from error
    try:
        name = path.name if path.stem in CATALOG else path.stem  # a file mnist.npz need not be MNIST
        named = printable(name.encode("utf-8", "replace").decode())
        four = [arrays.pop(field) for field in FIELDS]
        return Dataset.from_arrays(*four, name=named, columns=_pairs(arrays))
    except ThreefoldError as error:
        raise ThreefoldError(f"data file '{path}': {error}") from error


def _pairs(arrays: dict[str, NDArray[Any]]) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Further data on each sample, such as `train_year` and `test_year`."""
    names = [name.removeprefix("train_") for name in arrays if name.startswith("train_")]
    return {name: (arrays[f"train_{name}"], arrays[f"test_{name}"]) for name in names}


def _columns(files: Sequence[str]) -> list[str]:
    """The arrays of a file that come in pairs, one for each sample."""
    names = [name.removeprefix("train_") for name in files if name.startswith("train_") and name not in FIELDS]
    return [f"{part}_{name}" for name in names if f"test_{name}" in files for part in ("train", "test")]


def _read(file: BinaryIO, path: Path) -> dict[str, NDArray[Any]]:
    field = ""
    try:
        with np.load(file, allow_pickle=False) as archive:
            missing = [name for name in FIELDS if name not in archive.files]
            if missing:
                raise ThreefoldError(
                    f"data file '{path}' lacks {', '.join(missing)}; it has {', '.join(archive.files) or 'no arrays'}, "
                    f"and must have {', '.join(FIELDS)}."
                )
            fields, need = [*FIELDS, *_columns(archive.files)], 0
            for field in fields:
                need += _memory(archive.zip, f"{field}.npy")
            if need > (free := memory_limit()):
                raise ThreefoldError(
                    f"data file '{path}' needs {in_bytes(need)} of memory, and {in_bytes(free)} are free; give a"
                    " smaller file, or use a machine with more."
                )
            arrays = {}
            for field in fields:
                arrays[field] = archive[field]
            return arrays
    except _DAMAGE as error:
        if "allow_pickle" in str(error):
            raise ThreefoldError(
                f"array {field} in data file '{path}' holds Python objects, which are never loaded; save plain numbers."
            ) from error
        where = f"array {field} in data file '{path}'" if field else f"data file '{path}'"
        raise ThreefoldError(f"{where} is damaged and cannot be read; save it again with numpy.savez.") from error


def _memory(archive: zipfile.ZipFile, name: str) -> int:
    """The bytes that an array takes while it is read, and as we keep it, according to its header.

    NumPy would allocate that memory before reading. The archive has the array's true length, and returns no more.
    """
    with archive.open(name) as stream:
        old = npy.read_magic(stream) == (1, 0)
        shape, _, dtype = (npy.read_array_header_1_0 if old else npy.read_array_header_2_0)(stream)
    size = prod(shape) * dtype.itemsize
    if size > archive.getinfo(name).file_size and not dtype.hasobject:
        raise ValueError("shorter than its header says")
    return size + prod(shape) * (5 if name.endswith("_x.npy") else 8)  # a byte for the check that it is finite
