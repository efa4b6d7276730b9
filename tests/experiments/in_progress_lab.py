"""Processes that see memory for so many networks, and are killed half-way."""

from pathlib import Path
from typing import Any

import pytest
from cohort_lab import Heard, cell, small_split

from threefold.engine import Checkpoint, Progress
from threefold.experiments import Cell, Result, Watcher, run_cells
from threefold.experiments.cohort import Cohort, capacity
from threefold.experiments.run import Here

CELL = cell(small_split(tasks=4), "ewc:strength=100", iters=3)
SEEDS = tuple(range(1, 9))
PLENTY = 1 << 40


class Killed(BaseException):
    """Stands in for the end of the process."""


class Room(Here):
    """A process that sees memory for so many networks."""

    def __init__(self, networks: float, wanted: Cell = CELL) -> None:
        self.bytes = int(PLENTY / capacity(wanted, lambda device: PLENTY) * networks)

    def memory(self, device: str) -> int:  # type: ignore[override]
        return self.bytes


class Tasks(Heard):
    """Remembers which seeds were trained together, and in which tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[tuple[int, ...], set[int]] = {}

    def progress(self, progress: Progress, cohort: Cohort) -> None:
        self.tasks.setdefault(tuple(cohort.seeds), set()).add(progress.task)


def train(store: Path | None, room: float, seeds: tuple[int, ...] = SEEDS, watcher: Watcher | None = None) -> Result:
    return run_cells([CELL], seeds, store, watcher, place=Room(room))[0]


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
            run_cells(*wanted, **more)
    assert len(saved) == tasks


def kill_begun(store: Path, patch: pytest.MonkeyPatch, seeds: tuple[int, ...] = SEEDS) -> None:
    kill_after(2, patch, [CELL], seeds, store, place=Room(4))
