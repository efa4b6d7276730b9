"""Who trains which cohort: one process at a time, known by a lock that dies with it."""

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from threefold.errors import ThreefoldError

BEAT = 1.0  # seconds between two words about progress
_ELSEWHERE = "right would be a store in a folder of your own on a disk that knows locks."


class Claim:
    """A cohort's lock file. Its text tells who trains it and how far it is; the lock tells whether that is still so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None
        self._last = 0.0

    def take(self) -> bool:
        """Claim the cohort; False if another process has it."""
        while True:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file = self.path.open("a+", encoding="utf-8")
            except FileNotFoundError:  # another process tidied the folder away just now
                continue
            except OSError as error:
                raise ThreefoldError(f"lock '{self.path}' cannot be written ({error}); {_ELSEWHERE}") from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same(file, self.path):
                    self._file = file
                    return True
            except BlockingIOError:
                file.close()
                return False
            except OSError as error:
                file.close()
                raise ThreefoldError(f"lock '{self.path}' cannot be taken ({error}); {_ELSEWHERE}") from error
            file.close()  # the one who had it removed the file before we had the lock: that lock binds nobody

    def beat(self, stand: dict[str, Any], *, now: bool = False) -> None:
        """Leave word of how far the cohort is, about once a second."""
        if self._file is None or (time.monotonic() - self._last < BEAT and not now):
            return
        self._last = time.monotonic()
        word = stand | {"process": os.getpid(), "machine": platform.node(), "time": time.time()}
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps(word))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None
            with suppress(OSError):
                self.path.parent.rmdir()  # unless other cohorts have files there


def _same(file: IO[str], path: Path) -> bool:
    """Is the open file the one that has this name now?"""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def held(path: Path) -> bool:
    """Has a live process this lock?"""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or none of ours
        return False
    return False


def running(folder: Path) -> Iterator[dict[str, Any]]:
    """What live processes last said of the cohorts they train."""
    return (word for word, alive in words(folder).values() if alive)


def words(folder: Path) -> dict[str, tuple[dict[str, Any], bool]]:
    """The last word about each cohort that was begun and not ended, by its name, and whether its process still lives:
    one that was killed leaves its lock file behind."""
    found = {}
    for path in sorted(folder.glob("*.lock")):
        try:
            with path.open(encoding="utf-8") as file:
                alive = False
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    alive = True
                found[path.stem] = _word(file.read()), alive
        except FileNotFoundError:
            continue
    return found


def _word(text: str) -> dict[str, Any]:
    """What was said; nothing if it is just being written."""
    try:
        word = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return word if isinstance(word, dict) else {}
