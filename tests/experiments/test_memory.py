"""Cohorts that do not fit into memory are halved, without any change of results."""

import weakref
from pathlib import Path

import pytest
import torch
from small_cells import (
    Heard,
    before_training,
    cell,
    measured,
    memory_for,
    out_of_memory_above,
    runs,
    same,
    small_split,
    train_cells,
)

from threefold import Store, ThreefoldError
from threefold.experiments import Result, Stopped

SPLIT, SEEDS = small_split(), (1, 2, 3)
CELLS = [cell(SPLIT, f"ewc:strength={strength}") for strength in (1, 100)]
GENERATIVE = [
    cell(SPLIT, method, scenario, iters=3) for method in ("dgr", "dgr-distill") for scenario in ("task", "class")
]


@pytest.fixture(scope="module")
def whole() -> list[Result]:
    return train_cells(CELLS, SEEDS)


@pytest.fixture(scope="module")
def each_alone() -> list[Result]:
    return [train_cells([wanted], SEEDS)[0] for wanted in GENERATIVE]


def test_numbers_in_one_stack_measure_what_each_measures_alone(whole: list[Result]) -> None:
    same(whole, [train_cells([cell], SEEDS)[0] for cell in CELLS])


def test_cut_cohorts_measure_the_same(store: Path, monkeypatch: pytest.MonkeyPatch, whole: list[Result]) -> None:
    heard = Heard()
    memory_for(monkeypatch, CELLS[0], 4.5)
    same(train_cells(CELLS, SEEDS, store, heard), whole)
    assert sorted(heard.cohorts) == [2, 4]


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, torch.OutOfMemoryError])
@pytest.mark.parametrize("stored", [True, False])
def test_out_of_memory_halves_until_it_fits(
    store: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], stored: bool, whole: list[Result]
) -> None:
    heard = Heard()
    out_of_memory_above(monkeypatch, 2, error)
    same(train_cells(CELLS, SEEDS, store if stored else None, heard), whole)
    assert sorted(heard.cohorts) == [1, 1, 2, 2, 3, 3, 6]
    assert all(text.endswith("does not fit into memory; it is trained in two halves.") for text in heard.warnings)
    assert len(heard.warnings) == 3
    assert [path.name for path in store.parent.iterdir()] == (["a.db"] if stored else [])


def test_halves_that_are_done_are_stored_at_once(
    store: Path, monkeypatch: pytest.MonkeyPatch, whole: list[Result]
) -> None:
    """Killed or stopped in the second half, the first is not lost."""
    out_of_memory_above(monkeypatch, 3)
    halves: list[int] = []

    def second_stops(seeds: list[int]) -> None:
        halves.extend([len(seeds)] * (len(seeds) <= 3))
        if len(halves) == 2:
            raise Stopped

    with monkeypatch.context() as patch:
        before_training(patch, second_stops)
        with pytest.raises(Stopped):
            train_cells(CELLS, SEEDS, store)
    with Store(store, readonly=True) as opened:
        assert len(list(opened.all())) == 3
    heard = Heard()
    same(train_cells(CELLS, SEEDS, store, heard), whole)
    assert heard.cohorts == [3], "the other half alone"


def test_what_did_not_fit_is_let_go_before_the_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's traceback holds what was allocated until then."""

    class Memory:
        pass

    held: list[weakref.ref[Memory]] = []

    def greedy(seeds: list[int]) -> None:
        assert not any(ref() for ref in held)
        if len(seeds) > 3:
            memory = Memory()
            held.append(weakref.ref(memory))
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 5 bytes")

    before_training(monkeypatch, greedy)
    train_cells(CELLS, SEEDS)
    assert held


def test_one_network_that_does_not_fit_is_a_sentence(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_memory_above(monkeypatch, 0)
    sentence = r"ewc.* does not fit into memory \(network mlp:width=8, batch 16\); use smaller"
    with pytest.raises(ThreefoldError, match=sentence):
        train_cells(CELLS, SEEDS, store)


def test_other_errors_are_not_taken_for_memory(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(seeds: list[int]) -> None:
        raise RuntimeError("shapes do not agree")

    before_training(monkeypatch, wrong)
    with pytest.raises(RuntimeError, match="shapes do not agree"):
        train_cells(CELLS, SEEDS, store)


# cohorts of several stacks


def test_every_cell_has_its_own_rows(store: Path, each_alone: list[Result]) -> None:
    heard = Heard()
    results = train_cells(GENERATIVE, SEEDS, store, heard)
    assert heard.cohorts == [12]
    assert measured(*results) == measured(*each_alone)
    with Store(store, readonly=True) as opened:
        rows = list(opened.all())
    assert {row.key: row.spec for row in rows} == {run.key: run.cell.run_spec(run.seed) for run in runs(GENERATIVE)}
    assert {row.environment["cohort"] for row in rows} == {len(rows)}
    (timings,) = {tuple(row.timings.items()) for row in rows}
    took = sum(seconds for _, seconds in timings)
    assert sum(row.seconds for row in rows) == pytest.approx(took), "shares of the cohort's time"
    assert len({str(row.matrix) for row in rows}) > 2, "not all the same, or a mix-up could not be seen"


def test_what_is_done_is_left_out_and_the_rest_still_shares(store: Path, each_alone: list[Result]) -> None:
    train_cells(GENERATIVE[:1], SEEDS, store)
    heard = Heard()
    assert measured(*train_cells(GENERATIVE, SEEDS, store, heard)) == measured(*each_alone)
    assert heard.cohorts == [9]


@pytest.mark.parametrize(("most", "least"), [(6, 6), (5, 3)])
def test_out_of_memory_halves_between_stacks_and_changes_nothing(
    most: int, least: int, store: Path, monkeypatch: pytest.MonkeyPatch, each_alone: list[Result]
) -> None:
    heard = Heard()
    out_of_memory_above(monkeypatch, most)
    assert measured(*train_cells(GENERATIVE, SEEDS, store, heard)) == measured(*each_alone)
    assert heard.warnings[0] == (
        "split-small Task-IL dgr and 3 more ×12 does not fit into memory; it is trained in two halves."
    )
    assert min(heard.cohorts) == least
    assert [path.name for path in store.parent.iterdir()] == ["a.db"]
