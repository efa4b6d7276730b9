"""Writes the commands' output files: atomically, replacing an earlier file of the same kind and nothing else.

A file's kind is determined by its content, not its name: each writer leaves a mark that later ones recognise.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from threefold.errors import ThreefoldError
from threefold.reading import open_file

PART = ".threefold-part"  # suffix of incomplete files; those of killed writers are removed by the next
LARGEST = 64 << 20  # bytes of a file that are searched for a mark

IsOurs = Callable[[BinaryIO], bool]


def begins_with(mark: str) -> IsOurs:
    """Does a file begin with this text?"""
    return lambda file: file.read(len(mark.encode())) == mark.encode()


def contains(mark: bytes) -> IsOurs:
    """Does a file contain this anywhere?"""
    return lambda file: mark in file.read(LARGEST)


def check_output(file: Path, ours: IsOurs, store: Path | None = None) -> None:
    """Refuse a path at which there is the store, or anything that is not an earlier output of this kind."""
    with explained(file):
        target = _resolved(file)
        if target.is_dir():
            raise ThreefoldError(f"file '{file}' is a folder; give a file.")
        if not target.exists():
            if not target.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return
        if is_special(target):
            raise ThreefoldError(f"file '{file}' is a device or pipe; give a file, which is written whole.")
        if store is not None and store.exists() and target.samefile(store):
            raise ThreefoldError(f"file '{file}' is the store itself; give another file.")
        if target.stat().st_size == 0 and not Path(f"{target}-wal").exists():  # empty, as from mktemp: nothing is lost
            return
        with open_file(target) as opened:
            if not ours(opened):
                raise ThreefoldError(
                    f"file '{file}' is there already, and no earlier output of this kind; give a name that is not in"
                    " use."
                )
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "it is read-only")


def try_output(file: Path, ours: IsOurs) -> None:
    """Refuse a path that cannot be written, as a file next to it shows that is removed at once."""
    check_output(file, ours)
    with explained(file):
        part, stream = _new_part(_resolved(file))
        part.unlink()
        stream.close()


def _resolved(file: Path) -> Path:
    """Where links lead; Python has no OSError for those that lead in a circle."""
    try:
        return file.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def is_special(file: Path) -> bool:
    """Is there a device or pipe at this path?"""
    return os.path.exists(file) and not file.is_file() and not file.is_dir()


@contextmanager
def replacing(file: Path, ours: IsOurs, store: Path | None = None) -> Iterator[BinaryIO]:
    """A stream to write to. On success its content replaces the file; on an error the file is unchanged."""
    check_output(file, ours, store)
    with explained(file):
        target = _resolved(file)  # links are kept
        remove_leftovers(target)
        part, stream = _new_part(target)
        try:
            with stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _keep_name(target.parent)


def write_output(file: Path, content: bytes, ours: IsOurs, store: Path | None = None) -> None:
    """Write a file atomically, or into a device or pipe."""
    if is_special(file):
        with explained(file), open(file, "wb", buffering=0, opener=_without_waiting) as special:
            os.set_blocking(special.fileno(), True)
            left = memoryview(content)
            while left:
                left = left[special.write(left) :]
        return
    with replacing(file, ours, store) as stream:
        stream.write(content)


@contextmanager
def explained(place: Path) -> Iterator[None]:
    """Turn the system's errors into a sentence."""
    try:
        yield
    except BrokenPipeError:  # the reader has stopped reading
        raise
    except OSError as error:
        raise ThreefoldError(
            f"'{place}' cannot be written ({error.strerror or error}); give a place in a folder of your own, with room"
            " on its disk."
        ) from error


def part_name(target: Path) -> Path:
    """A new temporary name next to a file or folder, for incomplete content."""
    return target.with_name(f".{target.name}.{token_hex(4)}{PART}")


def lock(descriptor: int) -> bool:
    """Lock a temporary file until its writer exits; False if another process has it. True where locks do not work."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def remove_leftovers(target: Path) -> None:
    """Remove what killed writers of this file or folder left."""
    for part in target.parent.glob(f".{escape(target.name)}.{'[0-9a-f]' * 8}{PART}"):
        with suppress(OSError):
            descriptor = os.open(part, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the writer is alive
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            finally:
                os.close(descriptor)


def _new_part(target: Path) -> tuple[Path, BinaryIO]:
    while True:
        part = part_name(target)
        stream = part.open("xb")
        if lock(stream.fileno()) and part.exists():
            return part, stream
        stream.close()  # another process removed it as a leftover before it was locked


def _keep_name(folder: Path) -> None:
    """Sync the folder, without which a new name may not survive a power cut; not every system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, (flags | os.O_NONBLOCK) & ~(os.O_CREAT | os.O_TRUNC))
