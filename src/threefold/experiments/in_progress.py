"""Cohorts in progress: each has a row in the store and a checkpoint next to it, and each process has a lock.

How runs are grouped into cohorts depends on the memory that was free. From the rows every process, whatever memory it
has, knows which runs are in training, and can continue a cohort with the same runs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from threefold.engine import Checkpoint, Progress
from threefold.experiments.cohort import Cohort, Run, described, name_of
from threefold.experiments.lock import Lock, alive, progress_notes, remove_dead
from threefold.results import Record, Store, beside
from threefold.results.cohort_table import CohortRow, claim, cohort_rows, forget, give_up


def folder_of(store: Path) -> Path:
    """The folder of a store's checkpoints and locks."""
    return beside(store, "checkpoints")


class InProgress:
    """One process's view of a store's cohorts in progress, and its changes to them."""

    def __init__(self, store: Store, done: Callable[[Iterable[str]], set[str]] | None = None) -> None:
        """`done`: which of some runs are done, if it is not enough that they are stored."""
        self.store, self.folder, self.done = store, folder_of(store.path), done or store.has
        self.lock = Lock(self.folder)
        self.locked = False  # was the store locked by another process at the last claim?

    def checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self.folder / f"{name}.pt")

    def names(self) -> set[str]:
        return {row.name for row in self._rows()}

    def cohorts(self, runs: Mapping[str, Run]) -> list[Cohort]:
        """Cohorts in progress that consist of these runs only: first those in training, then the largest."""
        found = []
        for row in self._rows():
            live = self._live(row)
            if runs.keys() >= set(row.runs) and (live or self.checkpoint(row.name).path.exists()):
                cohort = Cohort(tuple(runs[key] for key in row.runs))
                if len({(run.cell.stream, run.cell.training) for run in cohort.runs}) == 1:
                    found.append((not live, -len(row.runs), row.name, cohort))
        return [cohort for *_, cohort in sorted(found, key=lambda each: each[:3])]

    def in_training(self, keys: Collection[str]) -> dict[str, CohortRow]:
        """Which of these runs live processes are training, and in which cohort."""
        shared = [(row, set(keys).intersection(row.runs)) for row in self._rows()]
        return {key: row for row, common in shared if common and self._live(row) for key in common}

    def waiting_for(self, keys: Collection[str]) -> str | None:
        """A short description of the process that trains these runs; None if there is none any more."""
        rows = {row.name: row for row in self.in_training(keys).values()}
        if not rows:
            return "another process, which has the store locked" if self.locked else None
        first = next(iter(rows.values()))
        where = next((note.where for note in progress_notes(self.folder) if note.owner == first.owner), None)
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        return f"{where or 'another process'}, which trains {first.title}{more}"

    def claim(self, cohort: Cohort) -> set[str]:
        """Claim a cohort. Returns those of its runs that other processes train; if there are any, the claim failed."""
        owner, keys = self.lock.take(), cohort.keys
        theirs = claim(self.store, cohort.name, described(cohort), keys, owner, partial(alive, self.folder))
        self.locked = theirs is None
        if theirs is None:
            return set(keys)
        if not theirs:
            self.lock.note(cohort.name, described(cohort))
        return {key for row in theirs for key in row.runs} & set(keys)

    def note(self, cohort: Cohort, progress: Progress) -> None:
        """Record a cohort's progress, and check that the store still exists, about once a second."""
        if self.lock.note(cohort.name, described(cohort), progress):
            self.store.check_in_place()

    def finish(self, cohort: Cohort, records: Sequence[Record]) -> set[str]:
        """Store a cohort's records and delete its checkpoint. Returns the keys that another process stored first."""
        present = self.store.add(records)
        self.discard(cohort)
        return present

    def discard(self, cohort: Cohort) -> None:
        """Remove a cohort from those in progress. Its row is deleted last, as files without a row are never found."""
        self.store.check_in_place()
        self.checkpoint(cohort.name).discard()
        with self.store.writing() as connection:
            forget(connection, cohort.name)
        self.lock.drop(cohort.name)

    def give_up(self, cohort: Cohort, reason: str) -> None:
        give_up(self.store, cohort.name, reason)
        self.lock.drop(cohort.name)

    def tidy(self) -> None:
        """Remove what killed processes left behind and no process can continue."""
        if any(map(self._unneeded, self._rows())):
            with self.store.writing() as connection:  # so that no process claims one meanwhile
                for row in filter(self._unneeded, self._rows()):
                    self.checkpoint(row.name).discard()
                    forget(connection, row.name)
        remove_dead(self.folder)

    def _unneeded(self, row: CohortRow) -> bool:
        """Is this cohort in no process's training, and either completely stored or without a checkpoint?"""
        if self._live(row):
            return False
        kept = row.reason or self.checkpoint(row.name).path.exists()
        return not kept or self.done(row.runs) == set(row.runs)

    def _rows(self) -> list[CohortRow]:
        """Valid rows. One whose runs do not hash to its name is damaged or not ours, and its name may be any path."""
        return [row for row in cohort_rows(self.store) if row.name == name_of(row.runs)]

    def _live(self, row: CohortRow) -> bool:
        return row.owner is not None and alive(self.folder, row.owner)
