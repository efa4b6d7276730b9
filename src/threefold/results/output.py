"""Where commands write: whole or not at all, over an earlier file of the same kind, and never over anything else.

What a file is tells its content, not its name: each of our writers leaves a mark that a later one knows.
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

PART = ".threefold-part"  # the ending of what is not whole yet; what a killed writer left of it goes with the next
LARGEST = 64 << 20  # bytes of a file that are searched for a mark

IsOurs = Callable[[BinaryIO], bool]


def begins_with(mark: str) -> IsOurs:
    """Does a file begin with this text?"""
    return lambda file: file.read(len(mark.encode())) == mark.encode()


def contains(mark: bytes) -> IsOurs:
    """Does a file hold this anywhere?"""
    return lambda file: mark in file.read(LARGEST)


def check_output(file: Path, ours: IsOurs, store: Path | None = None) -> None:
    """Refuse a name under which there is the store or anything else that we would not write there."""
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
        if target.stat().st_size == 0 and not Path(f"{target}-wal").exists():  # as mktemp makes them: nothing is lost
            return
        with open_file(target) as opened:
            if not ours(opened):
                raise ThreefoldError(
                    f"file '{file}' is there already, and no earlier output of this kind; give a name that is not in"
                    " use."
                )
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "it is read-only")


def _resolved(file: Path) -> Path:
    """Where links lead; Python has no OSError for those that lead in a circle."""
    try:
        return file.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def is_special(file: Path) -> bool:
    """Is there a device or pipe of this name?"""
    return os.path.exists(file) and not file.is_file() and not file.is_dir()


@contextmanager
def replacing(file: Path, ours: IsOurs, store: Path | None = None) -> Iterator[BinaryIO]:
    """A stream to write to. What was written takes the file's name when all is well; else the file is as it was."""
    check_output(file, ours, store)
    with explained(file):
        target = _resolved(file)  # a link stays one
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
    """Write a file whole, or into a device or pipe."""
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
    """An error of the system as a sentence."""
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
    """A new temporary name next to a file or folder, for what is not yet complete."""
    return target.with_name(f".{target.name}.{token_hex(4)}{PART}")


def lock(descriptor: int) -> bool:
    """Lock a temporary file while its writer lives; False if another process has it. True where locks do not work."""
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
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails where the writer lives
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            finally:
                os.close(descriptor)


def _new_part(target: Path) -> tuple[Path, BinaryIO]:
    while True:
        part = part_name(target)
        stream = part.open("xb")
        if lock(stream.fileno()) and part.exists():
            return part, stream
        stream.close()  # another took it for a leftover before it had its lock


def _keep_name(folder: Path) -> None:
    """A new name outlives a power cut only when its folder is written too; not every system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, (flags | os.O_NONBLOCK) & ~(os.O_CREAT | os.O_TRUNC))
