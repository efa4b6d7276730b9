"""Cohorts of several stacks: what is trained, stored and shown."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cohort_lab import (
    Heard,
    cell,
    measured,
    out_of_memory_above,
    running,
)
from joint_lab import GENERATIVE, SEEDS, SPLIT, STORED, planned, runs

from threefold import Store
from threefold.cli.progress import Bars
from threefold.engine import Progress
from threefold.engine.stack import ReplicaStack
from threefold.experiments import Cell, Result, Stopped, run_cells
from threefold.experiments.cohort import Cohort, described
from threefold.experiments.lock import Note, progress_notes
from threefold.experiments.status import seconds


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

    def watched(*given: Any) -> ReplicaStack:
        stack = ReplicaStack(*given)
        if stack.optimizer:
            built.append((len(stack.seeds), "generator" in stack.own))
        return stack

    monkeypatch.setattr(import_module("threefold.engine.sharing"), "ReplicaStack", watched)
    return built


# what is stored


@pytest.mark.parametrize(
    ("cells", "trained"),
    [
        (GENERATIVE, [(3, True), *[(3, False)] * 5]),
        (STORED, [(6, False)]),
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
    (checkpoint,) = Path(f"{tmp_path}/a.db.checkpoints").glob("*.pt")
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
    monkeypatch.setattr(import_module("threefold.experiments.scheduler"), "WAIT", 0.01)
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
    assert sorted(stacks) == [*[(3, False)] * 5, (3, True), (6, False)]


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
    notes: list[Note] = []

    class Listening(Steps):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            notes.extend(progress_notes(Path(f"{tmp_path}/a.db.checkpoints")))

    run_cells(GENERATIVE[:2], (1,), tmp_path / "a.db", Listening())
    assert {note.title for note in notes} == {"split-small Task-IL dgr and 1 more ×2"}
