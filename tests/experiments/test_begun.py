"""What was begun goes on as it was cut, and no run is trained twice, whatever memory each process sees."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cohort_lab import Heard, cell, measured, running, small_split
from joint_lab import GENERATIVE

from threefold import Store
from threefold.engine import Checkpoint, Progress
from threefold.experiments import Cell, Result, Run, Stopped, Watcher, run_cells
from threefold.experiments.begun import Begun
from threefold.experiments.campaign import Campaign
from threefold.experiments.claim import Claim
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


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def folder(store: Path) -> Path:
    return Path(f"{store}.checkpoints")


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    return train(None, room=4)


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
    heard = Tasks()
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
    heard = Tasks()
    train(store, 1, watcher=heard)
    assert heard.tasks == {(seed,): {0, 1, 2, 3} for seed in range(1, 9)}
    assert not folder.exists()


def test_a_checkpoint_is_used_though_another_process_stored_a_run_of_it(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_begun(store, monkeypatch)
    begin = Campaign._begin

    def begin_late(self: Campaign, cohort: Cohort) -> Cohort | None:
        monkeypatch.setattr(Campaign, "_begin", begin)
        train(store, 1, seeds=(3,))  # planned, but not begun yet
        return begin(self, cohort)

    monkeypatch.setattr(Campaign, "_begin", begin_late)
    heard = Tasks()
    train(store, 4, watcher=heard)
    assert heard.tasks[1, 2, 3, 4] == {2, 3}
    assert not folder.exists()


def test_what_is_stored_and_what_was_begun_leave_the_rest_to_be_planned(
    store: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    kill_after(3 + 1, monkeypatch, [CELL], (*SEEDS, 9, 10, 11, 12), store, place=Room(4))
    heard = Tasks()
    again = train(store, 5, (*SEEDS, 9, 10, 11, 12), heard)
    assert heard.tasks == {(5, 6, 7, 8): {1, 2, 3}, (9, 10, 11, 12): {0, 1, 2, 3}}
    assert measured(again)[:8] == measured(undisturbed)


def test_several_stacks_go_on_as_they_were_cut(store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    little = Room(7, max(GENERATIVE, key=lambda cell: cell.numbers))
    undisturbed = run_cells(GENERATIVE, (1, 2, 3), None)
    kill_after(1, monkeypatch, GENERATIVE, (1, 2, 3), store, place=little)
    (begun,), heard = folder.glob("*.pt"), Heard()
    names: list[str] = []
    heard.progress = lambda progress, cohort: names.append(f"{cohort.name} {progress.task}")  # type: ignore[method-assign]
    results = run_cells(GENERATIVE, (1, 2, 3), store, heard)
    assert f"{begun.stem} 1" in names
    assert f"{begun.stem} 0" not in names
    assert [measured(each) for each in results] == [measured(each) for each in undisturbed]
    assert not folder.exists()


def test_what_no_longer_fits_is_halved(store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_begun(store, monkeypatch)
    execute, heard = running.execute, Tasks()

    def small_only(wanted: Cohort, *rest: Any) -> Any:
        if len(wanted.runs) > 2:
            raise MemoryError
        return execute(wanted, *rest)

    monkeypatch.setattr(running, "execute", small_only)
    train(store, 2, watcher=heard)
    assert set(heard.tasks) == {(1, 2), (3, 4), (5, 6), (7, 8)}
    assert not folder.exists()


def test_a_cohort_with_a_run_that_nobody_wants_now_is_not_gone_on_with(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_begun(store, monkeypatch)
    heard = Tasks()
    train(store, 4, (1, 2), heard)
    assert heard.tasks == {(1, 2): {0, 1, 2, 3}}
    assert len(list(folder.glob("*.pt"))) == 1, "the other runs are not stored yet"
    train(store, 3, (3, 4))
    assert not folder.exists(), "now they are"


def test_the_same_runs_in_two_protocols_are_not_one_cohort(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are stacked where they have their tasks in common, so the checkpoint would not fit."""
    kill_begun(store, monkeypatch, (1, 2))
    twin = cell(small_split(tasks=4), "ewc:strength=100", iters=3)
    begun = Begun(store)
    assert len(begun.cohorts({run.key: run for run in (Run(CELL, 1), Run(CELL, 2))})) == 1
    assert begun.cohorts({run.key: run for run in (Run(CELL, 1), Run(twin, 2))}) == []


# several processes at a time


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that went into training; processes look for each other's results often."""
    monkeypatch.setattr(import_module("threefold.experiments.campaign"), "WAIT", 0.01)
    execute, seeds = running.execute, list[int]()

    def noted(wanted: Cohort, *rest: Any) -> Any:
        seeds.extend(wanted.seeds)
        return execute(wanted, *rest)

    monkeypatch.setattr(running, "execute", noted)
    return seeds


def at_once(*commands: Callable[[], Result]) -> list[Result | BaseException]:
    def ended(command: Callable[[], Result]) -> Result | BaseException:
        try:
            return command()
        except Killed as killed:
            return killed

    with ThreadPoolExecutor(len(commands)) as pool:
        return [each.result(60) for each in [pool.submit(ended, command) for command in commands]]


class First(Tasks):
    """Goes on with its first cohort only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def progress(self, progress: Progress, cohort: Cohort) -> None:
        super().progress(progress, cohort)
        self.begun.set()
        assert self.go.wait(30)


@pytest.mark.parametrize("rooms", [(4, 5), (3, 8), (1, 3)])
def test_two_that_see_different_memory_train_no_run_twice(
    store: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Result,
    trained: list[int],
    rooms: tuple[float, float],
) -> None:
    planned, go_on = threading.Barrier(2), Campaign._train

    def both_have_a_plan(campaign: Campaign) -> None:
        planned.wait(30)
        go_on(campaign)

    monkeypatch.setattr(Campaign, "_train", both_have_a_plan)
    Store(store).close()
    results = at_once(*(lambda room=room: train(store, room) for room in rooms))
    assert Counter(trained) == Counter(SEEDS)
    assert measured(results[0]) == measured(results[1])
    assert [row["key"] for row in measured(results[0])] == [row["key"] for row in measured(undisturbed)]
    assert not folder.exists()


def test_who_wants_some_runs_of_another_trains_the_rest_and_waits(
    store: Path, folder: Path, trained: list[int]
) -> None:
    one, other = First(), Tasks()

    def partner() -> Result:
        assert one.begun.wait(30)
        return train(store, 100, (3, 4, 5, 6), other)

    other.ended = lambda cohort: one.go.set()  # type: ignore[method-assign]
    at_once(lambda: train(store, 100, (1, 2, 3, 4), one), partner)
    assert (set(one.tasks), set(other.tasks)) == ({(1, 2, 3, 4)}, {(5, 6)})
    assert sorted(trained) == [1, 2, 3, 4, 5, 6]
    assert not folder.exists()


def test_a_partner_that_dies_is_gone_on_for_as_it_had_cut(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, trained: list[int]
) -> None:
    """It began after we had planned, what we had cut into [1, 2, 3], [4, 5, 6] and [7, 8]."""
    planned, dead, go_on = threading.Event(), threading.Event(), Campaign._train

    class Dies(First):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            super().progress(progress, cohort)
            if progress.task == 1:
                raise Killed

    class Sees(Tasks):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            super().progress(progress, cohort)
            one.go.set()
            assert dead.wait(30)

    one, other = Dies(), Sees()

    def partner() -> Result:
        try:
            return train(store, 5, watcher=one)
        finally:
            dead.set()

    def in_turn(campaign: Campaign) -> None:
        if campaign.watcher is other:
            planned.set()
            assert one.begun.wait(30)
        else:
            assert planned.wait(30)
        go_on(campaign)

    monkeypatch.setattr(Campaign, "_train", in_turn)
    Store(store).close()
    (killed, _) = at_once(partner, lambda: train(store, 3, watcher=other))
    assert isinstance(killed, Killed)
    everything = {0, 1, 2, 3}
    assert other.tasks == {(1, 2, 3): everything, (4, 5): everything, (6, 7, 8): {1, 2, 3}}
    assert not folder.exists()


# what lies beside the store


def test_what_a_live_process_has_stays(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, trained: list[int]
) -> None:
    kill_begun(store, monkeypatch)
    (begun,) = folder.glob("*.pt")
    files = {begun.name, f"{begun.stem}.runs"}
    assert {path.name for path in folder.iterdir()} == files
    train(store, 4, (1, 2))
    with Claim(begun.with_suffix(".lock")) as claim:
        assert claim.take()
        begun.with_suffix(".runs").rename(store.parent / "aside")  # its process is one that writes no list
        train(store, 4, (3, 4))
        (store.parent / "aside").rename(begun.with_suffix(".runs"))
        train(store, 4, (1, 2, 3, 4))
        assert {path.name for path in folder.iterdir()} == {*files, f"{begun.stem}.lock"}
    train(store, 4, (1,))
    assert not folder.exists()


def test_a_checkpoint_without_a_list_goes_on_as_before(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    kill_begun(store, monkeypatch)
    (written,), heard = folder.glob("*.runs"), Tasks()
    written.unlink()
    assert measured(train(store, 4, watcher=heard)) == measured(undisturbed)
    assert heard.tasks[1, 2, 3, 4] == {2, 3}
    assert not folder.exists()


@pytest.mark.parametrize(
    "content", [b"", b'["abc', b"\xff\xfe\x00", b"{}", b"[1, 2]", b'["a", "b"]', b"[" * 10**6, b"null"]
)
def test_a_damaged_list_is_as_none(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Result, content: bytes
) -> None:
    kill_begun(store, monkeypatch)
    (written,), heard = folder.glob("*.runs"), Tasks()
    written.write_bytes(content)
    (folder / "mine.runs").write_bytes(content)
    (folder / "ours.runs").mkdir()
    assert measured(train(store, 4, watcher=heard)) == measured(undisturbed)
    assert heard.tasks[1, 2, 3, 4] == {2, 3}
    assert sorted(path.name for path in folder.iterdir()) == ["mine.runs", "ours.runs"], "what is not ours stays"


def test_killed_where_it_claims_it_leaves_nothing_for_good(store: Path, folder: Path, undisturbed: Result) -> None:
    train(store, 4, SEEDS[:4])
    folder.mkdir()
    (folder / "claiming").touch()
    train(store, 4, SEEDS[:4])
    assert not folder.exists()
    folder.mkdir()
    (folder / "claiming").touch()
    assert measured(train(store, 4)) == measured(undisturbed)
    assert not folder.exists()


def test_stopped_before_its_first_task_is_finished_it_leaves_nothing(store: Path, folder: Path) -> None:
    class Dies(Watcher):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            raise Killed

    with pytest.raises(Killed):
        train(store, 4, watcher=Dies())
    assert not folder.exists()


def test_who_waits_at_the_door_may_be_stopped(store: Path, folder: Path) -> None:
    """Another process may be stopped, by Ctrl-Z or with its file system, while it claims."""
    folder.mkdir()
    end = time.monotonic() + 0.5
    with Claim(folder / "claiming") as door:
        assert door.take()
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(run_cells, [CELL], (1,), store, stop=lambda: time.monotonic() > end)
            with pytest.raises(Stopped):
                waits.result(20)
    assert train(store, 4, seeds=(1,)).seeds == [1]
