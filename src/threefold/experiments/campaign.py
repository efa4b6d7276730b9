"""All runs of a command: which are done, which are left, who trains them; where, is the business of a place."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Protocol

from threefold.engine import Checkpoint, Progress
from threefold.errors import ThreefoldError
from threefold.experiments.begun import Begun
from threefold.experiments.cell import Cell
from threefold.experiments.claim import Claim
from threefold.experiments.cohort import Cohort, Run, as_begun, cut, described, left_of, plan
from threefold.experiments.failure import FAILED, Failure, forget_failures, told
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

    def __init__(self, campaign: "Campaign", cohort: Cohort) -> None:
        self.campaign, self.cohort = campaign, cohort
        self.checkpoint: Checkpoint | None = None
        self.claim: Claim | None = None
        self.closing = ExitStack()

    def progress(self, progress: Progress) -> None:
        """Raises `Stopped` where training is to stop."""
        self.campaign.watcher.progress(progress, self.cohort)
        if self.claim:
            self.claim.beat({"cohort": described(self.cohort), **vars(progress)})
        self.campaign.check_stop()

    def finished(self, records: Sequence[Record]) -> None:
        self.campaign.finish(self, records)

    def too_large(self) -> None:
        self.campaign.halve(self)

    def failed(self, reason: str) -> None:
        self.campaign.fail(self, reason)

    def warn(self, text: str) -> None:
        self.campaign.watcher.warn(text)


class Campaign:
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
        self.begun = Begun(store.path) if store else None
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
        self.failures: list[Failure] = []

    def run(self) -> list[Result]:
        self._look(self.every)
        self._plan()
        try:
            self._train()
        finally:
            if self.training:
                self.place.abandon()
            for work in tuple(self.training):
                self._release(work)
            if self.store and self.begun:
                self.begun.tidy(self.store)
                forget_failures(self.begun.folder, self.records.keys())
        if self.failures:
            raise Failed(told(self.failures))
        return [self._result(number) for number in range(len(self.cells))]

    def _plan(self) -> None:
        whole = plan(self.every.values(), self.place.memory)
        self._tidy(whole)
        self.known = self.begun.names() if self.begun else set()
        left = [piece for cohort in whole for piece in left_of(cohort, self.records.keys(), self.known)]
        self.waiting = self._as_begun(left, anew=True)
        if self.place.largest_first:
            self.waiting.reverse()

    def _as_begun(self, cohorts: Sequence[Cohort], *, anew: bool = False) -> list[Cohort]:
        """The same runs, but what was begun of them is as it was cut then, whatever memory is free now."""
        if self.begun is None:
            return list(cohorts)
        keys = {key for cohort in cohorts for key in cohort.keys}
        runs = {key: run for key, run in self.every.items() if key in keys}
        begun = self.begun.cohorts(runs)
        self.known.update(cohort.name for cohort in begun)
        begun += [cohort for cohort in cohorts if cohort.name in self.known]
        return as_begun(cohorts, begun, runs.values(), self.place.memory, anew=anew)

    def _train(self) -> None:
        elsewhere: list[Cohort] = []  # in training by other processes
        looked = time.monotonic()
        while self.waiting or elsewhere or self.training:
            self.check_stop()
            if time.monotonic() - looked >= WAIT:
                looked = time.monotonic()
                if self._others_began() or elsewhere:
                    self.waiting, elsewhere = self._as_begun([*self.waiting, *elsewhere]), []
            if self.waiting and len(self.waiting) < self.place.room():
                self.waiting = cut(self.waiting, self.place.idle(), self.known)
            if self.waiting and self.place.room():
                if theirs := self._begin(self.waiting.pop(0)):
                    elsewhere.append(theirs)
                    self.known.add(theirs.name)
            elif self.training:
                self.place.attend()
            else:
                time.sleep(WAIT)

    def _others_began(self) -> bool:
        """Is there a cohort that was not there before? Thousands may wait, and are not gone through for nothing."""
        new = self.begun.names() - self.known if self.begun else set()
        self.known |= new
        return bool(new)

    def _begin(self, cohort: Cohort) -> Cohort | None:
        """Claim a cohort and have it trained. If other processes are at runs of it, the answer is what to wait for."""
        work = Work(self, cohort)
        if self.begun:
            work.checkpoint = self.begun.checkpoint(cohort)
            work.claim = self.begun.claim(cohort, work.closing)
            if not work.claim:
                return self._theirs(cohort, self.begun.in_training())
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
        return None

    def _theirs(self, cohort: Cohort, in_training: set[str]) -> Cohort:
        """What to wait for of a cohort that cannot be claimed; the other runs are next."""
        theirs = tuple(run for run in cohort.runs if run.key in in_training)
        if not theirs:  # it was let go just now
            return cohort
        self._next(run for run in cohort.runs if run.key not in in_training)
        return Cohort(theirs)

    def _next(self, runs: Iterable[Run]) -> None:
        """What is left of a cohort is trained next."""
        if left := tuple(runs):
            self.waiting.insert(0, Cohort(left))

    def finish(self, work: Work, records: Sequence[Record]) -> None:
        """A cohort is trained: its records are stored, and its checkpoint may go."""
        present: set[str] = set()
        if self.store and work.checkpoint:
            present = self.store.add(records)  # runs that another process stored in the meantime stay as they are
            work.checkpoint.discard()
            if aside := work.checkpoint.set_aside:
                path = work.checkpoint.path
                self.watcher.warn(
                    f"checkpoint {path} was damaged; it was set aside as {aside.name}, and the cohort began anew."
                )
        self._release(work)
        self._keep(record for record in records if record.key not in present)
        self._look(present)

    def halve(self, work: Work) -> None:
        """A cohort does not fit into memory: its halves are next."""
        self.watcher.warn(f"{described(work.cohort)} does not fit into memory; it is trained in two halves.")
        if work.checkpoint:
            work.checkpoint.discard()
        self._release(work)
        self.waiting = [*work.cohort.halves(), *self.waiting]

    def fail(self, work: Work, reason: str) -> None:
        """A cohort is given up; the others go on."""
        failure = Failure(described(work.cohort), work.cohort.keys, reason)
        self.failures.append(failure)
        if work.checkpoint:
            failure.write(work.checkpoint.path.with_suffix(FAILED))
        self.watcher.warn(f"{failure.sentence} The others go on.")
        self._release(work)

    def check_stop(self) -> None:
        if self.stop():
            raise Stopped

    def _release(self, work: Work) -> None:
        self.training.discard(work)
        work.closing.close()
        self.watcher.ended(work.cohort)

    def _tidy(self, cohorts: Iterable[Cohort]) -> None:
        """Checkpoints and locks of cohorts that are in the store: a process was killed right after storing them."""
        if self.begun is None:
            return
        known, done = self.begun.names(), self.records.keys()
        for cohort in cohorts if known else ():
            for piece in cohort.pieces():
                if piece.name in known and done >= set(piece.keys):
                    self.begun.discard(piece.name)
        forget_failures(self.begun.folder, done)

    def _keep(self, records: Iterable[Record]) -> None:
        """Take these in, and tell of every cell that is complete by them."""
        for record in records:
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
