"""Reads untrusted archives (.tar.gz) member by member: nothing is unpacked to disk, and only a limited amount in
memory."""

import gzip
import tarfile
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from threefold.data.catalog import File
from threefold.data.download import SourceFailed
from threefold.memory import in_bytes

Delivery = Generator[tuple[File, bytes], None, None]

UNPACKED = 1 << 30  # bytes: several times what the largest known archive unpacks to

_DAMAGE = (tarfile.TarError, EOFError, OSError, ValueError, RecursionError, zlib.error)


def from_archive(stream: BinaryIO, files: Sequence[File]) -> Delivery:
    """The files in an archive, in any folder of it. Nothing after the last of them is read."""
    wanted = {file.name: file for file in files}
    for name, content in members(stream, {file.name: file.limit for file in files}):
        if name in wanted:
            yield wanted.pop(name), content
        if not wanted:
            return


def members(stream: BinaryIO, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The regular members of these names, in any folder; at most one byte more than its limit is read of each.

    A short archive may unpack to terabytes, in the members we need, those we skip or the headers between them, so the
    unpacked bytes are counted.
    """
    try:
        with gzip.GzipFile(fileobj=stream) as unpacked:
            counted = cast(BinaryIO, _Counted(unpacked))
            with tarfile.open(fileobj=counted, mode="r|") as archive:
                for member in archive:
                    name = PurePosixPath(member.name).name
                    content = archive.extractfile(member) if name in limits and member.isreg() else None
                    if content is not None:
                        yield name, content.read(limits[name] + 1)
    except _DAMAGE as error:
        raise SourceFailed("is damaged") from error


class _Counted:
    """A stream of an archive's unpacked bytes, up to the limit."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream, self._left = stream, UNPACKED

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise SourceFailed(f"unpacks to more than {in_bytes(UNPACKED)}")
        return data
