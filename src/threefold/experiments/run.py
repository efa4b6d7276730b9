"""Runs cells: what is in the store is taken from there, the rest is trained in cohorts and stored."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from threefold import protocols, scenarios
from threefold.data import load
from threefold.engine import Checkpoint, Progress
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell, Settings
from threefold.experiments.claim import Claim
from threefold.experiments.cohort import Cohort, Run, plan
from threefold.experiments.execute import execute
from threefold.experiments.result import Result
from threefold.experiments.seeds import parse_seeds
from threefold.methods import Method, Part, parse
from threefold.results import Record, Store

WAIT = 0.5  # seconds between two looks at what another process trains


class Stopped(Exception):
    """Training was asked to stop before everything was done. What was finished is kept."""


class _TooLarge(Exception):
    """A cohort does not fit into memory."""


class Watcher:
    """Is told how far things are; this one does not care."""

    def cohort(self, cohort: Cohort) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def done(self, result: Result) -> None: ...
    def warn(self, text: str) -> None: ...


def run(
    protocol: "protocols.Protocol | str",
    *,
    scenario: str,
    method: "Method | Part | str" = "none",
    seeds: str | int | Iterable[int] = 20,
    store: str | Path | None = "threefold.db",
    task_id_in: str | None = None,
    tasks: int | None = None,
    **settings: Any,
) -> Result:
    """Train one method in one scenario, one network for each seed, all in lockstep.

    `protocol` is a name such as "split-mnist" or a protocol over data of your own. Settings (`iters`, `lr`, `batch`,
    `hidden`, `device`, `precision`) that are not given are the paper's. Runs that are in `store` are not trained again;
    `store=None` keeps nothing.
    """
    # everything that needs no data is checked before any is fetched
    if isinstance(method, str):
        method = parse(method)
    elif isinstance(method, Part):
        method = Method(method)
    elif not isinstance(method, Method):
        raise ThreefoldError(f"method is {method!r}; right would be 'offline', Offline() or Method(Offline()).")
    wanted, checked, chosen = scenarios.find(str(scenario)), Settings.checked(**settings), parse_seeds(seeds)
    if isinstance(protocol, str):
        kind, data = protocols.find(protocol)
        protocol = kind(load(data or "mnist"), tasks)
    elif not isinstance(protocol, protocols.Protocol):
        raise ThreefoldError(f"protocol is {protocol!r}; right would be 'split-mnist' or Split(data).")
    elif tasks is not None:
        raise ThreefoldError(f"tasks is {tasks}, but the protocol has its own; right would be to give one of them.")
    cell = Cell.of(protocol, wanted, method, checked, task_id_in)
    reason = cell.refusal()
    if reason:
        raise ThreefoldError(reason)
    return run_cells([cell], chosen, store)[0]


def run_cells(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    store: str | Path | None,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Result]:
    """Every cell with every seed. `stop` is asked often; when it says so, `Stopped` is raised and nothing is lost."""
    watcher = watcher or Watcher()
    check_batches(cells, seeds)  # before the store is there
    with ExitStack() as closing:
        opened = closing.enter_context(Store(store)) if store is not None else None
        return _Campaign(cells, seeds, opened, watcher, stop).run()


class _Campaign:
    """All runs of a command: which are done, which are left, who trains them."""

    def __init__(
        self,
        cells: Sequence[Cell],
        seeds: Sequence[int],
        store: Store | None,
        watcher: Watcher,
        stop: Callable[[], bool],
    ) -> None:
        self.cells, self.store, self.watcher, self.stop = cells, store, watcher, stop
        self.runs = [[Run(cell, seed) for seed in seeds] for cell in cells]
        self.records: dict[str, Record] = {}
        self.told: set[int] = set()

    def run(self) -> list[Result]:
        self._look()
        every = {run.key: run for runs in self.runs for run in runs}
        self._tidy(plan(every.values()))
        waiting = plan(run for key, run in every.items() if key not in self.records)
        while waiting:
            left = [rest for cohort in waiting for rest in self._attempt(cohort)]
            if left == waiting:  # all of them are in training elsewhere
                time.sleep(WAIT)
                self._check_stop()
            waiting = left
        self._look()
        return [self._result(place) for place in range(len(self.cells))]

    def _tidy(self, cohorts: Iterable[Cohort]) -> None:
        """Checkpoints and locks of cohorts that are in the store: a process was killed right after storing them."""
        for cohort in cohorts:
            if self.store and all(run.key in self.records for run in cohort.runs):
                checkpoint = self._checkpoint(cohort)
                checkpoint.discard()
                if (lock := checkpoint.path.with_suffix(".lock")).exists():
                    with Claim(lock) as claim:
                        claim.take()

    def _checkpoint(self, cohort: Cohort) -> Checkpoint:
        assert self.store is not None
        return Checkpoint(Path(f"{self.store.path}.checkpoints") / f"{cohort.name}.pt")

    def _attempt(self, cohort: Cohort) -> list[Cohort]:
        """Train a cohort; what is left: nothing, all of it if another process is at it, halves if it is too large."""
        try:
            return [] if self._train(cohort) else [cohort]
        except _TooLarge:
            self.watcher.warn(f"{_described(cohort)} does not fit into memory; it is trained in two halves.")
        if self.store:
            self._checkpoint(cohort).discard()
        return cohort.halves()  # only now, as the error holds the memory of what did not fit

    def _train(self, cohort: Cohort) -> bool:
        """Train a cohort and store its runs; False if another process is at it."""
        if self.store is None:
            self._keep(self._execute(cohort, None, None))
            return True
        checkpoint = self._checkpoint(cohort)
        with Claim(checkpoint.path.with_suffix(".lock")) as claim:
            if not claim.take():
                return False
            present = self.store.has(run.key for run in cohort.runs)
            if len(present) < len(cohort.runs):
                # runs that another process stored in the meantime stay as they are
                self.store.add(self._execute(cohort, checkpoint, claim))
            checkpoint.discard()
        self._look()
        return True

    def _execute(self, cohort: Cohort, checkpoint: Checkpoint | None, claim: Claim | None) -> list[Record]:
        """The cohort's records."""
        self.watcher.cohort(cohort)

        def report(progress: Progress) -> None:
            self.watcher.progress(progress)
            if claim:
                claim.beat({"cohort": _described(cohort), **vars(progress)})
            self._check_stop()

        try:
            records = execute(cohort, checkpoint, report)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory", str(error)):
                raise
            training = cohort.cell.training
            if len(cohort.runs) == 1:
                raise ThreefoldError(
                    f"{cohort.cell.name} does not fit into memory (hidden {training.hidden}, batch {training.batch});"
                    " right would be smaller numbers."
                ) from error
            raise _TooLarge from error
        if checkpoint and checkpoint.set_aside:
            self.watcher.warn(
                f"checkpoint {checkpoint.path} was damaged; it was set aside as {checkpoint.set_aside.name}, and the"
                " cohort began anew."
            )
        return records

    def _check_stop(self) -> None:
        if self.stop():
            raise Stopped

    def _keep(self, records: Iterable[Record]) -> None:
        self.records |= {record.key: record for record in records}
        self._tell()

    def _look(self) -> None:
        """Take from the store what is there."""
        if self.store is None:
            return
        wanted = {run.key for runs in self.runs for run in runs} - set(self.records)
        found = [self.store.get(key) for key in self.store.has(wanted)]
        self._keep(record for record in found if record)

    def _tell(self) -> None:
        for place, runs in enumerate(self.runs):
            if place not in self.told and all(run.key in self.records for run in runs):
                self.told.add(place)
                self.watcher.done(self._result(place))

    def _result(self, place: int) -> Result:
        return Result(self.cells[place], [self.records[run.key] for run in self.runs[place]])


def _described(cohort: Cohort) -> str:
    return f"{cohort.cell.name} ×{len(cohort.runs)}"


def check_batches(cells: Sequence[Cell], seeds: Sequence[int]) -> None:
    """A batch has no sample twice, so no task may be smaller."""
    for protocol in dict.fromkeys(cell.protocol for cell in cells):
        smallest = min(len(task.train) for seed in seeds for task in protocol.sequence(seed))
        batch = max(cell.training.batch for cell in cells if cell.protocol is protocol)
        if batch > smallest:
            raise ThreefoldError(
                f"batch is {batch}, but the smallest task has {smallest} training samples; right would be {smallest}"
                " at most."
            )
