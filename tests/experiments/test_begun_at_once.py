"""No run is trained twice, whatever memory each process sees, and nothing is left beside the store."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from begun_lab import CELL, SEEDS, Killed, Tasks, kill_begun, train
from cohort_lab import measured, running

from threefold import Store
from threefold.engine import Progress
from threefold.experiments import Result, Stopped, Watcher, run_cells
from threefold.experiments.campaign import Campaign
from threefold.experiments.claim import Claim
from threefold.experiments.cohort import Cohort

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
