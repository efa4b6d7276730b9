"""Cells that have something in common are one cohort of several stacks: which, and how they are cut."""

from collections import Counter

import pytest
from cohort_lab import (
    asked,
    cell,
    memory_for,
    running,
    small_mnist,
    small_split,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from joint_lab import GENERATIVE, PLENTY, SPLIT, STORED, planned, runs

from threefold import Permuted
from threefold.experiments import Cell, Run
from threefold.experiments.cohort import Cohort, capacity, left_of, plan

# which cells are joined


def label(run: Run) -> tuple[str, ...]:
    """A run without its seed and numbers."""
    uses = tuple(part.use for part in run.cell.method.parts if hasattr(part, "use"))
    return run.cell.stream.name, str(run.cell.task_id_in or run.cell.scenario.name), run.cell.method.name, *uses


def joined(name: str) -> Counter[frozenset[tuple[str, ...]]]:
    """The cohorts of one of the paper's experiments that have several stacks, by what is in them."""
    found = asked(name)
    wanted = [Run(cell, seed) for cell in found.cells for seed in found.seeds]
    cohorts = planned(wanted)
    assert sorted(run.key for cohort in cohorts for run in cohort.runs) == sorted(run.key for run in wanted)
    assert all(len(stack) % len(found.seeds) == 0 for cohort in cohorts for stack in cohort.stacks)
    return Counter(frozenset(map(label, cohort.runs)) for cohort in cohorts if len(cohort.stacks) > 1)


def one_generator(stream: str, *where: str) -> frozenset[tuple[str, ...]]:
    return frozenset((stream, place, method) for place in where for method in ("dgr", "dgr-distill"))


@pytest.mark.parametrize(("name", "stream"), [("table4", "split"), ("table5", "permuted")])
def test_the_generative_cells_of_a_table_are_one_cohort(
    name: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist(monkeypatch)
    assert joined(name) == Counter([one_generator(stream, "output", "domain", "class")])


def test_gated_or_not_in_table_b1(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)
    gated = {("permuted", "hidden", f"{method}+xdg") for method in ("dgr", "dgr-distill")}
    assert joined("tableB1") == Counter([one_generator("permuted", "output") | gated])


def test_stored_data_of_figure_c1_by_what_they_are_trained_as(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)
    wanted = [one_generator(stream, "output", "domain", "class") for stream in ("split", "permuted")]
    for stream in ("split", "permuted"):
        for place in ("output", "domain", "class"):
            wanted.append(frozenset((stream, place, "er", use) for use in ("training", "both")))
            wanted.append(frozenset([(stream, place, "none"), (stream, place, "er", "execution")]))
    assert joined("figureC1") == Counter(wanted)


PERMUTED = Permuted(SPLIT.data, 2)


@pytest.mark.parametrize(
    "other",
    [
        cell(SPLIT, "dgr", "task", iters=4),
        cell(SPLIT, "dgr", "task", iters=3, hidden=9),
        cell(SPLIT, "dgr", "task", iters=3, batch=15),
        cell(SPLIT, "dgr+xdg:share=0.5", "task", "hidden", iters=3, lr=0.5),
        cell(SPLIT, "dgr+offline", "task", iters=3),
        cell(small_split(), "dgr", "task", iters=3),
        Cell.of(PERMUTED, GENERATIVE[0].scenario, GENERATIVE[0].method, running.Settings(iters=3, device="cpu")),
        cell(SPLIT, "none", "task", iters=3),
        cell(SPLIT, "er:budget=4", "task", iters=3),
    ],
    ids=["iters", "hidden", "batch", "lr", "pool", "data", "stream", "none", "er"],
)
def test_what_would_be_trained_otherwise_is_not_joined(other: Cell) -> None:
    cohorts = planned(runs([*GENERATIVE, other]))
    assert sorted(len(cohort.stacks) for cohort in cohorts) == [1, 6]


def test_other_seeds_are_not_joined() -> None:
    """Their generators would have nothing in common."""
    cohorts = planned(runs(GENERATIVE[:2]) + runs(GENERATIVE[2:4], (1, 2)) + runs(GENERATIVE[4:], (3, 2, 1)))
    assert sorted(len(cohort.runs) for cohort in cohorts) == [4, 6, 6]


def test_a_grid_that_trains_several_generators_for_a_seed_is_not_joined() -> None:
    several = [cell(SPLIT, f"dgr-distill:temperature={t}", iters=3) for t in (1, 2)]
    assert sorted(len(cohort.stacks) for cohort in planned(runs([*GENERATIVE[:2], *several]))) == [1, 2]
    budgets = [cell(SPLIT, f"dgr+er:budget={budget},use=execution", iters=3) for budget in (4, 8)]
    assert [len(cohort.stacks) for cohort in planned(runs([*GENERATIVE[:2], *budgets]))] == [3], (
        "those are trained as dgr"
    )


# how they are cut


def test_memory_leaves_stacks_whole_as_long_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = runs(GENERATIVE)
    most = max(GENERATIVE, key=lambda cell: cell.numbers)
    memory_for(monkeypatch, most, 18.5)
    assert [len(cohort.stacks) for cohort in plan(wanted)] == [6]
    memory_for(monkeypatch, most, 9.5)
    for cohort in (cohorts := plan(wanted)):
        assert all(len(stack) == 3 for stack in cohort.stacks)
        assert sum(len(stack) / capacity(stack[0].cell) for stack in cohort.stacks) < 1 + 1e-9
    assert sorted(len(cohort.stacks) for cohort in cohorts) == [3, 3]
    memory_for(monkeypatch, most, 0.1)
    assert [len(cohort.runs) for cohort in plan(wanted)] == [1] * 18


def test_halves_are_cut_between_stacks_first() -> None:
    (whole,) = planned(runs(GENERATIVE))
    first, second = whole.halves()
    assert [stack[0].cell for stack in first.stacks] == GENERATIVE[:3]
    assert [stack[0].cell for stack in second.stacks] == GENERATIVE[3:]
    assert [len(half.runs) for half in first.halves()] == [3, 6]
    assert [half.seeds for half in first.halves()[0].halves()] == [[1], [2, 3]]
    (grid,) = planned(runs(STORED))
    assert [len(stack) for stack in grid.stacks] == [6, 6]
    assert [{label(run)[-1] for run in half.runs} for half in grid.halves()] == [{"training"}, {"both"}]


def test_what_a_half_began_is_found() -> None:
    (whole,) = planned(runs(GENERATIVE))
    first, second = whole.halves()
    last = second.halves()[1].halves()[1]
    assert left_of(whole, set(), {whole.name}) == [whole]
    assert left_of(whole, set(), {second.name}) == [first, second]
    assert left_of(whole, set(), {last.name}) == [first, second.halves()[0], *second.halves()[1].halves()]
    done = {run.key for run in first.runs}
    assert left_of(whole, done, {second.name}) == [second]
    assert left_of(whole, done, {last.name}) == [second.halves()[0], *second.halves()[1].halves()]
    assert left_of(whole, {run.key for run in whole.runs[:3]}, set()) == [Cohort(whole.runs[3:])]


MIXED = [
    *GENERATIVE,
    *STORED,
    *(cell(SPLIT, f"er:budget=4,use=execution+ewc:strength={s}", iters=3) for s in (1, 2)),
    *(cell(SPLIT, method, iters=3) for method in ("none", "offline", "ewc:strength=1", "ewc:strength=2")),
    *(cell(SPLIT, "dgr", iters=3, lr=lr) for lr in (0.1, 0.2)),
    *(cell(SPLIT, "dgr+xdg:share=0.5", "task", where, iters=3) for where in ("hidden", "both")),
    cell(small_split(), "dgr", iters=3),
    cell(SPLIT, "dgr", iters=4),
]


def subset(whole: list[Run]) -> st.SearchStrategy[list[Run]]:
    return st.permutations(whole).flatmap(lambda order: st.integers(1, len(order)).map(lambda size: order[:size]))


@settings(max_examples=25, deadline=None)
@given(
    wanted=st.one_of(
        subset(runs(MIXED, (1, 2))),
        st.lists(st.sampled_from(MIXED), min_size=1, unique=True).map(lambda cells: runs(cells, (1, 2))),
    ),
    networks=st.floats(0.5, 60),
)
def test_every_run_is_in_one_cohort_whatever_the_mixture(wanted: list[Run], networks: float) -> None:
    largest = max((run.cell for run in wanted), key=lambda cell: cell.numbers)
    each = PLENTY / capacity(largest, lambda device: PLENTY)

    def memory(device: str) -> int:
        return int(each * networks)

    cohorts = plan(wanted, memory)
    assert Counter(run for cohort in cohorts for run in cohort.runs) == Counter(wanted)
    assert plan(wanted, memory) == cohorts
    for cohort in cohorts:
        assert {run.cell.stream for run in cohort.runs} == {cohort.cell.stream}
        assert {run.cell.training for run in cohort.runs} == {cohort.cell.training}
        assert tuple(run for stack in cohort.stacks for run in stack) == cohort.runs, "a stack is in one piece"
        assert len({run.cell.scenario for run in cohort.stacks[0]}) == 1
        size = sum(len(stack) / capacity(stack[0].cell, memory) for stack in cohort.stacks)
        assert len(cohort.stacks) == 1 or size < 1 + 1e-9
        pieces = list(cohort.pieces())
        assert Counter(piece.runs[0] for piece in pieces if len(piece.runs) == 1) == Counter(cohort.runs)
        assert all(set(piece.runs) <= set(cohort.runs) for piece in pieces)
        assert len({piece.name for piece in pieces}) == len(pieces) == 2 * len(cohort.runs) - 1
