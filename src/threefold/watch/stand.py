"""How far the cohorts in training are, and how fast."""

import fcntl
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threefold.report.words import duration, moment_of

WINDOW = 30.0  # seconds over which steps per second are measured: less would jump, more would lag
SILENT = 10.0  # seconds without a word from a process that is still there, after which we say so
LARGEST = 1 << 20  # bytes of a note that are read
UNREADABLE = {"cohort": "a cohort whose progress note cannot be read"}

_Count = Annotated[int, Field(ge=0, lt=1 << 53)]
_Text = Annotated[str, Field(max_length=1000)]


class Word(BaseModel):
    """What a process may say of a cohort. Anybody can write to the folder, so nothing else is believed."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    cohort: _Text | None = None
    step: _Count | None = None
    steps: _Count | None = None
    task: _Count | None = None
    tasks: _Count | None = None
    accuracy: float | None = None
    process: _Count | None = None
    machine: _Text | None = None
    time: Annotated[float, Field(ge=0, lt=1e11)] | None = None


@dataclass(frozen=True)
class Stand:
    """What is known of one cohort."""

    word: dict[str, Any]
    alive: bool
    now: float
    rate: float | None  # steps per second

    @property
    def cohort(self) -> str:
        return str(self.word.get("cohort") or "a cohort that has just begun")

    @property
    def begun(self) -> bool:
        return all(isinstance(self.word.get(name), int) for name in ("step", "steps", "task", "tasks"))

    @property
    def share(self) -> float:
        return 100 * float(self.word["step"]) / max(1, int(self.word["steps"]))

    @property
    def pace(self) -> str:
        if self.rate is None:
            return "steps per second not known yet"
        return f"{self.rate:.0f} steps per second" if self.rate >= 10 else f"{self.rate:.1f} steps per second"

    @property
    def left(self) -> str:
        if not self.rate:
            return ""
        return f"about {duration((self.word['steps'] - self.word['step']) / self.rate)} left"

    @property
    def accuracy(self) -> str:
        value = self.word.get("accuracy")
        return f"{value:.1f}% so far" if isinstance(value, float) else ""

    @property
    def where(self) -> str:
        return f"process {self.word['process']} on {self.word['machine']}" if "process" in self.word else ""

    @property
    def silent(self) -> str:
        """How long there was no word, if that is long: it may be consolidating, or be stopped."""
        quiet = self.now - self._time
        return f"no word for {duration(quiet)}" if self.alive and quiet > SILENT else ""

    @property
    def last(self) -> str:
        """When it was last heard of."""
        return moment_of(self._time)

    @property
    def _time(self) -> float:
        return float(self.word.get("time") or self.now)


class Pace:
    """Measures steps per second from the words that processes leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last: dict[str, dict[str, Any]] = {}
        self._heard: dict[str, deque[tuple[float, int, Any]]] = {}

    def look(self, now: float) -> list[Stand]:
        found = _words(self.folder)
        self._last = {name: word or self._last.get(name, UNREADABLE) for name, (word, _) in found.items()}
        self._heard = {name: self._heard.get(name, deque()) for name in found}
        return [Stand(word, found[name][1], now, self._rate(name, word)) for name, word in self._last.items()]

    def _rate(self, name: str, word: dict[str, Any]) -> float | None:
        heard = self._heard[name]
        when, step, process = float(word.get("time") or 0), int(word.get("step") or 0), word.get("process")
        if heard and (heard[-1][2] != process or step < heard[-1][1]):  # begun anew, from the last finished task
            heard.clear()
        if when and (not heard or when > heard[-1][0]):
            heard.append((when, step, process))
        while len(heard) > 2 and heard[-1][0] - heard[0][0] > WINDOW:
            heard.popleft()
        if len(heard) < 2:
            return None
        return (heard[-1][1] - heard[0][1]) / (heard[-1][0] - heard[0][0])


def _words(folder: Path) -> dict[str, tuple[dict[str, Any] | None, bool]]:
    """The last word about each cohort, None if it cannot be read, and whether its process still lives.

    What is no ordinary file (a pipe would never end) is passed over.
    """
    found = {}
    with suppress(OSError):
        for path in sorted(folder.glob("*.lock")):
            with suppress(OSError), open(path, "rb", opener=_open_own) as file:
                if S_ISREG(os.fstat(file.fileno()).st_mode):
                    found[path.stem] = _word(file.read(LARGEST)), _held(file.fileno())
    return found


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _held(file: int) -> bool:
    """Has a live process this lock?"""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _word(text: bytes) -> dict[str, Any] | None:
    if not text.strip():  # it has just begun, or is just being written
        return {}
    try:
        return Word.model_validate_json(text).model_dump(exclude_none=True)
    except ValidationError:
        return None
