"""How runs are grouped: alike ones in stacks, stacks that share something in cohorts, as many as fit into memory."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cells import (
    PLENTY,
    cell,
    cells_of,
    memory_for,
    paper_request,
    planned,
    runs,
    seeds_of,
    small_mnist,
    small_split,
)

from threefold import Permuted
from threefold.engine import Progress
from threefold.experiments import Cell, Run, Settings
from threefold.experiments.cohort import Cohort, capacity, cut, described, plan, plan_around
from threefold.experiments.progress import Bars

SPLIT = small_split()
SCENARIOS = ("task", "domain", "class")
GENERATIVE = [cell(SPLIT, method, scenario, iters=3) for method in ("dgr", "dgr-distill") for scenario in SCENARIOS]
STORED = [cell(SPLIT, f"er:budget={budget},use={use}", iters=3) for use in ("training", "both") for budget in (4, 8)]
STRENGTHS = [cell(SPLIT, f"ewc:strength={strength}") for strength in (1, 100)]


# stacks


def test_learning_rates_share_a_stack_and_settings_of_shape_do_not() -> None:
    cells = [cell(SPLIT, "none", lr=lr) for lr in (0.1, 0.01)]
    assert [len(cohort.stacks) for cohort in plan(runs(cells))] == [1]
    for change in ({"hidden": 9}, {"batch": 15}, {"iters": 5}):
        assert len(plan([Run(cells[0], 1), Run(cell(SPLIT, "none", **change), 1)])) == 2


def test_memory_cuts_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = runs(STRENGTHS)
    memory_for(monkeypatch, STRENGTHS[0], 4.5)
    assert sorted(len(cohort.runs) for cohort in plan(wanted)) == [2, 4]
    memory_for(monkeypatch, STRENGTHS[0], 0.1)
    assert [len(cohort.runs) for cohort in plan(wanted)] == [1] * 6, "one at least"
    memory_for(monkeypatch, STRENGTHS[0], 1000)
    (whole,) = plan(wanted)
    assert whole.runs == tuple(wanted)


def test_larger_nets_and_batches_leave_room_for_fewer() -> None:
    small = capacity(cell(SPLIT, "none"))
    assert capacity(cell(SPLIT, "none", hidden=400)) < small
    assert capacity(cell(SPLIT, "none", batch=80)) < small
    assert capacity(cell(SPLIT, "dgr")) < small, "a generator takes its share"


def test_cheap_cohorts_come_first() -> None:
    cells = [
        cell(SPLIT, "dgr"),
        cell(SPLIT, "none", hidden=100),
        cell(SPLIT, "none", iters=100),
        cell(SPLIT, "none"),
        STRENGTHS[0],
    ]
    order = [(c.cell.method.name, c.cell.hidden, c.cell.training.iters) for c in plan(Run(c, 1) for c in cells)]
    assert order[:2] == [("none", 8, 6), ("ewc", 8, 6)]
    assert order.index(("dgr", 8, 6)) > 1
    assert order.index(("none", 100, 6)) > 1
    assert [len(cohort.runs) for cohort in plan([*runs([cells[3]]), Run(cells[4], 1)])] == [1, 3]


def test_a_cohort_is_known_by_its_runs() -> None:
    (one,), (again,), (other,) = plan(runs(STRENGTHS)), plan(runs(STRENGTHS)), plan(runs(STRENGTHS, (1, 2)))
    assert one.name == again.name != other.name


# cohorts of several stacks; that they are trained as each alone: tests/engine/test_sharing.py


def label(run: Run) -> tuple[str, ...]:
    """A run without its seed and numbers."""
    uses = tuple(part.use for part in run.cell.method.parts if hasattr(part, "use"))
    return run.cell.stream.name, str(run.cell.task_id_in or run.cell.scenario.name), run.cell.method.name, *uses


def one_generator(stream: str, *where: str) -> frozenset[tuple[str, ...]]:
    return frozenset((stream, place, method) for place in where for method in ("dgr", "dgr-distill"))


EVERYWHERE = ("output", "domain", "class")
GATED = {("permuted", "hidden", f"{method}+xdg") for method in ("dgr", "dgr-distill")}
JOINED = {
    "table4": [one_generator("split", *EVERYWHERE)],
    "table5": [one_generator("permuted", *EVERYWHERE)],
    "tableB1": [one_generator("permuted", "output") | GATED],
    "figureC1": [
        *(one_generator(stream, *EVERYWHERE) for stream in ("split", "permuted")),
        *(
            joined
            for stream in ("split", "permuted")
            for place in EVERYWHERE
            for joined in (
                frozenset((stream, place, "er", use) for use in ("training", "both")),
                frozenset([(stream, place, "none"), (stream, place, "er", "execution")]),
            )
        ),
    ],
}


@pytest.mark.parametrize("name", JOINED)
def test_which_cells_of_the_paper_are_one_cohort(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)
    found = paper_request(name)
    wanted = runs(cells_of(found), seeds_of(found)[0])
    cohorts = planned(wanted)
    assert sorted(run.key for cohort in cohorts for run in cohort.runs) == sorted(run.key for run in wanted)
    several = [cohort for cohort in cohorts if len(cohort.stacks) > 1]
    assert Counter(frozenset(map(label, cohort.runs)) for cohort in several) == Counter(JOINED[name])


OTHERWISE = {
    "iters": cell(SPLIT, "dgr", "task", iters=4),
    "hidden": cell(SPLIT, "dgr", "task", iters=3, hidden=9),
    "batch": cell(SPLIT, "dgr", "task", iters=3, batch=15),
    "lr": cell(SPLIT, "dgr", "task", iters=3, lr=0.5),
    "data": cell(small_split(), "dgr", "task", iters=3),
    "stream": Cell.of(
        Permuted(SPLIT.data, 2), GENERATIVE[0].scenario, GENERATIVE[0].method, Settings(iters=3, device="cpu")
    ),
    "method": cell(SPLIT, "none", "task", iters=3),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_would_be_trained_otherwise_is_not_joined(case: str) -> None:
    cohorts = planned([*runs(GENERATIVE[1:]), *runs([OTHERWISE[case]])])
    assert sorted(len(cohort.stacks) for cohort in cohorts) == [1, 5]


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


def test_a_cohort_is_named_by_its_first_cell() -> None:
    (whole,) = planned(runs(GENERATIVE))
    assert described(whole) == "split-small Task-IL dgr and 5 more ×18"
    assert described(Cohort(whole.runs[:3])) == "split-small Task-IL dgr ×3"
    bars = Bars(6)
    bars.cohort(whole)
    bars.progress(Progress(step=3, steps=6, task=1, tasks=2, accuracy=None), whole)
    assert bars.bars.tasks[1].description == "Task-IL dgr and 5 more ×18"


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
        assert all(len({run.cell.scenario for run in stack}) == 1 for stack in cohort.stacks)
        size = sum(len(stack) / capacity(stack[0].cell, memory) for stack in cohort.stacks)
        assert len(cohort.stacks) == 1 or size < 1 + 1e-9
        if len(cohort.runs) > 1:
            assert tuple(run for half in cohort.halves() for run in half.runs) == cohort.runs


# cut further where accelerators would stand idle


def one_cell(seeds: int, iters: int = 10) -> Cohort:
    return Cohort(tuple(runs([cell(SPLIT, "none", iters=iters)], range(1, seeds + 1))))


def seeds(cohorts: list[Cohort]) -> list[list[int]]:
    return [each.seeds for each in cohorts]


def test_enough_cohorts_stay_as_they_are() -> None:
    some = [one_cell(4), one_cell(2, iters=99)]
    assert cut(some, 2) == some
    assert cut(some, 0) == some


def test_the_largest_is_halved_first_and_comes_first() -> None:
    large, small = one_cell(8), one_cell(4, iters=11)
    assert seeds(cut([small, large], 3)) == [[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8]]
    weights = [each.weight for each in cut([small, large], 5)]
    assert weights == sorted(weights, reverse=True)
    assert len(weights) == 5


def test_a_run_is_not_cut_nor_a_cohort_that_was_begun() -> None:
    assert seeds(cut([one_cell(3)], 100)) == [[1], [2], [3]]
    begun = one_cell(4)
    assert seeds(cut([begun, one_cell(2, iters=99)], 4, {begun.name})) == [[1], [2], [1, 2, 3, 4]]


# what was begun stays as it was cut


def test_what_was_begun_stays_together_and_the_rest_is_planned() -> None:
    whole = one_cell(8)

    def of(*wanted: int) -> Cohort:
        return Cohort(tuple(whole.runs[seed - 1] for seed in wanted))

    def cut_as(*begun: Cohort, done: tuple[int, ...] = ()) -> list[list[int]]:
        return seeds(plan_around(whole.runs, begun, {run.key for run in of(*done).runs}, lambda device: PLENTY))

    assert cut_as() == cut_as(whole) == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert cut_as(of(7, 2)) == [[7, 2], [1, 3, 4, 5, 6, 8]], "in the order it had"
    assert cut_as(of(4, 5, 6), of(6, 7), of(7, 8)) == [[7, 8], [4, 5, 6], [1, 2, 3]], "the first goes on"
    assert cut_as(of(1, 2, 3), done=(3, 8)) == [[1, 2, 3], [4, 5, 6, 7]], "though one of its runs is done"
    assert cut_as(of(1, 2), done=(1, 2)) == [[3, 4, 5, 6, 7, 8]], "unless all are"


def test_what_was_begun_of_other_runs_too_is_not_gone_on_with() -> None:
    whole = one_cell(4)
    assert seeds(plan_around(whole.runs[:3], [whole], set(), lambda device: PLENTY)) == [[1, 2, 3]]
    assert seeds(plan_around(whole.runs[:3], [whole], {whole.keys[3]}, lambda device: PLENTY)) == [[1, 2, 3, 4]]
