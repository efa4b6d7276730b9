"""CIFAR in its own formats with a few images: official files, an archive of them, and the npm package's pictures."""

import gzip
import io
import json
import tarfile
from collections.abc import Mapping

import numpy as np
from PIL import Image

IMAGES = 20  # in each file


def pixels(seed: int) -> np.ndarray:
    """Images × channels × rows × columns."""
    return np.random.default_rng(seed).integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)


def labels(seed: int) -> list[int]:
    return [(image * 7 + seed) % 10 for image in range(IMAGES)]


def record(label: bytes, image: np.ndarray) -> bytes:
    """One record, byte by byte as the format is described."""
    red, green, blue = image
    return label + b"".join(bytes(row.tolist()) for plane in (red, green, blue) for row in plane)


def batches() -> dict[str, bytes]:
    """The six files of CIFAR-10."""
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    return {
        name: b"".join(record(bytes([label]), image) for label, image in zip(labels(seed), pixels(seed), strict=True))
        for seed, name in enumerate(names)
    }


def package() -> dict[str, bytes]:
    """The members of the npm package: pictures whose rows are images, and the labels in two lists."""
    made = {}
    for seed in range(6):
        rows = np.array(
            [[[*image[:, row, column]] for row in range(32) for column in range(32)] for image in pixels(seed)]
        )
        stream = io.BytesIO()
        Image.fromarray(rows.astype(np.uint8), "RGB").save(stream, "PNG")
        made["test_batch.png" if seed == 5 else f"data_batch_{seed + 1}.png"] = stream.getvalue()
    train = [label for seed in range(5) for label in labels(seed)]
    return made | {
        "package.json": b"{}",
        "train_lables.json": json.dumps(train).encode(),
        "test_lables.json": json.dumps(labels(5)).encode(),
    }


def hundred() -> dict[str, bytes]:
    """The two files of CIFAR-100, with one image of each class."""
    draw = np.random.default_rng(3)
    made = {}
    for name in ("train.bin", "test.bin"):
        order = draw.permutation(100).tolist()
        images = draw.integers(0, 256, (100, 3, 32, 32), dtype=np.uint8)
        made[name] = b"".join(
            record(bytes([fine // 5, fine]), image) for fine, image in zip(order, images, strict=True)
        )
    return made


def tar(files: Mapping[str, bytes], folder: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def packed(files: Mapping[str, bytes], folder: str) -> bytes:
    return gzip.compress(tar(files, folder), 1, mtime=0)
