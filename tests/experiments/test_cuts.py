"""Cohorts are halved where accelerators would stand idle, the largest first; what was begun stays as it was cut."""

import numpy as np
import pytest
from cohort_lab import memory_for

from threefold import Dataset, Split
from threefold.experiments import Cell, Cohort, Run, Settings
from threefold.experiments.cohort import as_begun, cut
from threefold.methods import parse
from threefold.scenarios import SCENARIOS


@pytest.fixture(scope="module")
def split() -> Split:
    x, y = np.zeros((40, 2, 2), np.float32), np.arange(40) % 4
    return Split(Dataset.from_arrays(x, y, x, y), tasks=2)


def cohort(split: Split, seeds: int, iters: int = 10) -> Cohort:
    settings = Settings.checked(iters=iters, hidden=4, batch=4, device="cpu")
    cell = Cell.of(split, SCENARIOS["class"], parse("none"), settings)
    return Cohort(tuple(Run(cell, seed) for seed in range(1, seeds + 1)))


def seeds(cohorts: list[Cohort]) -> list[list[int]]:
    return [each.seeds for each in cohorts]


def test_enough_cohorts_stay_as_they_are(split: Split) -> None:
    some = [cohort(split, 4), cohort(split, 2, iters=99)]
    assert cut(some, 2) == some
    assert cut(some, 0) == some


def test_the_largest_is_halved_first_and_comes_first(split: Split) -> None:
    large, small = cohort(split, 8), cohort(split, 4, iters=11)
    assert seeds(cut([small, large], 3)) == [[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8]]
    assert [each.weight for each in cut([small, large], 5)] == sorted(
        (each.weight for each in cut([small, large], 5)), reverse=True
    )
    assert len(cut([small, large], 5)) == 5


def test_a_run_is_not_cut_nor_a_cohort_that_was_begun(split: Split) -> None:
    assert seeds(cut([cohort(split, 3)], 100)) == [[1], [2], [3]]
    begun = cohort(split, 4)
    assert seeds(cut([begun, cohort(split, 2, iters=99)], 4, {begun.name})) == [[1], [2], [1, 2, 3, 4]]


PLENTY = 1 << 40


def test_what_was_begun_stays_together_and_the_rest_is_planned(split: Split) -> None:
    whole = cohort(split, 8)

    def of(*wanted: int) -> Cohort:
        return Cohort(tuple(whole.runs[seed - 1] for seed in wanted))

    def cut_as(*begun: Cohort, done: tuple[int, ...] = ()) -> list[list[int]]:
        return seeds(as_begun(whole.runs, begun, {run.key for run in of(*done).runs}, lambda device: PLENTY))

    assert cut_as() == cut_as(whole) == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert cut_as(of(7, 2)) == [[7, 2], [1, 3, 4, 5, 6, 8]], "in the order it had"
    assert cut_as(of(4, 5, 6), of(6, 7), of(7, 8)) == [[7, 8], [4, 5, 6], [1, 2, 3]], "the first goes on"
    assert cut_as(of(1, 2, 3), done=(3, 8)) == [[1, 2, 3], [4, 5, 6, 7]], "though one of its runs is done"
    assert cut_as(of(1, 2), done=(1, 2)) == [[3, 4, 5, 6, 7, 8]], "unless all are"


def test_what_was_begun_of_other_runs_too_is_not_gone_on_with(split: Split) -> None:
    whole = cohort(split, 4)
    assert seeds(as_begun(whole.runs[:3], [whole], set(), lambda device: PLENTY)) == [[1, 2, 3]]
    assert seeds(as_begun(whole.runs[:3], [whole], {whole.keys[3]}, lambda device: PLENTY)) == [[1, 2, 3, 4]]


def test_what_can_no_longer_fit_begins_anew(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cohort(split, 8)
    memory_for(monkeypatch, whole.cell, 6.5)  # in a share of it; in all of it there is room for eight
    assert seeds(as_begun(whole.runs, [whole], set())) == [[1, 2, 3, 4, 5, 6, 7, 8]]
    memory_for(monkeypatch, whole.cell, 4.5)
    assert seeds(as_begun(whole.runs, [whole], set())) == [[1, 2, 3, 4], [5, 6, 7, 8]]
