"""Arrays of numbers in JSON, compressed."""

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from zlib import compress, decompressobj
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray


def pack(array: NDArray[Any]) -> dict[str, Any]:
    """An array of numbers as JSON-able data, compressed."""
    content = b64encode(compress(array.tobytes(), 9)).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": content}


def unpack(packed: Mapping[str, Any]) -> NDArray[Any]:
    """The array that `pack` wrote; ValueError for anything else, without unpacking more than the array's size."""
    dtype, shape = np.dtype(packed["dtype"]), packed["shape"]
    if dtype.kind not in "biufc":
        raise ValueError(f"it holds values of type {dtype}, which are not numbers")
    size, stream = math.prod(shape) * dtype.itemsize, decompressobj()
    try:
        content = stream.decompress(b64decode(packed["bytes"], validate=True), size + 1)
        if len(content) == size and stream.eof:
            return np.ndarray(shape, dtype, content)
    except (ZlibError, OverflowError) as error:
        raise ValueError(f"its bytes cannot be unpacked ({error})") from None
    raise ValueError(f"its bytes are not the {size} of shape {tuple(shape)}")


def shown_images(array: NDArray[Any]) -> NDArray[np.uint8] | None:
    """Images (tasks × images × channels × rows × columns) with channels last, or without that axis if grey.

    Flat rows of pixels are taken as a square image, or as three, one for each colour. None for anything else.
    """
    if array.dtype != np.uint8 or array.ndim not in (3, 5) or array.size == 0:
        return None
    if array.ndim == 3:
        pixels = array.shape[-1]
        squares = ((channels, math.isqrt(pixels // channels)) for channels in (1, 3))
        planes = next(((channels, side, side) for channels, side in squares if channels * side**2 == pixels), None)
        if planes is None:
            return None
        array = array.reshape(*array.shape[:2], *planes)
    if array.shape[2] not in (1, 3):
        return None
    images = np.moveaxis(array, 2, -1)
    return images if array.shape[2] > 1 else images[..., 0]
