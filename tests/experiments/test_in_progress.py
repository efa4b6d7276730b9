"""A started cohort continues with the same division into stacks, however much memory is free."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_cells import (
    CELL,
    SEEDS,
    Heard,
    Room,
    cell,
    kill_after,
    kill_begun,
    measured,
    out_of_memory_above,
    small_split,
    train,
    train_cells,
    when_planned,
)

from threefold import ThreefoldError
from threefold.experiments import Result, Run
from threefold.experiments.in_progress import InProgress
from threefold.experiments.scheduler import Scheduler
from threefold.results import Store

# one process after the other


@pytest.mark.parametrize(
    ("room", "others"),
    [
        (4, [(5, 6, 7, 8)]),
        (5, [(5, 6, 7, 8)]),
        (100, [(5, 6, 7, 8)]),
        (3, [(5, 6, 7), (8,)]),
    ],
)
def test_finished_tasks_are_not_trained_again_whatever_memory_is_free(
    store: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Result,
    room: float,
    others: list[tuple[int, ...]],
) -> None:
    kill_begun(store, monkeypatch)
    heard = Heard()
    again = train(store, room, watcher=heard)
    assert heard.tasks == {(1, 2, 3, 4): {2, 3}} | {seeds: {0, 1, 2, 3} for seeds in others}
    assert measured(again)[:4] == measured(undisturbed)[:4], "bit for bit"
    if len(others) == 1:
        assert measured(again) == measured(undisturbed)
    assert not folder.exists()


def test_a_cohort_that_can_no_longer_fit_begins_anew(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the system would kill the same command again and again."""
    kill_begun(store, monkeypatch)
    heard = Heard()
    train(store, 1, watcher=heard)
    assert heard.tasks == {(seed,): {0, 1, 2, 3} for seed in range(1, 9)}
    assert not folder.exists()


def test_a_checkpoint_is_used_though_another_process_stored_a_run_of_it(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_begun(store, monkeypatch)
    heard = Heard()

    def another_is_first(scheduler: Scheduler) -> None:
        if scheduler.watcher is heard:
            train(store, 1, seeds=(3,))

    when_planned(monkeypatch, another_is_first)
    train(store, 4, watcher=heard)
    assert heard.tasks[1, 2, 3, 4] == {2, 3}
    assert not folder.exists()


def test_a_checkpoint_is_used_though_a_run_of_it_is_stored_already(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_begun(store, monkeypatch)
    train(store, 1, seeds=(3,))
    heard, done = Heard(), []
    heard.done = done.append  # type: ignore[method-assign]
    train(store, 4, SEEDS[:4], watcher=heard)
    assert heard.tasks == {(1, 2, 3, 4): {2, 3}}
    assert len(done) == 1, "a cell is told of once"
    assert not folder.exists()


def test_what_is_stored_and_what_was_begun_leave_the_rest_to_be_planned(
    store: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    kill_after(3 + 1, monkeypatch, [CELL], (*SEEDS, 9, 10, 11, 12), store, executor=Room(4, CELL))
    heard = Heard()
    again = train(store, 5, (*SEEDS, 9, 10, 11, 12), heard)
    assert heard.tasks == {(5, 6, 7, 8): {1, 2, 3}, (9, 10, 11, 12): {0, 1, 2, 3}}
    assert measured(again)[:8] == measured(undisturbed)


def test_several_stacks_go_on_as_they_were_cut(store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = small_split()
    cells = [cell(split, method, where, iters=3) for method in ("dgr", "dgr-distill") for where in ("task", "class")]
    little = Room(7, max(cells, key=lambda cell: cell.numbers))
    undisturbed = train_cells(cells, (1, 2, 3))
    kill_after(1, monkeypatch, cells, (1, 2, 3), store, executor=little)
    (begun,), heard = folder.glob("*.pt"), Heard()
    names: list[str] = []
    heard.progress = lambda progress, cohort: names.append(f"{cohort.name} {progress.task}")  # type: ignore[method-assign]
    results = train_cells(cells, (1, 2, 3), store, heard)
    assert f"{begun.stem} 1" in names
    assert f"{begun.stem} 0" not in names
    assert measured(*results) == measured(*undisturbed)
    assert not folder.exists()


def test_what_no_longer_fits_is_halved(store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_begun(store, monkeypatch)
    heard = Heard()
    out_of_memory_above(monkeypatch, 2, MemoryError)
    train(store, 2, watcher=heard)
    assert set(heard.tasks) == {(1, 2), (3, 4), (5, 6), (7, 8)}
    assert not folder.exists()


def test_a_checkpoint_for_which_memory_is_too_little_now_stays(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    """It is not halved either: then its finished tasks would be lost."""
    kill_begun(store, monkeypatch)
    (begun,) = folder.iterdir()
    whole = begun.read_bytes()

    def full(*given: Any, **more: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", full)
        with pytest.raises(ThreefoldError, match=r"checkpoint '.*' cannot be loaded now \(.*allocate memory"):
            train(store, 4)
    assert list(folder.iterdir()) == [begun]
    assert begun.read_bytes() == whole
    heard = Heard()
    assert measured(train(store, 4, watcher=heard)) == measured(undisturbed)
    assert heard.tasks[1, 2, 3, 4] == {2, 3}


def test_a_cohort_with_a_run_that_nobody_wants_now_is_not_gone_on_with(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_begun(store, monkeypatch)
    heard = Heard()
    train(store, 4, (1, 2), heard)
    assert heard.tasks == {(1, 2): {0, 1, 2, 3}}
    assert len(list(folder.glob("*.pt"))) == 1, "the other runs are not stored yet"
    train(store, 3, (3, 4))
    assert not folder.exists(), "now they are"


def test_the_same_runs_in_two_streams_are_not_one_cohort(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are stacked where they have their tasks in common, so the checkpoint would not fit."""
    kill_begun(store, monkeypatch, (1, 2))
    twin = cell(small_split(tasks=4), "ewc:strength=100", iters=3)
    with Store(store) as opened:
        found = InProgress(opened)
        assert len(found.cohorts({run.key: run for run in (Run(CELL, 1), Run(CELL, 2))})) == 1
        assert found.cohorts({run.key: run for run in (Run(CELL, 1), Run(twin, 2))}) == []
