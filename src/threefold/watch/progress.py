"""Progress and speed of the cohorts in training."""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from threefold.experiments.lock import Note, progress_notes
from threefold.report.formatting import duration

WINDOW = 30.0  # seconds over which steps per second are measured: fewer would be noisy, more would lag
SILENT = 10.0  # seconds without a note from a live process, after which the page shows that


@dataclass(frozen=True)
class CohortProgress:
    """The progress of one cohort."""

    note: Note
    now: float
    rate: float | None  # steps per second

    @property
    def share(self) -> float:
        progress = self.note.progress
        return 100 * progress.step / progress.steps if progress else 0.0

    @property
    def pace(self) -> str:
        if self.rate is None:
            return "steps per second not known yet"
        return f"{self.rate:.0f} steps per second" if self.rate >= 10 else f"{self.rate:.1f} steps per second"

    @property
    def left(self) -> str:
        progress = self.note.progress
        return f"about {duration((progress.steps - progress.step) / self.rate)} left" if progress and self.rate else ""

    @property
    def accuracy(self) -> str:
        value = self.note.progress.accuracy if self.note.progress else None
        return "" if value is None else f"{value:.1f}% so far"

    @property
    def silent(self) -> str:
        """How long there was no note, if that is long: the process may be consolidating, or be suspended."""
        quiet = self.now - self.note.time
        return f"no word for {duration(quiet)}" if self.note.alive and quiet > SILENT else ""

    @property
    def last(self) -> str:
        """The time of its last note."""
        return f"{datetime.fromtimestamp(self.note.time, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Pace:
    """Measures steps per second from the processes' notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._heard: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def look(self, now: float) -> list[CohortProgress]:
        notes = progress_notes(self.folder)
        known = {(note.owner, note.name) for note in notes}
        self._heard = {key: self._heard.get(key, deque()) for key in known}
        return [CohortProgress(note, now, self._rate(note)) for note in notes]

    def _rate(self, note: Note) -> float | None:
        heard, progress = self._heard[note.owner, note.name], note.progress
        if progress and heard and progress.step < heard[-1][1]:  # restarted from the last finished task
            heard.clear()
        if progress and (not heard or note.time > heard[-1][0]):
            heard.append((note.time, progress.step))
        while len(heard) > 2 and heard[-1][0] - heard[0][0] > WINDOW:
            heard.popleft()
        if len(heard) < 2:
            return None
        return (heard[-1][1] - heard[0][1]) / (heard[-1][0] - heard[0][0])
