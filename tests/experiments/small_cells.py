"""Cells on small data, and processes that have little memory or are killed half-way."""

from collections.abc import Callable, Sequence
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from threefold import Dataset, Split
from threefold.engine import Checkpoint, Progress
from threefold.experiments import (
    Asked,
    Cell,
    Executor,
    Request,
    Result,
    Run,
    Settings,
    Watcher,
    cohort,
    request,
    train_requests,
)
from threefold.experiments.cohort import Cohort, capacity, plan
from threefold.experiments.executor import Local
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.scheduler import Scheduler
from threefold.experiments.spec import paper_experiment
from threefold.methods import parse
from threefold.scenarios import SCENARIOS

executor_module = import_module("threefold.experiments.executor")
PLENTY = 1 << 40  # bytes


def small_split(tasks: int = 2) -> Split:
    source, y = np.random.default_rng(0), np.arange(240) % 4
    x = (source.random((240, 4, 4)) / 2 + (np.arange(16).reshape(4, 4) % 4 == y[:, None, None]) / 2).astype(np.float32)
    return Split(Dataset.from_arrays(x[:160], y[:160], x[160:], y[160:], name="small"), tasks)


def cell(split: Split, method: str, scenario: str = "class", task_id_in: str | None = None, **settings: Any) -> Cell:
    given = {"iters": 6, "hidden": 8, "batch": 16, "device": "cpu"} | settings
    return Cell.of(split, SCENARIOS[scenario], parse(method), Settings.checked(**given), task_id_in)


def runs(cells: Sequence[Cell], seeds: Sequence[int] = (1, 2, 3)) -> list[Run]:
    return [Run(cell, seed) for cell in cells for seed in seeds]


def planned(wanted: list[Run]) -> list[Cohort]:
    return plan(wanted, lambda device: PLENTY)


def request_of(cells: Sequence[Cell], seeds: Sequence[int]) -> Request:
    return Request("small", "small", [Asked(cell, tuple(seeds)) for cell in cells], from_file=False)


def train_cells(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    store: Path | str | None = None,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
    executor: Executor | None = None,
    keep: bool = False,
) -> list[Result]:
    (results,) = train_requests([request_of(cells, seeds)], store, watcher, stop, executor, keep=keep)
    return results


class Heard(Watcher):
    """Remembers which seeds were trained together, in which tasks, and what it was warned of."""

    def __init__(self) -> None:
        self.cohorts: list[int] = []
        self.tasks: dict[tuple[int, ...], set[int]] = {}
        self.warnings: list[str] = []

    def cohort(self, cohort: Cohort) -> None:
        self.cohorts.append(len(cohort.runs))

    def progress(self, progress: Progress, cohort: Cohort) -> None:
        self.tasks.setdefault(tuple(cohort.seeds), set()).add(progress.task)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def same(some: list[Result], others: list[Result]) -> None:
    """Results of the same runs, trained in other stacks."""
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert [record.key for record in one.records] == [record.key for record in other.records]
        np.testing.assert_allclose(one.matrix, other.matrix, atol=1.3)  # one sample of 80 on the fence
        np.testing.assert_allclose(one.initial, other.initial, atol=1.3)


def measured(*results: Result) -> list[dict[str, Any]]:
    """Everything that runs left behind, but when, where and how fast."""
    passing = ("created", "timings", "environment")
    rows = [record.to_json() for result in results for record in result.records]
    return [{name: value for name, value in row.items() if name not in passing} for row in rows]


# memory


def memory_for(monkeypatch: pytest.MonkeyPatch, cell: Cell, networks: float) -> None:
    """So much memory is free that this many networks of a cell fit."""
    free = Room(networks, cell).memory
    monkeypatch.setattr(cohort, "_free_memory", free)


class Room(Local):
    """A process that sees memory for so many networks of a cell."""

    def __init__(self, networks: float, wanted: Cell) -> None:
        self.bytes = ceil(PLENTY / capacity(wanted, lambda device: PLENTY) * networks)

    def memory(self, device: str) -> int:  # type: ignore[override]
        return self.bytes


def before_training(monkeypatch: pytest.MonkeyPatch, act: Callable[[list[int]], None]) -> None:
    """Something happens before a cohort is trained, told the seeds of its runs."""
    train = executor_module.train

    def disturbed(stream: Any, replicas: Any, *rest: Any) -> Any:
        act([seed for stack in replicas for seed in stack.seeds])
        return train(stream, replicas, *rest)

    monkeypatch.setattr(executor_module, "train", disturbed)


def out_of_memory_above(monkeypatch: pytest.MonkeyPatch, most: int, error: type[Exception] = RuntimeError) -> None:
    def small_only(seeds: list[int]) -> None:
        if len(seeds) > most:
            raise error("CUDA out of memory. Tried to allocate 20.00 GiB")

    before_training(monkeypatch, small_only)


# processes that are killed, and several at a time

CELL = cell(small_split(tasks=4), "ewc:strength=100", iters=3)
SEEDS = tuple(range(1, 9))


class Killed(BaseException):
    """Stands in for the end of the process."""


def train(store: Path | None, room: float, seeds: tuple[int, ...] = SEEDS, watcher: Watcher | None = None) -> Result:
    (result,) = train_cells([CELL], seeds, store, watcher, executor=Room(room, CELL))
    return result


def kill_after(tasks: int, patch: pytest.MonkeyPatch, *wanted: Any, **more: Any) -> None:
    """A process is killed when it has kept so many finished tasks."""
    save, saved = Checkpoint.save, []

    def save_and_die(checkpoint: Checkpoint, state: dict[str, Any]) -> None:
        save(checkpoint, state)
        saved.append(state["finished"])
        if len(saved) == tasks:
            raise Killed

    with patch.context() as inner:
        inner.setattr(Checkpoint, "save", save_and_die)
        with pytest.raises(Killed):
            train_cells(*wanted, **more)
    assert len(saved) == tasks


def kill_begun(store: Path, patch: pytest.MonkeyPatch, seeds: tuple[int, ...] = SEEDS) -> None:
    kill_after(2, patch, [CELL], seeds, store, executor=Room(4, CELL))


def when_planned(monkeypatch: pytest.MonkeyPatch, act: Callable[[Scheduler], None]) -> None:
    """Something happens once a process knows what it will train, and before it takes any of it."""
    take, known = Scheduler._take, set[Scheduler]()

    def first(scheduler: Scheduler, cohort: Cohort) -> Any:
        if scheduler not in known:
            known.add(scheduler)
            act(scheduler)
        return take(scheduler, cohort)

    monkeypatch.setattr(Scheduler, "_take", first)


# the paper's experiments


def small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's experiments are asked of a few small pictures."""
    x, y = np.random.default_rng(0).random((400, 4, 4)).astype(np.float32), np.arange(400) % 10
    data = Dataset.from_arrays(x, y, x, y, name="mnist")
    monkeypatch.setattr(request, "load", lambda name, report=None: data)


def paper_request(name: str, **options: object) -> Request:
    return experiment_request(paper_experiment(name), Options(device="cpu", **options), f"reproduce {name}")  # type: ignore[arg-type]


def cells_of(found: Request, validation: bool = False) -> list[Cell]:
    """Those on held-out data, or the others."""
    return [asked.cell for asked in found.asked if asked.validation == validation]


def seeds_of(found: Request) -> list[tuple[int, ...]]:
    """All that cells have."""
    return list(dict.fromkeys(asked.seeds for asked in found.asked))
