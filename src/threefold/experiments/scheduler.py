"""All runs of a command: which are done, which are left, who trains them; where, is the business of a place."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from threefold.engine import Checkpoint, Progress
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell
from threefold.experiments.cohort import Cohort, Run, as_begun, cut, described
from threefold.experiments.in_progress import InProgress
from threefold.experiments.result import Result
from threefold.results import Record, Store

WAIT = 0.5  # seconds between two looks at what another process trains


class Stopped(Exception):
    """Training was asked to stop before everything was done. What was finished is kept."""


class Failed(ThreefoldError):
    """Some cohorts failed again and again. Everything else was trained and is kept."""


class Watcher:
    """Is told how far things are; this one does not care."""

    def cohort(self, cohort: Cohort) -> None: ...
    def progress(self, progress: Progress, cohort: Cohort) -> None: ...
    def ended(self, cohort: Cohort) -> None: ...
    def done(self, result: Result) -> None: ...
    def warn(self, text: str) -> None: ...


class Place(Protocol):
    """Where cohorts are trained."""

    @property
    def largest_first(self) -> bool:
        """Else cheap ones are first."""

    @property
    def memory(self) -> Callable[[str], int] | None:
        """The bytes that a cohort may use on a device; None: what is free here."""

    def room(self) -> int:
        """How many more cohorts can be begun now."""

    def idle(self) -> int:
        """How many would be trained at once if they were begun now."""

    def begin(self, work: "Work") -> None:
        """Have a cohort trained; the work is told how it goes on and how it ends, now or in `attend`."""

    def attend(self) -> None:
        """Wait a moment for news of what was begun, and pass it on."""

    def abandon(self) -> None:
        """Nobody waits any more for what was begun."""


class Work:
    """A cohort in training. Its place tells it of progress, and at last one of the three ends."""

    def __init__(self, scheduler: "Scheduler", cohort: Cohort) -> None:
        self.scheduler, self.cohort = scheduler, cohort
        shared = scheduler.in_progress
        self.checkpoint: Checkpoint | None = shared.checkpoint(cohort.name) if shared else None

    def progress(self, progress: Progress) -> None:
        """Raises `Stopped` where training is to stop."""
        self.scheduler.watcher.progress(progress, self.cohort)
        if self.scheduler.in_progress:
            self.scheduler.in_progress.note(self.cohort, progress)
        self.scheduler.check_stop()

    def finished(self, records: Sequence[Record]) -> None:
        self.scheduler.finish(self, records)

    def too_large(self) -> None:
        self.scheduler.halve(self)

    def failed(self, reason: str) -> None:
        self.scheduler.fail(self, reason)

    def warn(self, text: str) -> None:
        self.scheduler.watcher.warn(text)


class Scheduler:
    """Plans, claims, stores and stops: everything that does not depend on where cohorts are trained."""

    def __init__(
        self,
        cells: Sequence[Cell],
        seeds: Sequence[int],
        store: Store | None,
        place: Place,
        watcher: Watcher,
        stop: Callable[[], bool],
    ) -> None:
        self.cells, self.store, self.place, self.watcher, self.stop = cells, store, place, watcher, stop
        self.in_progress = InProgress(store) if store else None
        self.runs = [[Run(cell, seed) for seed in seeds] for cell in cells]
        self.every = {run.key: run for runs in self.runs for run in runs}
        self.records: dict[str, Record] = {}
        self.missing = [{run.key for run in runs} for runs in self.runs]  # of each cell
        self.cells_of: dict[str, list[int]] = defaultdict(list)
        for number, keys in enumerate(self.missing):
            for key in keys:
                self.cells_of[key].append(number)
        self.known: set[str] = set()  # the names of cohorts that some process has begun
        self.waiting: list[Cohort] = []
        self.training: set[Work] = set()
        self.theirs: dict[str, Run] = {}  # in training by other processes
        self.told_of_waiting = False
        self.failures: list[str] = []

    def run(self) -> list[Result]:
        try:
            self._look(self.every)
            if self.in_progress:
                self.in_progress.tidy()
            self._arrange(self.every.values())
            self._train()
            if self.in_progress:
                self.in_progress.tidy()
        finally:
            if self.in_progress:  # without its lock, a process has nothing any more in training
                self.in_progress.lock.close()
            if self.training:
                self.place.abandon()
            for work in self.training:
                self.watcher.ended(work.cohort)
        if self.failures:
            raise Failed(_all_of(self.failures))
        return [self._result(number) for number in range(len(self.cells))]

    def _train(self) -> None:
        looked = time.monotonic()
        while self.waiting or self.theirs or self.training:
            self.check_stop()
            if self.in_progress and time.monotonic() - looked >= WAIT:
                looked = time.monotonic()
                self._follow_others(self.in_progress)
            if self.waiting and len(self.waiting) < self.place.room():
                self.waiting = cut(self.waiting, self.place.idle(), self.known)
            if self.waiting and self.place.room():
                self._begin(self.waiting.pop(0))
            elif self.training:
                self.place.attend()
            else:
                self._tell_of_waiting()
                time.sleep(WAIT)

    def _follow_others(self, shared: InProgress) -> None:
        """Take up what other processes no longer train. Thousands of cohorts may wait, and are not gone through for
        nothing."""
        new = shared.names() - self.known
        busy = shared.in_training(self.theirs) if self.theirs else {}
        free = [self.theirs.pop(key) for key in tuple(self.theirs) if key not in busy]
        self._look(run.key for run in free)
        if new or free:
            self._arrange(free)

    def _arrange(self, runs: Iterable[Run]) -> None:
        """These runs are next. But what was begun goes on as it was cut, whatever memory is free now."""
        begun = self.in_progress.cohorts(self.every) if self.in_progress else []
        self.known |= self.in_progress.names() if self.in_progress else set()
        begun_keys = {key for cohort in begun for key in cohort.keys}
        again, others = list(runs), list[Cohort]()
        for cohort in self.waiting:
            if begun_keys.isdisjoint(cohort.keys):
                others.append(cohort)
            else:
                again += cohort.runs
        found = as_begun(again, begun, self.records.keys(), self.place.memory)
        if self.place.largest_first:
            found.reverse()
        self.waiting = [*found, *others]

    def _begin(self, cohort: Cohort) -> None:
        """Claim a cohort and have it trained. If other processes are at runs of it, the rest is next."""
        theirs = self.in_progress.claim(cohort) if self.in_progress else set()
        if theirs:
            self.theirs |= {run.key: run for run in cohort.runs if run.key in theirs}
            self._next(run for run in cohort.runs if run.key not in theirs)
            return
        work = Work(self, cohort)
        self.training.add(work)
        self.known.add(cohort.name)
        stored = self.store.has(cohort.keys) if self.store else set()  # by another process in the meantime
        if len(stored) == len(cohort.keys) or (stored and work.checkpoint and not work.checkpoint.path.exists()):
            self.finish(work, [])
            self._look(stored)
            self._next(run for run in cohort.runs if run.key not in stored)
        else:
            self.watcher.cohort(cohort)
            self.place.begin(work)

    def _next(self, runs: Iterable[Run]) -> None:
        """What is left of a cohort is trained next."""
        if left := tuple(runs):
            self.waiting.insert(0, Cohort(left))

    def _tell_of_waiting(self) -> None:
        """Once: whoever looks on should know why nothing happens."""
        if self.in_progress and not self.told_of_waiting and (who := self.in_progress.waiting_for(self.theirs)):
            self.told_of_waiting = True
            self.watcher.warn(f"waiting for {who}.")

    def finish(self, work: Work, records: Sequence[Record]) -> None:
        """A cohort is trained, and its records are kept. Those that another process stored first stay as they are."""
        present = self.in_progress.finish(work.cohort, records) if self.in_progress else set()
        self._release(work)
        self._keep(record for record in records if record.key not in present)
        self._look(present)

    def halve(self, work: Work) -> None:
        """A cohort does not fit into memory: its halves are next."""
        self.watcher.warn(f"{described(work.cohort)} does not fit into memory; it is trained in two halves.")
        if self.in_progress:
            self.in_progress.discard(work.cohort)
        self._release(work)
        self.waiting = [*work.cohort.halves(), *self.waiting]

    def fail(self, work: Work, reason: str) -> None:
        """A cohort is given up; the others go on."""
        title = described(work.cohort)
        self.failures.append(f"{title} failed ({reason})")
        if self.in_progress:
            self.in_progress.give_up(work.cohort, reason)
        self.watcher.warn(f"{title} failed: {reason}. The others go on.")
        self._release(work)

    def check_stop(self) -> None:
        if self.stop():
            raise Stopped

    def _release(self, work: Work) -> None:
        self.training.discard(work)
        if work.checkpoint and (aside := work.checkpoint.set_aside):
            path = work.checkpoint.path
            self.watcher.warn(
                f"checkpoint {path} was damaged; it was set aside as {aside.name}, and the cohort began anew."
            )
        self.watcher.ended(work.cohort)

    def _keep(self, records: Iterable[Record]) -> None:
        """Take these in, and tell of every cell that is complete by them."""
        for record in records:
            if record.key in self.records:
                continue
            self.records[record.key] = record
            for number in self.cells_of[record.key]:
                missing = self.missing[number]
                missing.discard(record.key)
                if not missing:
                    self.watcher.done(self._result(number))

    def _look(self, keys: Iterable[str]) -> None:
        """Take from the store what is there of these."""
        if self.store:
            found = [self.store.get(key) for key in self.store.has(keys)]
            self._keep(record for record in found if record)

    def _result(self, number: int) -> Result:
        return Result(self.cells[number], [self.records[run.key] for run in self.runs[number]])


def _all_of(failures: Sequence[str]) -> str:
    """One sentence about all of them."""
    others = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"{failures[0]}{others}; everything else is done; mend that and give the same command again."
