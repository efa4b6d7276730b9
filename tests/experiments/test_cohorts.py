"""Cohorts are cut to what fits into memory, halved where that was too much, and cheap ones come first."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from cohort_lab import Heard, cell, memory_for, out_of_memory_above, running, same, small_split

from threefold import Split, Store, ThreefoldError
from threefold.experiments import Cell, Run, Stopped, run_cells
from threefold.experiments.cohort import Cohort, capacity, plan

SEEDS = (1, 2, 3)
STRENGTHS = (1, 100)


@pytest.fixture(scope="module")
def split() -> Split:
    return small_split()


@pytest.fixture
def cells(split: Split) -> list[Cell]:
    return [cell(split, f"ewc:strength={strength}") for strength in STRENGTHS]


def test_memory_cuts_cohorts(cells: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run(cell, seed) for cell in cells for seed in SEEDS]
    memory_for(monkeypatch, cells[0], 4.5)
    assert sorted(len(cohort.runs) for cohort in plan(runs)) == [2, 4]
    memory_for(monkeypatch, cells[0], 0.1)
    assert [len(cohort.runs) for cohort in plan(runs)] == [1] * 6, "one at least"
    memory_for(monkeypatch, cells[0], 1000)
    (whole,) = plan(runs)
    assert whole.runs == tuple(runs)


def test_larger_nets_and_batches_leave_room_for_fewer(split: Split) -> None:
    small = capacity(cell(split, "none"))
    assert capacity(cell(split, "none", hidden=400)) < small
    assert capacity(cell(split, "none", batch=80)) < small
    assert capacity(cell(split, "dgr")) < small, "a generator takes its share"


def test_cut_cohorts_measure_the_same(cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = Heard(), Heard()
    undisturbed = run_cells(cells, SEEDS, tmp_path / "whole.db", whole)
    memory_for(monkeypatch, cells[0], 4.5)
    same(run_cells(cells, SEEDS, tmp_path / "cut.db", cut), undisturbed)
    assert (whole.cohorts, sorted(cut.cohorts)) == ([6], [2, 4])


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, torch.OutOfMemoryError])
@pytest.mark.parametrize("stored", [True, False])
def test_out_of_memory_halves_until_it_fits(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], stored: bool
) -> None:
    heard, store = Heard(), tmp_path / "a.db" if stored else None
    undisturbed = run_cells(cells, SEEDS, None)
    out_of_memory_above(monkeypatch, 2, error)
    same(run_cells(cells, SEEDS, store, heard), undisturbed)
    assert sorted(heard.cohorts) == [1, 1, 2, 2, 3, 3, 6]
    assert all(text.endswith("does not fit into memory; it is trained in two halves.") for text in heard.warnings)
    assert len(heard.warnings) == 3
    assert [path.name for path in tmp_path.iterdir()] == (["a.db"] if stored else [])


def test_halves_that_are_done_are_stored_at_once(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed or stopped in the second half, the first is not lost."""
    undisturbed = run_cells(cells, SEEDS, None)
    out_of_memory_above(monkeypatch, 3)
    trained: list[int] = []
    execute = running.execute

    def second_stops(wanted: Cohort, *rest: Any) -> Any:
        if len(wanted.runs) <= 3:
            trained.append(len(wanted.runs))
        if len(trained) == 2:
            raise Stopped
        return execute(wanted, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(running, "execute", second_stops)
        with pytest.raises(Stopped):
            run_cells(cells, SEEDS, tmp_path / "a.db")
    with Store(tmp_path / "a.db", readonly=True) as store:
        assert len(list(store.all())) == 3
    heard = Heard()
    same(run_cells(cells, SEEDS, tmp_path / "a.db", heard), undisturbed)
    assert heard.cohorts == [3], "the other half alone"


def test_what_did_not_fit_is_let_go_before_the_halves(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error's traceback holds what was allocated until then."""

    class Memory:
        pass

    held: list[weakref.ref[Memory]] = []
    execute = running.execute

    def greedy(wanted: Cohort, *rest: Any) -> Any:
        assert not any(ref() for ref in held)
        if len(wanted.runs) > 3:
            memory = Memory()
            held.append(weakref.ref(memory))
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 5 bytes")
        return execute(wanted, *rest)

    monkeypatch.setattr(running, "execute", greedy)
    run_cells(cells, SEEDS, tmp_path / "a.db")
    assert held


def test_one_network_that_does_not_fit_is_a_sentence(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_of_memory_above(monkeypatch, 0)
    with pytest.raises(ThreefoldError, match=r"ewc.* does not fit into memory \(hidden 8, batch 16\); use smaller"):
        run_cells(cells, SEEDS, tmp_path / "a.db")


def test_other_errors_are_not_taken_for_memory(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*given: Any) -> Any:
        raise RuntimeError("shapes do not agree")

    monkeypatch.setattr(running, "execute", wrong)
    with pytest.raises(RuntimeError, match="shapes do not agree"):
        run_cells(cells, SEEDS, tmp_path / "a.db")


def test_cheap_cohorts_come_first(split: Split) -> None:
    cells = [
        cell(split, "dgr"),
        cell(split, "none", hidden=100),
        cell(split, "none", iters=100),
        cell(split, "none"),
        cell(split, "ewc:strength=1"),
    ]
    order = [
        (c.cell.method.name, c.cell.training.hidden, c.cell.training.iters) for c in plan(Run(c, 1) for c in cells)
    ]
    assert order[:2] == [("none", 8, 6), ("ewc", 8, 6)]
    assert order.index(("dgr", 8, 6)) > 1
    assert order.index(("none", 100, 6)) > 1
    assert [len(c.runs) for c in plan([Run(cells[3], s) for s in SEEDS] + [Run(cells[4], 1)])] == [1, 3]


def test_learning_rates_share_a_cohort_and_settings_of_shape_do_not(split: Split) -> None:
    cells = [cell(split, "none", lr=lr) for lr in (0.1, 0.01)]
    assert len(plan(Run(c, s) for c in cells for s in SEEDS)) == 1
    for change in ({"hidden": 9}, {"batch": 15}, {"iters": 5}):
        assert len(plan([Run(cells[0], 1), Run(cell(split, "none", **change), 1)])) == 2


def test_a_cohort_is_known_by_its_runs(cells: list[Cell]) -> None:
    (one,) = plan(Run(cell, seed) for cell in cells for seed in SEEDS)
    (again,) = plan(Run(cell, seed) for cell in cells for seed in SEEDS)
    (other,) = plan(Run(cell, seed) for cell in cells for seed in (1, 2))
    assert one.name == again.name != other.name
    assert [len(half.runs) for half in one.halves()] == [3, 3]
    assert [run.key for half in one.halves() for run in half.runs] == [run.key for run in one.runs]


def test_numbers_in_one_stack_measure_what_each_measures_alone(cells: list[Cell]) -> None:
    together = run_cells(cells, SEEDS, None)
    same(together, [run_cells([cell], SEEDS, None)[0] for cell in cells])
