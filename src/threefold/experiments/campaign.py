"""All runs of a command: which are done, which are left, who trains them; where, is the business of a place."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from threefold.engine import Checkpoint, Progress
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell
from threefold.experiments.claim import Claim
from threefold.experiments.cohort import Cohort, Run, cut, described, left_of, plan
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
        self.runs = [[Run(cell, seed) for seed in seeds] for cell in cells]
        self.records: dict[str, Record] = {}
        self.missing = [{run.key for run in runs} for runs in self.runs]  # of each cell
        self.cells_of: dict[str, list[int]] = defaultdict(list)
        for number, keys in enumerate(self.missing):
            for key in keys:
                self.cells_of[key].append(number)
        self.waiting: list[Cohort] = []
        self.training: set[Work] = set()
        self.failures: list[Failure] = []

    def run(self) -> list[Result]:
        every = {run.key: run for runs in self.runs for run in runs}
        self._look(every)
        whole = plan(every.values(), self.place.memory)
        self._tidy(whole)
        begun = self._begun()
        self.waiting = [piece for cohort in whole for piece in left_of(cohort, self.records.keys(), begun)]
        if self.place.largest_first:
            self.waiting.reverse()
        try:
            self._train(begun)
        finally:
            if self.training:
                self.place.abandon()
            for work in tuple(self.training):
                self._release(work)
            if self.store:
                forget_failures(self._folder, self.records.keys())
        if self.failures:
            raise Failed(told(self.failures))
        return [self._result(number) for number in range(len(self.cells))]

    def _train(self, begun: set[str]) -> None:
        elsewhere: list[Cohort] = []  # in training by other processes
        looked = time.monotonic()
        while self.waiting or elsewhere or self.training:
            self.check_stop()
            if self.waiting and len(self.waiting) < self.place.room():
                self.waiting = cut(self.waiting, self.place.idle(), begun)
            while self.waiting and self.place.room():
                cohort = self.waiting.pop(0)
                if not self._begin(cohort):
                    elsewhere.append(cohort)
                    begun.add(cohort.name)
            if self.training:
                self.place.attend()
            elif self.waiting or elsewhere:
                time.sleep(WAIT)
            if not self.waiting and time.monotonic() - looked >= WAIT:
                self.waiting, elsewhere, looked = elsewhere, [], time.monotonic()

    def _begin(self, cohort: Cohort) -> bool:
        """Claim a cohort and have it trained; False if another process is at it."""
        work = Work(self, cohort)
        if self.store:
            work.checkpoint = self._checkpoint(cohort)
            work.claim = work.closing.enter_context(Claim(work.checkpoint.path.with_suffix(".lock")))
            if not work.claim.take():
                return False
        self.training.add(work)
        keys = {run.key for run in cohort.runs}
        if self.store and self.store.has(keys) == keys:  # another process did it in the meantime
            self.finish(work, [])
            self._look(keys)
        else:
            self.watcher.cohort(cohort)
            self.place.begin(work)
        return True

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
        failure = Failure(described(work.cohort), [run.key for run in work.cohort.runs], reason)
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

    def _begun(self) -> set[str]:
        """The names of cohorts that some process has begun and not ended."""
        files = self._folder.glob("*") if self.store else ()
        return {path.stem for path in files if path.suffix in (".pt", ".lock")}

    def _tidy(self, cohorts: Iterable[Cohort]) -> None:
        """Checkpoints and locks of cohorts that are in the store: a process was killed right after storing them."""
        begun, done = self._begun(), self.records.keys()
        for cohort in cohorts if begun else ():
            for piece in cohort.pieces():
                if piece.name in begun and all(run.key in done for run in piece.runs):
                    checkpoint = self._checkpoint(piece)
                    checkpoint.discard()
                    with Claim(checkpoint.path.with_suffix(".lock")) as claim:
                        claim.take()
        if self.store:
            forget_failures(self._folder, done)

    @property
    def _folder(self) -> Path:
        assert self.store is not None
        return Path(f"{self.store.path}.checkpoints")

    def _checkpoint(self, cohort: Cohort) -> Checkpoint:
        return Checkpoint(self._folder / f"{cohort.name}.pt")

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
