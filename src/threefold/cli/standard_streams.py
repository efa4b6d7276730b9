"""Handles standard output and standard error that are closed, full, or only partly read."""

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from typing import Any, TextIO

from threefold.errors import ThreefoldError


def prepare() -> None:
    """Make the standard streams safe to write to, or raise an error.

    A closed descriptor would be reused for the next opened file, such as the store, which would then receive whatever
    a library writes to standard error: so it is opened on the null device. Without standard error a command works;
    without standard output its results could not be seen, so it is refused.
    """
    closed = _open_missing_descriptors()
    sys.stderr = _safe(sys.stderr, 2)
    if 1 in closed or sys.stdout is None:
        raise ThreefoldError("standard output is closed; redirect it to a file or to /dev/null.")
    sys.stdout = _safe(sys.stdout, 1)
    if isinstance(sys.stdout, TextIOWrapper):  # a character that the terminal cannot show is no reason to fail
        sys.stdout.reconfigure(errors="replace")


def _open_missing_descriptors() -> list[int]:
    closed = []
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            closed.append(descriptor)
    return closed


def _safe(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is None:  # Python's value for a closed descriptor
        return TextIOWrapper(BufferedWriter(Descriptor(descriptor)), errors="backslashreplace", line_buffering=True)
    try:
        plain = isinstance(stream, TextIOWrapper) and stream.fileno() == descriptor
    except (OSError, UnsupportedOperation):  # an in-memory stream
        plain = False
    if not plain:
        return stream
    assert isinstance(stream, TextIOWrapper)
    return TextIOWrapper(
        BufferedWriter(Descriptor(descriptor, stream)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class Descriptor(FileIO):
    """Drops output that is no longer read (`threefold list methods | head -1`); a full disk is reported once.

    Training must continue, and end with its own status, even if its output is no longer read.
    """

    def __init__(self, descriptor: int, stream: TextIO | None = None) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._stream = stream  # without a reference to it, the descriptor would be closed
        self._gone = False

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        if self._gone:
            return size
        try:
            return super().write(data)
        except OSError as error:
            self._gone = True
            if isinstance(error, BrokenPipeError) or self.fileno() == 2:
                return size
            raise ThreefoldError(
                f"standard output cannot be written ({error.strerror}); redirect it to a place with space."
            ) from error
