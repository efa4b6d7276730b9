"""Which processes train, and how far they are: each keeps a file next to the store locked.

A lock is released when its process ends, in whatever way, but not while it is only suspended. The file's text has what
the process trains and its progress, for `status` and `watch`.
"""

import fcntl
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import IO, Annotated, Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threefold.engine import Progress
from threefold.errors import ThreefoldError
from threefold.reading import NotAFile, open_file

BEAT = 1.0  # seconds between two progress notes
LARGEST = 1 << 24  # bytes of notes that are read
LONGEST = 1000  # characters of a name
TRIES = 100  # to take our own lock
_OURS = re.compile(r"[0-9a-f]{32}\.lock")
_WRITING = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ELSEWHERE = "use a store in a folder of your own, on a disk that has locks."

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=LONGEST)]


class _Note(BaseModel):
    model_config = ConfigDict(strict=True)


class _Progress(_Note):
    step: _Count
    steps: _Count
    task: _Count
    tasks: _Count
    accuracy: _Number | None


class _Cohort(_Note):
    title: _Text
    time: Annotated[float, Field(ge=0, lt=1e11)]
    progress: _Progress | None


class _Process(_Note):
    """The content of a lock file."""

    process: _Count
    machine: _Text
    cohorts: dict[_Text, _Cohort]


@dataclass(frozen=True)
class Note:
    """A process's last progress note on a cohort that it trains."""

    owner: str  # the name of its lock
    alive: bool
    process: int | None = None  # None: its note cannot be read
    machine: str = ""
    name: str = ""
    title: str = "a cohort whose progress note cannot be read"
    time: float = 0.0
    progress: Progress | None = None  # None: it has just started

    @property
    def where(self) -> str:
        return "another process" if self.process is None else f"process {self.process} on {self.machine}"


class Lock:
    """This process's lock file, from when it is taken until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._cohorts: dict[str, dict[str, Any]] = {}
        self._written = 0.0

    def take(self) -> str:
        """Take the lock, which marks this process as alive; returns its name."""
        for _ in range(TRIES):
            if self._path is not None:
                return self._path.name
            self._try(self.folder / f"{uuid4().hex}.lock")  # a new name, so that locks cannot be confused
        raise ThreefoldError(f"no lock can be taken in '{self.folder}', for each is removed at once; {_ELSEWHERE}")

    def _try(self, path: Path) -> None:
        file = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(os.open(path, _WRITING, 0o666), "r+b", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                self._path, self._file = path, file
        except (FileNotFoundError, BlockingIOError):
            pass  # another process removed the folder or the file as a leftover
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            raise ThreefoldError(f"lock '{path}' cannot be taken ({error}); {_ELSEWHERE}") from error
        finally:
            if file and file is not self._file:
                file.close()

    def note(self, cohort: str, title: str, progress: Progress | None = None) -> bool:
        """Record a cohort's progress; it is written about once a second. Returns whether it was written now."""
        plain = dict(vars(progress)) if progress else None
        if plain and not isfinite(plain["accuracy"] or 0):
            plain["accuracy"] = None
        self._cohorts[cohort] = {"title": title[:LONGEST], "time": time.time(), "progress": plain}
        due = progress is None or time.monotonic() - self._written >= BEAT
        if due:
            self._write()
        return due

    def drop(self, cohort: str) -> None:
        """Remove a cohort from the notes."""
        self._cohorts.pop(cohort, None)
        self._write()

    def _write(self) -> None:
        """Write with one call and never less than before, so that no reader sees half of it."""
        self._written = time.monotonic()
        note = {"process": os.getpid(), "machine": platform.node(), "cohorts": self._cohorts}
        assert self._file is not None
        number = self._file.fileno()
        with suppress(OSError):  # on a full disk progress is lost, but training continues
            os.pwrite(number, json.dumps(note).encode().ljust(os.fstat(number).st_size), 0)

    def close(self) -> None:
        if self._path and self._file:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._path = self._file = None
        with suppress(OSError):
            self.folder.rmdir()  # fails if others have files there


def alive(folder: Path, owner: str) -> bool:
    """Does a live process hold this lock?"""
    if not _OURS.fullmatch(owner):
        return False
    try:
        with open_file(folder / owner, follow=False) as file:
            return _held(file)
    except (FileNotFoundError, NotADirectoryError, NotAFile):
        return False
    except OSError as error:
        raise ThreefoldError(f"lock '{folder / owner}' cannot be read ({error}); {_ELSEWHERE}") from error


def remove_dead(folder: Path) -> None:
    """The locks of processes that were killed go, and the folder if nothing else is in it."""
    for path in _locks(folder):
        with suppress(OSError), open_file(path, follow=False) as file:
            if not _held(file):
                path.unlink()
    with suppress(OSError):
        folder.rmdir()


def progress_notes(folder: Path) -> list[Note]:
    """The last notes of live and killed processes on their cohorts. Anything else in the folder, or in place of a note,
    is ignored, or reported as unreadable if a live process holds it."""
    found: list[Note] = []
    for path in _locks(folder):
        with suppress(OSError), open_file(path, follow=False) as file:
            found += _notes(path.name, _held(file), file.read(LARGEST))
    return found


def _notes(owner: str, held: bool, text: bytes) -> list[Note]:
    if not text.strip():
        return []
    try:
        note = _Process.model_validate_json(text)
    except (ValidationError, RecursionError):
        return [Note(owner, held)] if held else []
    return [
        Note(owner, held, note.process, note.machine, name, each.title, each.time, _progress(each.progress))
        for name, each in note.cohorts.items()
    ]


def _progress(noted: _Progress | None) -> Progress | None:
    return Progress(**dict(noted)) if noted and 0 < noted.step <= noted.steps else None


def _locks(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name))


def _held(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
