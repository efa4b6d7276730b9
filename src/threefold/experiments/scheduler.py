"""Schedules all runs of a request: which are done, which are left, and which process trains them."""

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from threefold.engine import Checkpoint, Progress
from threefold.errors import ThreefoldError
from threefold.experiments.cohort import Cohort, Run, cut, described, plan_around
from threefold.experiments.executor import Executor, Local
from threefold.experiments.in_progress import InProgress
from threefold.experiments.keeping import Files
from threefold.experiments.request import Asked, Request
from threefold.experiments.result import Result
from threefold.memory import in_bytes
from threefold.results import KeptNetworks, Record, Store

WAIT = 0.5  # seconds between checks on what other processes train


class Stopped(Exception):
    """Training was stopped before everything was done. Finished work is kept."""


class Failed(ThreefoldError):
    """Some cohorts failed repeatedly. Everything else was trained and is kept."""


class Watcher:
    """Receives progress; this one ignores it."""

    def cohort(self, cohort: Cohort) -> None: ...
    def progress(self, progress: Progress, cohort: Cohort) -> None: ...
    def ended(self, cohort: Cohort) -> None: ...
    def done(self, result: Result) -> None: ...
    def warn(self, text: str) -> None: ...
    def tell(self, text: str) -> None: ...


def train_requests(
    requests: Sequence[Request],
    store: str | Path | None,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
    executor: Executor | None = None,
    *,
    keep: bool = False,
) -> list[list[Result]]:
    """Train everything that is not in the store, and store the requests; returns the results of each request.

    `keep`: also keep each run's network after each task; runs that are stored without are trained again.
    `stop` is called often; when it returns true, `Stopped` is raised and nothing is lost. Repeated failures are raised
    at the end, when everything else is done.
    """
    watcher, executor = watcher or Watcher(), executor or Local()
    if keep and store is None:
        raise ThreefoldError("keep needs a store, as networks are kept in a folder beside it; give store a file.")
    for request in requests:
        request.check(None if store is None else Path(store))  # before the store is created
        for uncovered in {asked.cell.not_covered for asked in request.asked} - {None}:
            if keep:
                raise ThreefoldError(
                    f"{uncovered}, which no key can cover, so networks cannot be kept; run it without."
                )
            watcher.warn(f"{uncovered}, which no key can cover, so these runs are neither stored nor looked up.")
    failed: list[str] = []
    with nullcontext() if store is None else Store(store) as opened:
        if opened:
            for request in requests:
                request.remember(opened)  # before training, so that other processes can show it
        schedulers = [Scheduler(request.asked, opened, executor, watcher, stop, keep) for request in requests]
        for scheduler in schedulers:
            scheduler.run()
            failed += scheduler.failures
    if failed:
        raise Failed(_all_of(failed))
    return [scheduler.results() for scheduler in schedulers]


class Job:
    """A cohort in training. Its executor reports progress, and finally one of three outcomes."""

    def __init__(self, scheduler: "Scheduler", cohort: Cohort) -> None:
        self.scheduler, self.cohort = scheduler, cohort
        shared = scheduler.shared(cohort)
        self.checkpoint: Checkpoint | None = shared.checkpoint(cohort.name) if shared else None
        self.keeper = Files(cohort, scheduler.networks) if scheduler.networks else None

    def progress(self, progress: Progress) -> None:
        """Report progress; raises `Stopped` if training is to stop."""
        self.scheduler.watcher.progress(progress, self.cohort)
        if shared := self.scheduler.shared(self.cohort):
            shared.note(self.cohort, progress)
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
        asked: Sequence[Asked],
        store: Store | None,
        executor: Executor,
        watcher: Watcher,
        stop: Callable[[], bool],
        keep: bool = False,
    ) -> None:
        self.asked, self.store, self.executor, self.watcher, self.stop = asked, store, executor, watcher, stop
        self.in_progress = InProgress(store, self._done) if store else None
        self.networks = KeptNetworks(store.path) if store and keep else None
        self.runs = [[Run(each.cell, seed) for seed in each.seeds] for each in asked]
        self.every = {run.key: run for runs in self.runs for run in runs}
        self.records: dict[str, Record] = {}
        self.missing = [{run.key for run in runs} for runs in self.runs]  # of each cell
        self.cells_of: dict[str, list[int]] = defaultdict(list)
        for number, keys in enumerate(self.missing):
            for key in keys:
                self.cells_of[key].append(number)
        self.known: set[str] = set()  # the names of cohorts that some process has started
        self.waiting: list[Cohort] = []
        self.training: set[Job] = set()
        self.theirs: dict[str, Run] = {}  # in training by other processes
        self.told_of_waiting = False
        self.failures: list[str] = []

    def shared(self, cohort: Cohort) -> InProgress | None:
        """Where a cohort is recorded for other processes; None if its runs are not stored."""
        return self.in_progress if cohort.stored else None

    def run(self) -> None:
        """Train what is left, one cohort after another, or as many at once as the executor has room for."""
        try:
            self._look(self.every)
            if self.networks:
                self._announce(self.networks)
            if self.in_progress:
                self.in_progress.tidy()
            self._arrange(self.every.values())
            looked = time.monotonic()
            while self.waiting or self.theirs or self.training:
                self.check_stop()
                if self.in_progress and time.monotonic() - looked >= WAIT:
                    looked = time.monotonic()
                    self._follow_others(self.in_progress)
                if self.waiting and len(self.waiting) < self.executor.room():
                    self.waiting = cut(self.waiting, self.executor.idle(), self.known)
                if self.waiting and self.executor.room():
                    if job := self._take(self.waiting.pop(0)):
                        self.executor.begin(job)
                elif self.training:
                    self.executor.attend()
                else:
                    self._tell_of_waiting()
                    time.sleep(WAIT)
            if self.in_progress:
                self.in_progress.tidy()
        finally:
            if self.training:
                self.executor.abandon()
            for job in self.training:
                self.watcher.ended(job.cohort)
            if self.in_progress:  # closing the lock releases its cohorts
                self.in_progress.lock.close()

    def results(self) -> list[Result]:
        return [self._result(number) for number in range(len(self.asked))]

    def _follow_others(self, shared: InProgress) -> None:
        """Schedule what other processes no longer train. It returns early if there is none, as thousands of cohorts may
        wait."""
        new = shared.names() - self.known
        busy = shared.in_training(self.theirs) if self.theirs else {}
        free = [self.theirs.pop(key) for key in tuple(self.theirs) if key not in busy]
        self._look(run.key for run in free)
        if new or free:
            self._arrange(free)

    def _arrange(self, runs: Iterable[Run]) -> None:
        """Schedule these runs next. Started cohorts keep their runs, whatever memory is free now."""
        begun = self.in_progress.cohorts(self.every) if self.in_progress else []
        self.known |= self.in_progress.names() if self.in_progress else set()
        begun_keys = {key for cohort in begun for key in cohort.keys}
        again, others = list(runs), list[Cohort]()
        for cohort in self.waiting:
            if begun_keys.isdisjoint(cohort.keys):
                others.append(cohort)
            else:
                again += cohort.runs
        found = plan_around(again, begun, self.records.keys(), self.executor.memory)
        if self.executor.largest_first:
            found.reverse()
        self.waiting = [*found, *others]

    def _take(self, cohort: Cohort) -> Job | None:
        """Claim a cohort for training. If other processes train runs of it, the rest is scheduled next."""
        shared = self.shared(cohort)
        if theirs := shared.claim(cohort) if shared else set():
            self.theirs |= {run.key: run for run in cohort.runs if run.key in theirs}
            self._next(run for run in cohort.runs if run.key not in theirs)
            return None
        job = Job(self, cohort)
        self.training.add(job)
        self.known.add(cohort.name)
        stored = self._done(cohort.keys)  # by another process meanwhile
        if len(stored) == len(cohort.keys) or (stored and job.checkpoint and not job.checkpoint.path.exists()):
            self.finish(job, [])
            self._look(stored)
            self._next(run for run in cohort.runs if run.key not in stored)
            return None
        self.watcher.cohort(cohort)
        return job

    def _next(self, runs: Iterable[Run]) -> None:
        """Schedule the rest of a cohort next."""
        if left := tuple(runs):
            self.waiting.insert(0, Cohort(left))

    def _tell_of_waiting(self) -> None:
        """Tell the user once why nothing happens."""
        if self.in_progress and not self.told_of_waiting and (who := self.in_progress.waiting_for(self.theirs)):
            self.told_of_waiting = True
            self.watcher.warn(f"waiting for {who}.")

    def finish(self, job: Job, records: Sequence[Record]) -> None:
        """Store the records of a trained cohort. Those that another process stored first stay as they are."""
        shared = self.shared(job.cohort)
        present = shared.finish(job.cohort, records) if shared else set()
        self._release(job)
        self._keep(record for record in records if record.key not in present)
        self._keep(self._trained_again(records, present))

    def halve(self, job: Job) -> None:
        """Schedule the halves of a cohort that does not fit into memory."""
        self.watcher.warn(f"{described(job.cohort)} does not fit into memory; it is trained in two halves.")
        if shared := self.shared(job.cohort):
            shared.discard(job.cohort)
        self._release(job)
        self.waiting = [*job.cohort.halves(), *self.waiting]

    def fail(self, job: Job, reason: str) -> None:
        """Give up a cohort; the others continue."""
        title = described(job.cohort)
        self.failures.append(f"{title} failed ({reason})")
        if shared := self.shared(job.cohort):
            shared.give_up(job.cohort, reason)
        self.watcher.warn(f"{title} failed: {reason}. The others go on.")
        self._release(job)

    def check_stop(self) -> None:
        if self.stop():
            raise Stopped

    def _release(self, job: Job) -> None:
        self.training.discard(job)
        if job.checkpoint and (aside := job.checkpoint.set_aside):
            path = job.checkpoint.path
            self.watcher.warn(
                f"checkpoint {path} was damaged; it was set aside as {aside.name}, and the cohort began anew."
            )
        self.watcher.ended(job.cohort)

    def _keep(self, records: Iterable[Record]) -> None:
        """Add these records, and report every cell that they complete."""
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
        """Load those of these runs that are done."""
        if self.store:
            found = [self.store.get(key) for key in self._done(keys)]
            self._keep(record for record in found if record)

    def _done(self, keys: Iterable[str]) -> set[str]:
        """Those of these runs that are in the store, with their networks if they are to be kept."""
        stored = self.store.has(keys) if self.store else set()
        return {key for key in stored if self._has_networks(key)} if self.networks else stored

    def _has_networks(self, key: str) -> bool:
        run = self.every.get(key)
        return run is None or self.networks is None or self.networks.complete(key, run.cell.stream.tasks)

    def _trained_again(self, records: Iterable[Record], present: Container[str]) -> Iterator[Record]:
        """The stored records of runs that were in the store, with a warning if this training gave another result."""
        for record in records:
            if record.key in present and self.store and (stored := self.store.get(record.key)):
                if self.networks and stored.to_json()["matrix"] != record.to_json()["matrix"]:
                    self.watcher.warn(
                        f"{self.every[record.key].cell.name} (seed {record.spec['seed']}), trained again for its"
                        " networks, gave other accuracies than its row, as may happen on another machine or a GPU; the"
                        " row stays."
                    )
                yield stored

    def _announce(self, networks: KeptNetworks) -> None:
        """Tell how much will be kept, and check that there is room for it."""
        left = [run for key, run in self.every.items() if key not in self.records]
        if not left:
            return
        number = sum(run.cell.stream.tasks for run in left)
        size = sum(4 * (run.cell.numbers + run.cell.remembered) * run.cell.stream.tasks for run in left)
        networks.check_room(size, number)
        if again := len(self.store.has(run.key for run in left)) if self.store else 0:
            self.watcher.tell(
                f"{again} run{'s are' if again > 1 else ' is'} in the store without networks, trained again for them."
            )
        what = "networks" if number > 1 else "network"
        more = ", and what methods remember" if any(run.cell.method.parts for run in left) else ""
        self.watcher.tell(f"keeps {number:,} {what}, {in_bytes(size)}{more}, in {networks.folder}.")

    def _result(self, number: int) -> Result:
        records = [self.records[run.key] for run in self.runs[number]]
        return Result(self.asked[number].cell, records, self.store.path if self.store else None)


def _all_of(failures: Sequence[str]) -> str:
    """One sentence about all of them."""
    others = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"{failures[0]}{others}; everything else is done; fix it and give the same command again."
