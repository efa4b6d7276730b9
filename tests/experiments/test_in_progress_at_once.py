"""Several processes at once: no run is trained twice, and no files are left beside the store."""

import os
import platform
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
from small_cells import (
    CELL,
    SEEDS,
    Heard,
    Killed,
    before_training,
    kill_begun,
    measured,
    train,
    train_cells,
    when_planned,
)

from threefold import Store
from threefold.engine import Progress
from threefold.experiments import Result, Run, Stopped, Watcher
from threefold.experiments.cohort import Cohort
from threefold.experiments.in_progress import InProgress
from threefold.experiments.lock import Lock
from threefold.experiments.scheduler import Scheduler
from threefold.results import cohort_table
from threefold.results.cohort_table import cohort_rows

# several processes at a time


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that went into training; processes look for each other's results often."""
    monkeypatch.setattr(import_module("threefold.experiments.scheduler"), "WAIT", 0.01)
    seeds: list[int] = []
    before_training(monkeypatch, seeds.extend)
    return seeds


def at_once(*commands: Callable[[], Result]) -> list[Result | BaseException]:
    def ended(command: Callable[[], Result]) -> Result | BaseException:
        try:
            return command()
        except Killed as killed:
            return killed

    with ThreadPoolExecutor(len(commands)) as pool:
        return [each.result(60) for each in [pool.submit(ended, command) for command in commands]]


class First(Heard):
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
    both = threading.Barrier(2)
    when_planned(monkeypatch, lambda scheduler: both.wait(30) and None)
    Store(store).close()
    results = at_once(*(lambda room=room: train(store, room) for room in rooms))
    assert Counter(trained) == Counter(SEEDS)
    assert measured(results[0]) == measured(results[1])
    assert [row["key"] for row in measured(results[0])] == [row["key"] for row in measured(undisturbed)]
    assert not folder.exists()


def test_who_wants_some_runs_of_another_trains_the_rest_and_waits(
    store: Path, folder: Path, trained: list[int]
) -> None:
    one, other = First(), Heard()

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
    planned, dead = threading.Event(), threading.Event()

    class Dies(First):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            super().progress(progress, cohort)
            if progress.task == 1:
                raise Killed

    class Sees(Heard):
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

    def in_turn(scheduler: Scheduler) -> None:
        if scheduler.watcher is other:
            planned.set()
            assert one.begun.wait(30)
        else:
            assert planned.wait(30)

    when_planned(monkeypatch, in_turn)
    Store(store).close()
    (killed, _) = at_once(partner, lambda: train(store, 3, watcher=other))
    assert isinstance(killed, Killed)
    everything = {0, 1, 2, 3}
    assert other.tasks == {(1, 2, 3): everything, (4, 5): everything, (6, 7, 8): {1, 2, 3}}
    assert not folder.exists()


def test_what_a_partner_began_and_left_meanwhile_is_gone_on_with_as_it_had_cut(
    store: Path, folder: Path, trained: list[int]
) -> None:
    """We had cut [7, 8], [1, 2, 3] and [4, 5, 6], and were at the first."""

    class Dies(Heard):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            super().progress(progress, cohort)
            if progress.task == 1:
                raise Killed

    one, other = First(), Dies()

    def partner() -> Result:
        assert one.begun.wait(30)
        try:
            return train(store, 4, (2, 3, 4, 5), other)
        finally:
            one.go.set()

    (_, killed) = at_once(lambda: train(store, 3, watcher=one), partner)
    assert isinstance(killed, Killed)
    everything = {0, 1, 2, 3}
    assert other.tasks == {(2, 3, 4, 5): {0, 1}}
    assert one.tasks == {(7, 8): everything, (2, 3, 4, 5): {1, 2, 3}, (1, 6): everything}
    assert not folder.exists()


# what lies beside the store


def test_what_a_live_process_has_stays(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, trained: list[int]
) -> None:
    kill_begun(store, monkeypatch)
    (begun,) = folder.glob("*.pt")
    assert list(folder.iterdir()) == [begun]
    train(store, 4, (1, 2))
    other = Lock(folder)
    name = other.take()
    own(store, name)
    train(store, 4, (5,))
    with pytest.raises(Stopped):
        train_cells([CELL], (3, 4), store, stop=after(0.1))
    assert {path.name for path in folder.iterdir()} == {begun.name, name}
    other.close()
    train(store, 4, (3, 4))
    assert not folder.exists()
    assert sorted(trained) == [1, 1, 2, 2, 3, 3, 4, 4, 5], "once before they were killed"


def own(store: Path, owner: str) -> None:
    """A process of this name is at everything that is in progress."""
    with Store(store) as opened, opened.writing() as connection:
        connection.execute("UPDATE cohorts SET owner = ?", (owner,))


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def test_a_checkpoint_whose_store_was_lost_is_gone_on_from(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    kill_begun(store, monkeypatch)
    store.unlink()
    heard = Heard()
    assert measured(train(store, 4, watcher=heard)) == measured(undisturbed)
    assert heard.tasks[1, 2, 3, 4] == {2, 3}
    assert not folder.exists()


@pytest.mark.parametrize(
    "change",
    ["runs = ''", "runs = 'a b c'", "runs = x'ff00'", "name = '../../mine'", "name = ''", "title = x'ff'"],
)
def test_a_damaged_row_is_as_none(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Result, change: str
) -> None:
    kill_begun(store, monkeypatch)
    mine = store.parent.parent / "mine.pt"
    mine.write_text("a file of another's")
    with Store(store) as opened, opened.writing() as connection:
        connection.execute(f"UPDATE cohorts SET {change}")
    heard = Heard()
    assert measured(train(store, 4, watcher=heard)) == measured(undisturbed)
    assert heard.tasks[1, 2, 3, 4] == {2, 3}, "from its checkpoint, since it is cut as before"
    assert mine.read_text() == "a file of another's"
    assert not folder.exists()


def test_a_store_with_two_names_is_one(store: Path, tmp_path: Path) -> None:
    link, cohort = tmp_path / "elsewhere" / "link.db", Cohort((Run(CELL, 1),))
    link.parent.mkdir()
    link.symlink_to(store)
    with Store(store) as one, Store(link) as other:
        mine, theirs = InProgress(one), InProgress(other)
        assert mine.claim(cohort) == set()
        assert theirs.claim(cohort) == set(cohort.keys)
        mine.lock.close()
        assert theirs.claim(cohort) == set()
        theirs.lock.close()


def test_odd_files_do_no_harm_and_stay(store: Path, folder: Path, undisturbed: Result) -> None:
    folder.mkdir()
    target = store.parent / "target"
    target.write_text("mine")
    (folder / f"{'1' * 32}.lock").symlink_to(target)
    (folder / f"{'2' * 32}.pt").symlink_to(target)
    (folder / f"{'3' * 32}.5.tmp").symlink_to(target)
    os.mkfifo(folder / f"{'4' * 32}.lock")
    (folder / f"{'5' * 32}.pt").mkdir()
    for name in ("claiming", f"{'6' * 32}.7.tmp.foo", ".tmp", f"{'7' * 32}.tmp.foo", "\udcff", "[a-z]*.lock", "a.runs"):
        (folder / name).touch()
    names = {path.name for path in folder.iterdir()}
    assert measured(train(store, 4)) == measured(undisturbed)
    assert {path.name for path in folder.iterdir()} == names
    assert target.read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_in_the_place_of_a_checkpoint_is_set_aside(
    store: Path, folder: Path, undisturbed: Result, kind: str
) -> None:
    folder.mkdir()
    target = store.parent / "target"
    target.write_text("mine")
    name = Cohort(tuple(Run(CELL, seed) for seed in SEEDS[:4])).name
    path = folder / f"{name}.pt"
    {"link": lambda: path.symlink_to(target), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    (folder / f"{name}.7.tmp.foo").touch()
    (folder / f"{name}.7.tmp").symlink_to(target)
    heard = Heard()
    assert measured(train(store, 4, watcher=heard)) == measured(undisturbed)
    assert heard.warnings == [
        f"checkpoint {path} was damaged; it was set aside as {name}.damaged, and the cohort began anew."
    ]
    assert {path.name for path in folder.iterdir()} == {f"{name}.damaged", f"{name}.7.tmp.foo"}
    assert target.read_text() == "mine"


def test_stopped_before_its_first_task_is_finished_it_leaves_nothing(store: Path, folder: Path) -> None:
    class Dies(Watcher):
        def progress(self, progress: Progress, cohort: Cohort) -> None:
            raise Killed

    with pytest.raises(Killed):
        train(store, 4, watcher=Dies())
    assert not folder.exists()
    train(store, 4, seeds=(9,))
    with Store(store) as opened:
        assert cohort_rows(opened) == [], "nor in the store, when the next command has ended"


# who waits


def test_who_waits_for_another_says_so_once(store: Path, trained: list[int]) -> None:
    one, other = First(), Heard()
    told = threading.Event()

    def warn(text: str) -> None:
        other.warnings.append(text)
        told.set()

    def partner() -> Result:
        assert one.begun.wait(30)
        return train(store, 100, (3, 4), other)

    def first() -> Result:
        return train(store, 100, (1, 2, 3, 4), one)

    other.warn = warn  # type: ignore[method-assign]
    threading.Thread(target=lambda: told.wait(30) and time.sleep(0.1) is None and one.go.set()).start()
    at_once(first, partner)
    where = f"process {os.getpid()} on {platform.node()}"
    assert other.warnings == [f"waiting for {where}, which trains {CELL.name} ×4."]
    assert one.warnings == []
    assert sorted(trained) == [1, 2, 3, 4]


def test_who_waits_for_a_locked_store_says_so_and_may_be_stopped(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may be stopped, by Ctrl-Z or with its file system, while it writes."""
    monkeypatch.setattr(cohort_table, "PATIENCE", 0.05)
    train(store, 4, seeds=(1,))
    heard = Heard()
    with closing(sqlite3.connect(store, isolation_level=None)) as stopped:
        when_planned(monkeypatch, lambda scheduler: stopped.execute("BEGIN IMMEDIATE") and None)
        with pytest.raises(Stopped):
            train_cells([CELL], (2,), store, heard, stop=lambda: len(heard.warnings) > 0)
    assert heard.warnings == ["waiting for another process, which has the store locked."]
    monkeypatch.undo()
    assert train(store, 4, seeds=(2,)).seeds == [2]
