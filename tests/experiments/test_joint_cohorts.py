"""Cells that have something in common are one cohort of several stacks: which, how they are cut, and what is stored."""

import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cohort_lab import (
    Heard,
    asked,
    cell,
    measured,
    memory_for,
    out_of_memory_above,
    running,
    small_mnist,
    small_split,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from threefold import Permuted, Store
from threefold.cli.progress import Bars
from threefold.engine import Progress
from threefold.engine.lockstep import Lockstep
from threefold.experiments import Cell, Result, Run, Stopped, run_cells
from threefold.experiments.claim import running as in_training
from threefold.experiments.cohort import Cohort, capacity, described, left_of, plan
from threefold.experiments.status import seconds

SPLIT = small_split()
SEEDS = (1, 2, 3)
SCENARIOS = ("task", "domain", "class")
PLENTY = 1 << 40  # bytes

GENERATIVE = [cell(SPLIT, method, scenario, iters=3) for method in ("dgr", "dgr-distill") for scenario in SCENARIOS]
STORED = [cell(SPLIT, f"er:budget={budget},use={use}", iters=3) for use in ("training", "both") for budget in (4, 8)]


def runs(cells: list[Cell], seeds: tuple[int, ...] = SEEDS) -> list[Run]:
    return [Run(cell, seed) for cell in cells for seed in seeds]


def planned(wanted: list[Run]) -> list[Cohort]:
    return plan(wanted, lambda device: PLENTY)


@cache
def alone(cell: Cell) -> Result:
    return run_cells([cell], SEEDS, None)[0]


def equal(results: list[Result], cells: list[Cell]) -> None:
    """Each cell has what it has when it is trained alone, bit for bit."""
    assert [result.cell for result in results] == cells
    for result, wanted in zip(results, cells, strict=True):
        assert measured(result) == measured(alone(wanted))


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """The stacks that are trained: how many replicas, and is there a generator to train?"""
    built: list[tuple[int, bool]] = []

    def watched(*given: Any) -> Lockstep:
        stack = Lockstep(*given)
        if stack.optimizer:
            built.append((len(stack.seeds), "generator" in stack.own))
        return stack

    monkeypatch.setattr(import_module("threefold.engine.company"), "Lockstep", watched)
    return built


# which cells are joined


def label(run: Run) -> tuple[str, ...]:
    """A run without its seed and numbers."""
    uses = tuple(part.use for part in run.cell.method.parts if hasattr(part, "use"))
    return run.cell.protocol.name, str(run.cell.task_id_in or run.cell.scenario.name), run.cell.method.name, *uses


def joined(name: str) -> Counter[frozenset[tuple[str, ...]]]:
    """The cohorts of one of the paper's experiments that have several stacks, by what is in them."""
    found = asked(name)
    wanted = [Run(cell, seed) for cell in found.cells for seed in found.seeds]
    cohorts = planned(wanted)
    assert sorted(run.key for cohort in cohorts for run in cohort.runs) == sorted(run.key for run in wanted)
    assert all(len(crew) % len(found.seeds) == 0 for cohort in cohorts for crew in cohort.crews)
    return Counter(frozenset(map(label, cohort.runs)) for cohort in cohorts if len(cohort.crews) > 1)


def one_generator(protocol: str, *where: str) -> frozenset[tuple[str, ...]]:
    return frozenset((protocol, place, method) for place in where for method in ("dgr", "dgr-distill"))


MASKED = ("none", "offline", "ewc", "online-ewc", "si", "lwf")  # their scenarios differ in masks at most


def one_stack(protocol: str, *method: str) -> frozenset[tuple[str, ...]]:
    return frozenset((protocol, place, *method) for place in ("output", "class"))


@pytest.mark.parametrize(("name", "protocol"), [("table4", "split"), ("table5", "permuted")])
def test_the_generative_cells_of_a_table_are_one_cohort(
    name: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist(monkeypatch)
    wanted = [one_generator(protocol, "output", "domain", "class")]
    wanted += [one_stack(protocol, method) for method in MASKED]
    assert joined(name) == Counter(wanted)


@pytest.mark.parametrize("name", ["table4", "table5"])
def test_large_networks_in_several_scenarios_are_not_one_stack(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)
    monkeypatch.setattr(import_module("threefold.experiments.cohort"), "SMALL", 1000)
    assert len(joined(name)) == 1  # DGR's cells have one generator all the same


def test_gated_or_not_in_table_b1(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)
    gated = {("permuted", "hidden", f"{method}+xdg") for method in ("dgr", "dgr-distill")}
    assert joined("tableB1") == Counter([one_generator("permuted", "output") | gated])


def test_stored_data_of_figure_c1_by_what_they_are_trained_as(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)
    wanted = [one_generator(protocol, "output", "domain", "class") for protocol in ("split", "permuted")]
    for protocol in ("split", "permuted"):
        for place in ("output", "domain", "class"):
            wanted.append(frozenset((protocol, place, "er", use) for use in ("training", "both")))
        wanted.append(frozenset([(protocol, "domain", "none"), (protocol, "domain", "er", "execution")]))
        wanted.append(one_stack(protocol, "none") | one_stack(protocol, "er", "execution"))
        wanted += [one_stack(protocol, method) for method in MASKED[1:]]
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
    ids=["iters", "hidden", "batch", "lr", "pool", "data", "protocol", "none", "er"],
)
def test_what_would_be_trained_otherwise_is_not_joined(other: Cell) -> None:
    cohorts = planned(runs([*GENERATIVE, other]))
    assert sorted(len(cohort.crews) for cohort in cohorts) == [1, 6]


def test_other_seeds_are_not_joined() -> None:
    """Their generators would have nothing in common."""
    cohorts = planned(runs(GENERATIVE[:2]) + runs(GENERATIVE[2:4], (1, 2)) + runs(GENERATIVE[4:], (3, 2, 1)))
    assert sorted(len(cohort.runs) for cohort in cohorts) == [4, 6, 6]


def test_a_grid_that_trains_several_generators_for_a_seed_is_not_joined() -> None:
    several = [cell(SPLIT, f"dgr-distill:temperature={t}", iters=3) for t in (1, 2)]
    assert sorted(len(cohort.crews) for cohort in planned(runs([*GENERATIVE[:2], *several]))) == [1, 2]
    budgets = [cell(SPLIT, f"dgr+er:budget={budget},use=execution", iters=3) for budget in (4, 8)]
    assert [len(cohort.crews) for cohort in planned(runs([*GENERATIVE[:2], *budgets]))] == [3], (
        "those are trained as dgr"
    )


# how they are cut


def test_memory_leaves_stacks_whole_as_long_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = runs(GENERATIVE)
    most = max(GENERATIVE, key=lambda cell: cell.numbers)
    memory_for(monkeypatch, most, 18.5)
    assert [len(cohort.crews) for cohort in plan(wanted)] == [6]
    memory_for(monkeypatch, most, 9.5)
    for cohort in (cohorts := plan(wanted)):
        assert all(len(crew) == 3 for crew in cohort.crews)
        assert sum(len(crew) / capacity(crew[0].cell) for crew in cohort.crews) < 1 + 1e-9
    assert sorted(len(cohort.crews) for cohort in cohorts) == [3, 3]
    memory_for(monkeypatch, most, 0.1)
    assert [len(cohort.runs) for cohort in plan(wanted)] == [1] * 18


def test_halves_are_cut_between_stacks_first() -> None:
    (whole,) = planned(runs(GENERATIVE))
    first, second = whole.halves()
    assert [crew[0].cell for crew in first.crews] == GENERATIVE[:3]
    assert [crew[0].cell for crew in second.crews] == GENERATIVE[3:]
    assert [len(half.runs) for half in first.halves()] == [3, 6]
    assert [half.seeds for half in first.halves()[0].halves()] == [[1], [2, 3]]
    (grid,) = planned(runs(STORED))
    assert [len(crew) for crew in grid.crews] == [6, 6]
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
        assert {run.cell.protocol for run in cohort.runs} == {cohort.cell.protocol}
        assert {run.cell.training for run in cohort.runs} == {cohort.cell.training}
        assert tuple(run for crew in cohort.crews for run in crew) == cohort.runs, "a stack is in one piece"
        assert len({run.cell.scenario for run in cohort.crews[0]}) == 1
        size = sum(len(crew) / capacity(crew[0].cell, memory) for crew in cohort.crews)
        assert len(cohort.crews) == 1 or size < 1 + 1e-9
        pieces = list(cohort.pieces())
        assert Counter(piece.runs[0] for piece in pieces if len(piece.runs) == 1) == Counter(cohort.runs)
        assert all(set(piece.runs) <= set(cohort.runs) for piece in pieces)
        assert len({piece.name for piece in pieces}) == len(pieces) == 2 * len(cohort.runs) - 1


# what is stored


@pytest.mark.parametrize(
    ("cells", "trained"),
    [
        (GENERATIVE, [(3, True), *[(3, False)] * 5]),
        (STORED, [(6, False), (3, False)]),  # the first task of all budgets
        ([cell(SPLIT, "none", iters=3), cell(SPLIT, "er:budget=4,use=execution", iters=3)], [(3, False)]),
    ],
    ids=["generative", "stored", "execution"],
)
def test_every_cell_has_its_own_rows(
    cells: list[Cell], trained: list[tuple[int, bool]], tmp_path: Path, stacks: list[tuple[int, bool]]
) -> None:
    heard = Heard()
    results = run_cells(cells, SEEDS, tmp_path / "a.db", heard)
    assert stacks == trained
    assert heard.cohorts == [len(cells) * len(SEEDS)]
    equal(results, cells)
    for wanted in cells:
        assert {record["spec"]["method"]["name"] for record in measured(alone(wanted))} == {wanted.method.name}
    with Store(tmp_path / "a.db", readonly=True) as store:
        rows = list(store.all())
    assert {row.key: row.spec for row in rows} == {run.key: run.cell.run_spec(run.seed) for run in runs(cells)}
    assert {row.environment["cohort"] for row in rows} == {len(rows)}
    (timings,) = {tuple(row.timings.items()) for row in rows}
    assert sum(map(seconds, rows)) == pytest.approx(sum(took for _, took in timings)), "shares of the cohort's time"
    assert len({str(row.matrix) for row in rows}) > 2, "not all the same, or a mix-up could not be seen"


def test_what_is_done_is_left_out_and_the_rest_still_shares(tmp_path: Path, stacks: list[tuple[int, bool]]) -> None:
    run_cells(GENERATIVE[:1], SEEDS, tmp_path / "a.db")
    run_cells(GENERATIVE[3:4], SEEDS[:1], tmp_path / "a.db")
    stacks.clear()
    heard = Heard()
    results = run_cells(GENERATIVE, SEEDS, tmp_path / "a.db", heard)
    assert heard.cohorts == [14]
    assert sorted(stacks) == [(2, True), (3, False), (3, False), (3, False), (3, True)]
    equal(results[:3] + results[4:], GENERATIVE[:3] + GENERATIVE[4:])


@pytest.mark.parametrize("most", [9, 6, 3])
def test_out_of_memory_halves_between_stacks_and_changes_nothing(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    out_of_memory_above(monkeypatch, most)
    equal(run_cells(GENERATIVE, SEEDS, tmp_path / "a.db", heard), GENERATIVE)
    assert heard.warnings[0] == (
        "split-small Task-IL dgr and 5 more ×18 does not fit into memory; it is trained in two halves."
    )
    assert min(heard.cohorts) == {9: 9, 6: 3, 3: 3}[most]
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


class Steps(Heard):
    """Remembers at which step which cohort was."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def progress(self, progress: Progress, cohort: Cohort) -> None:
        self.steps.append(progress.step)


@pytest.mark.parametrize("cells", [GENERATIVE, STORED], ids=["generative", "stored"])
def test_stopped_half_way_the_same_command_goes_on(cells: list[Cell], tmp_path: Path) -> None:
    stopped, again = Steps(), Steps()
    with pytest.raises(Stopped):
        run_cells(cells, SEEDS, tmp_path / "a.db", stopped, lambda: stopped.steps[-1:] == [6])
    assert stopped.steps == [3, 6], "in the second of two tasks"
    with Store(tmp_path / "a.db", readonly=True) as store:
        assert list(store.all()) == []
    (checkpoint,) = Path(f"{tmp_path}/a.db.checkpoints").iterdir()
    (whole,) = planned(runs(cells))
    assert checkpoint.name == f"{whole.name}.pt"
    equal(run_cells(cells, SEEDS, tmp_path / "a.db", again), cells)
    assert again.steps == [6]
    assert not checkpoint.parent.exists()


def test_a_half_that_was_stopped_goes_on_where_memory_is_plenty_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, again = Steps(), Steps()
    with monkeypatch.context() as patch:
        out_of_memory_above(patch, 9)
        with pytest.raises(Stopped):
            run_cells(GENERATIVE, SEEDS, tmp_path / "a.db", stopped, lambda: stopped.steps[-1:] == [6])
    assert stopped.cohorts == [18, 9]
    equal(run_cells(GENERATIVE, SEEDS, tmp_path / "a.db", again), GENERATIVE)
    assert again.cohorts == [9, 9]
    assert again.steps == [6, 3, 6]


def test_two_at_once_on_one_store_train_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stacks: list[tuple[int, bool]]
) -> None:
    for wanted in (*GENERATIVE, *STORED):
        alone(wanted)
    stacks.clear()
    Store(tmp_path / "a.db").close()
    monkeypatch.setattr(import_module("threefold.experiments.campaign"), "WAIT", 0.01)
    begun, execute = threading.Barrier(2), running.execute

    def both_have_one(*given: Any) -> Any:
        begun.wait(30)
        return execute(*given)

    monkeypatch.setattr(running, "execute", both_have_one)
    cells = [*GENERATIVE, *STORED]
    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(run_cells, cells, SEEDS, tmp_path / "a.db") for _ in range(2)]
        for each in results:
            equal(each.result(60), cells)
    assert sorted(stacks) == [*[(3, False)] * 6, (3, True), (6, False)]


# what is shown


def test_a_joint_cohort_is_named_by_its_first_cell(tmp_path: Path) -> None:
    (whole,) = planned(runs(GENERATIVE))
    assert described(whole) == "split-small Task-IL dgr and 5 more ×18"
    assert described(Cohort(whole.runs[:3])) == "split-small Task-IL dgr ×3"
    assert described(planned(runs(STORED))[0]) == "split-small Class-IL er:budget=4,use=training and 1 more ×12"
    bars = Bars(6)
    bars.cohort(whole)
    bars.progress(Progress(step=3, steps=6, task=1, tasks=2, accuracy=None), whole)
    line = bars.bars.tasks[1]
    assert line.description == "Task-IL dgr and 5 more ×18"
    assert re.fullmatch(r"task 2/2( · \d+ steps/s)?", line.fields["note"]), "no average of six cells"
    words: list[dict[str, Any]] = []

    class Listening(Steps):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            words.extend(in_training(Path(f"{tmp_path}/a.db.checkpoints")))

    run_cells(GENERATIVE[:2], (1,), tmp_path / "a.db", Listening())
    assert {word["cohort"] for word in words if word} == {"split-small Task-IL dgr and 1 more ×2"}
