"""A cohort is claimed by one process at a time, also where the lock's file goes away under someone's hands."""

import errno
import fcntl
from pathlib import Path
from typing import IO

import pytest

from threefold.errors import ThreefoldError
from threefold.experiments import claim
from threefold.experiments.claim import Claim, running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db.checkpoints" / "cohort.lock"


def test_one_at_a_time(path: Path) -> None:
    with Claim(path) as one, Claim(path) as other:
        assert one.take()
        assert not other.take()
        one.beat({"step": 1})
        assert [word["step"] for word in running(path.parent)] == [1]
    assert not path.parent.exists(), "neither the file nor its folder is left behind"
    with Claim(path) as again:
        assert again.take()


def test_who_does_not_have_it_does_not_remove_it(path: Path) -> None:
    with Claim(path) as one:
        assert one.take()
        with Claim(path) as other:
            assert not other.take()
        assert path.exists()
        assert not Claim(path).take()


def test_the_lock_of_the_dead_binds_nobody(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"step": 3}')
    assert list(running(path.parent)) == []
    with Claim(path) as one:
        assert one.take()


def test_a_lock_on_a_file_that_was_removed_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened by us, removed by its owner, locked by us: another process would lock the next file of that name."""
    flock, calls = fcntl.flock, []

    def removed_just_now(file: IO[str], how: int) -> None:
        if not calls:
            path.unlink()
        calls.append(how)
        flock(file, how)

    monkeypatch.setattr(claim.fcntl, "flock", removed_just_now)
    with Claim(path) as one:
        assert one.take()
        assert len(calls) == 2
        assert not Claim(path).take()


def test_a_folder_that_is_tidied_away_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, calls = Path.open, []

    def after_tidying(place: Path, *rest: str, **more: str) -> object:
        calls.append(place)
        if len(calls) == 1:
            path.parent.rmdir()
        return opened(place, *rest, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", after_tidying)
    with Claim(path) as one:
        assert one.take()
    assert len(calls) == 2


def test_a_disk_without_locks_is_a_sentence_and_not_a_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: IO[str], how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(claim.fcntl, "flock", none)
    with pytest.raises(ThreefoldError, match=r"lock '.*' cannot be taken \(.*No locks available\); right would be"):
        Claim(path).take()


def test_a_place_that_cannot_be_written_is_a_sentence(path: Path) -> None:
    path.parent.write_text("a file where the folder should be")
    with pytest.raises(ThreefoldError, match=r"lock '.*' cannot be written \(.*\); right would be"):
        Claim(path).take()
