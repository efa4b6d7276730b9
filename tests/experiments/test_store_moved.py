"""A store that is moved, deleted or replaced while a command runs: nothing is lost, and an error says so."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_cells import CELL, SEEDS, Heard, before_training, kill_begun, measured, train

from threefold import Store, ThreefoldError
from threefold.engine import Progress
from threefold.experiments import Result, Run, lock
from threefold.experiments.cohort import Cohort
from threefold.experiments.in_progress import InProgress
from threefold.results.cohort_table import cohort_rows

TOLD = re.compile(
    r"store '[^']*a\.db' was moved, deleted or replaced while this command was using it; put it back, or give its new "
    r"name, and give the same command again; checkpoints were kept, nothing was overwritten\."
)


def moved(store: Path) -> None:
    store.rename(store.with_name("elsewhere.db"))


def deleted(store: Path) -> None:
    store.unlink()


def replaced(store: Path) -> None:
    other = store.with_name("other.db")
    Store(other).close()
    store.rename(store.with_name("elsewhere.db"))
    other.rename(store)


def copied_back(store: Path) -> None:
    """The same content, but not the file that is open."""
    shutil.copy(store, store.with_name("copy.db"))
    store.with_name("copy.db").replace(store)


WAYS = [moved, deleted, replaced, copied_back]


class Disturbed(Heard):
    """Something happens to the store in the second task of the first cohort."""

    def __init__(self, store: Path, way: Callable[[Path], None]) -> None:
        super().__init__()
        self.store, self.way = store, way

    def progress(self, progress: Progress, cohort: Cohort) -> None:
        super().progress(progress, cohort)
        if progress.task == 1 and len(self.tasks) == 1:
            self.way(self.store)


def disturb(store: Path, way: Callable[[Path], None]) -> Disturbed:
    heard = Disturbed(store, way)
    with pytest.raises(ThreefoldError) as info:
        train(store, 4, watcher=heard)
    assert TOLD.fullmatch(str(info.value))
    return heard


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("beat", [0.0, 1000.0], ids=["in the same task", "where it would be stored"])
def test_it_is_noticed_and_the_checkpoint_is_kept(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path], None], beat: float
) -> None:
    monkeypatch.setattr(lock, "BEAT", beat)
    heard = disturb(store, way)
    assert list(heard.tasks) == [(1, 2, 3, 4)], "nothing more was begun"
    assert max(heard.tasks[1, 2, 3, 4]) == (1 if beat == 0 else 3)
    assert [path.suffix for path in folder.iterdir()] == [".pt"]
    assert store.exists() == (way in (replaced, copied_back)), "no new store was made"
    if store.exists():
        with Store(store, readonly=True) as there:
            assert list(there.all()) == [], "nothing was written to a store that is not ours"


@pytest.mark.parametrize("way", WAYS)
def test_the_same_command_goes_on(store: Path, folder: Path, undisturbed: Result, way: Callable[[Path], None]) -> None:
    disturb(store, way)
    if way is replaced:
        store.unlink()
    if way in (moved, replaced):
        store.with_name("elsewhere.db").rename(store)
    heard = Heard()
    again = train(store, 4, watcher=heard)
    assert measured(again) == measured(undisturbed)
    assert heard.tasks[1, 2, 3, 4] == {3}
    assert not folder.exists()


class DisturbedLater(Disturbed):
    """Something happens to the store when the first cohort is in it."""

    def progress(self, progress: Progress, cohort: Cohort) -> None:
        if cohort.seeds == [5, 6, 7, 8]:
            super().progress(progress, cohort)


@pytest.mark.parametrize("way", [moved, replaced])
def test_what_was_stored_goes_with_a_store_that_is_moved_and_nowhere_else(
    store: Path, undisturbed: Result, way: Callable[[Path], None]
) -> None:
    """SQLite leaves the log of a moved file where it was: beside the next file of that name, which is not its own."""
    with pytest.raises(ThreefoldError, match=TOLD):
        train(store, 4, watcher=DisturbedLater(store, way))
    with Store(store.with_name("elsewhere.db"), readonly=True) as opened:
        assert [record.spec["seed"] for record in opened.all()] == [1, 2, 3, 4]
    if way is replaced:
        with Store(store, readonly=True) as opened:
            assert list(opened.all()) == []
            assert cohort_rows(opened) == []
    assert measured(train(store.with_name("elsewhere.db"), 4)) == measured(undisturbed)


def test_a_copy_of_the_file_alone_has_all_that_is_stored(store: Path, tmp_path: Path) -> None:
    """People copy and move the file, not what SQLite may have beside it."""
    train(store, 4, seeds=(1,))
    with Store(store) as opened:
        records = list(train(None, 4, seeds=(2,)).records)
        opened.add(records)
        shutil.copy(store, tmp_path / "copy.db")
    with Store(tmp_path / "copy.db", readonly=True) as copy:
        assert [record.spec["seed"] for record in copy.all()] == [1, 2]


@pytest.mark.parametrize("way", WAYS)
def test_between_storing_and_discarding(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path], None]
) -> None:
    add = Store.add

    def add_and_lose(self: Store, records: list[object]) -> set[str]:
        present = add(self, records)  # type: ignore[arg-type]
        way(store)
        return present

    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", add_and_lose)
        with pytest.raises(ThreefoldError, match=TOLD):
            train(store, 4, SEEDS[:4])
    assert [path.suffix for path in folder.iterdir()] == [".pt"]


def test_before_a_cohort_that_does_not_fit_is_halved(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_begun(store, monkeypatch)

    def moved_and_full(seeds: list[int]) -> None:
        moved(store)
        raise MemoryError

    before_training(monkeypatch, moved_and_full)
    with pytest.raises(ThreefoldError, match=TOLD):
        train(store, 4)
    assert [path.suffix for path in folder.iterdir()] == [".pt"]


def test_a_path_that_means_another_file_after_chdir_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("a.db") as store:
        monkeypatch.chdir("/")
        store.check_in_place()


def test_a_store_that_was_replaced_before_anything_is_claimed(store: Path) -> None:
    with Store(store) as opened:
        replaced(store)
        with pytest.raises(ThreefoldError, match=TOLD):
            InProgress(opened).claim(Cohort((Run(CELL, 1),)))
        with pytest.raises(ThreefoldError, match=TOLD):
            opened.remember("x", {})
