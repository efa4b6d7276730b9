"""The idx format of the MNIST family: a magic number, the sizes, then the bytes."""

import struct
from collections.abc import Mapping
from math import prod
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from threefold.errors import ThreefoldError

_UNSIGNED_BYTE = 0x08


def read(contents: Mapping[str, bytes]) -> tuple[NDArray[np.uint8], ...]:
    """The arrays in the unpacked idx files of these names."""
    return tuple(parse(data, name) for name, data in contents.items())


def parse(data: bytes, file: str | PathLike[str]) -> NDArray[np.uint8]:
    """The array in `data`, the contents of an unpacked idx file of unsigned bytes; `file` is named in errors.

    The header is two zero bytes, the type, the number of dimensions, and each dimension as a big-endian 32-bit count.
    """
    if len(data) < 4 or data[:2] != b"\0\0":
        raise ThreefoldError(
            f"file '{file}' is not an idx file: it starts with {data[:4].hex(' ') or 'nothing'}; "
            "it must start with 00 00 08."
        )
    kind, ndim = data[2], data[3]
    if kind != _UNSIGNED_BYTE:
        raise ThreefoldError(
            f"idx file '{file}' holds values of type 0x{kind:02x}; only unsigned bytes (0x08) are read."
        )
    if ndim == 0:
        raise ThreefoldError(f"idx file '{file}' has no dimensions; it must have at least one.")
    start = 4 + 4 * ndim
    if len(data) < start:
        raise ThreefoldError(
            f"idx file '{file}' ends after {len(data)} bytes; the header alone of {ndim} dimensions takes {start}."
        )
    shape = struct.unpack(f">{ndim}I", data[4:start])
    if len(data) - start != prod(shape):
        raise ThreefoldError(
            f"idx file '{file}' has {len(data) - start} bytes of values; its sizes {shape} call for {prod(shape)}."
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
