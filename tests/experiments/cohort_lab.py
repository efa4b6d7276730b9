"""Cells on small data, and what a machine with little memory does to their cohorts."""

import sys
from typing import Any

import numpy as np
import pytest
from threefold.experiments.ask import Asked, Options

from threefold import Dataset, Split
from threefold.experiments import Cell, Result, Settings, Watcher, ask, cohort
from threefold.experiments.cohort import Cohort, capacity
from threefold.experiments.spec import paper_experiment
from threefold.methods import parse
from threefold.scenarios import SCENARIOS

running = sys.modules["threefold.experiments.run"]


def small_split(tasks: int = 2) -> Split:
    source, y = np.random.default_rng(0), np.arange(240) % 4
    x = (source.random((240, 4, 4)) / 2 + (np.arange(16).reshape(4, 4) % 4 == y[:, None, None]) / 2).astype(np.float32)
    return Split(Dataset.from_arrays(x[:160], y[:160], x[160:], y[160:], name="small"), tasks)


def cell(split: Split, method: str, scenario: str = "class", task_id_in: str | None = None, **settings: Any) -> Cell:
    given = {"iters": 6, "hidden": 8, "batch": 16, "device": "cpu"} | settings
    return Cell.of(split, SCENARIOS[scenario], parse(method), Settings.checked(**given), task_id_in)


class Heard(Watcher):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.cohorts: list[int] = []
        self.warnings: list[str] = []

    def cohort(self, cohort: Cohort) -> None:
        self.cohorts.append(len(cohort.runs))

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def same(some: list[Result], others: list[Result]) -> None:
    """Results of the same runs, trained in other stacks."""
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert [record.key for record in one.records] == [record.key for record in other.records]
        np.testing.assert_allclose(one.matrix, other.matrix, atol=1.3)  # one sample of 80 on the fence
        np.testing.assert_allclose(one.initial, other.initial, atol=1.3)


def measured(result: Result) -> list[dict[str, Any]]:
    """Everything a run left behind, but when, where and how fast."""
    passing = ("created", "timings", "environment")
    return [{k: v for k, v in record.to_json().items() if k not in passing} for record in result.records]


def memory_for(monkeypatch: pytest.MonkeyPatch, cell: Cell, networks: float) -> None:
    """So much memory is free that this many networks of a cell fit."""
    monkeypatch.setattr(cohort, "_free_memory", lambda device: 1 << 40)
    each = (1 << 40) / capacity(cell)
    monkeypatch.setattr(cohort, "_free_memory", lambda device: int(each * networks))


def out_of_memory_above(monkeypatch: pytest.MonkeyPatch, most: int, error: type[Exception] = RuntimeError) -> None:
    execute = running.execute

    def small_only(wanted: Cohort, *rest: Any) -> Any:
        if len(wanted.runs) > most:
            raise error("CUDA out of memory. Tried to allocate 20.00 GiB")
        return execute(wanted, *rest)

    monkeypatch.setattr(running, "execute", small_only)


def small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's experiments are asked of a few small pictures."""
    x, y = np.random.default_rng(0).random((400, 4, 4)).astype(np.float32), np.arange(400) % 10
    data = Dataset.from_arrays(x, y, x, y, name="mnist")
    monkeypatch.setattr(ask, "load", lambda name, report=None: data)


def asked(name: str, **options: object) -> Asked:
    return ask.ask(paper_experiment(name), Options(device="cpu", **options), f"reproduce {name}")  # type: ignore[arg-type]
