"""A process holds its lock until it ends, whatever happens to the files in its folder."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from threefold.engine import Progress
from threefold.errors import ThreefoldError
from threefold.experiments import lock
from threefold.experiments.lock import Lock, Note, alive, progress_notes, remove_dead

PROGRESS = Progress(step=3, steps=10, task=1, tasks=5, accuracy=97.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a.db.checkpoints"


def text(**changes: Any) -> dict[str, Any]:
    """What a process says, but for what is changed."""
    cohort = {"title": "x ×2", "time": 1e9, "progress": dict(vars(PROGRESS))}
    return {"process": 7, "machine": "m", "cohorts": {"abc": cohort}} | changes


def dead(folder: Path, content: bytes | str, name: str = "0" * 32) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.lock"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def close_as_the_end_of_the_process_does(mine: Lock) -> None:
    assert mine._file
    mine._file.close()


# who lives


def test_a_lock_is_there_until_it_is_closed(folder: Path) -> None:
    mine, other = Lock(folder), Lock(folder)
    assert not folder.exists(), "only when it is taken"
    name, others_name = mine.take(), other.take()
    assert mine.take() == name != others_name
    assert alive(folder, name)
    assert alive(folder, others_name)
    other.close()
    assert not alive(folder, others_name)
    assert [path.name for path in folder.iterdir()] == [name]
    mine.close()
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_is_stopped_lives_and_one_that_is_killed_does_not(folder: Path, number: int) -> None:
    code = (
        "import sys, time; from pathlib import Path; from threefold.experiments.lock import Lock;"
        "held = Lock(Path(sys.argv[1])); print(held.take(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        name = process.stdout.readline().strip()
        assert alive(folder, name)
        process.send_signal(number)
        if number == signal.SIGSTOP:
            assert alive(folder, name)
            remove_dead(folder)
            assert alive(folder, name)
        process.kill()
        process.wait()
    assert not alive(folder, name)
    assert (folder / name).exists()
    remove_dead(folder)
    assert not folder.exists()


def test_a_child_that_outlives_its_process_does_not_keep_the_lock(folder: Path) -> None:
    mine = Lock(folder)
    name = mine.take()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        close_as_the_end_of_the_process_does(mine)
        assert not alive(folder, name)
        child.kill()


def test_a_lock_that_nobody_has_any_more_is_dead(folder: Path) -> None:
    """In a notebook the process goes on, whatever ended training."""
    name = Lock(folder).take()
    assert not alive(folder, name)


def test_a_file_that_was_taken_for_a_dead_one_is_not_locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made by us, removed by another as nobody had locked it yet, locked by us: that lock would bind nobody."""
    flock, calls = fcntl.flock, []

    def removed_just_now(file: Any, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            monkeypatch.setattr(lock.fcntl, "flock", flock)
            remove_dead(folder)
            monkeypatch.setattr(lock.fcntl, "flock", removed_just_now)
        flock(file, how)

    monkeypatch.setattr(lock.fcntl, "flock", removed_just_now)
    mine = Lock(folder)
    assert alive(folder, mine.take())
    assert len(calls) == 3, "twice to take one, once to look"


def test_a_file_that_another_looks_at_just_now_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, calls = fcntl.flock, []

    def looked_at(file: Any, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            raise BlockingIOError
        flock(file, how)

    monkeypatch.setattr(lock.fcntl, "flock", looked_at)
    mine = Lock(folder)
    assert alive(folder, mine.take())


def test_a_folder_that_is_removed_meanwhile_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, calls = os.open, []

    def after_tidying(path: Path, *rest: int) -> int:
        calls.append(path)
        if len(calls) == 1:
            folder.rmdir()
        return opened(path, *rest)

    monkeypatch.setattr(lock.os, "open", after_tidying)
    mine = Lock(folder)
    assert mine.take() == calls[1].name
    mine.close()


def test_a_disk_without_locks_is_a_sentence_and_not_a_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: Any, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path = dead(folder, "")
    monkeypatch.setattr(lock.fcntl, "flock", none)
    with pytest.raises(ThreefoldError, match=r"lock '.*' cannot be taken \(.*No locks available\); use a store"):
        Lock(folder).take()
    with pytest.raises(ThreefoldError, match=r"lock '.*' cannot be read \(.*No locks available\); use a store"):
        alive(folder, path.name)
    assert list(folder.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_a_sentence(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    with pytest.raises(ThreefoldError, match=r"lock '.*' cannot be taken \(.*\); use a store"):
        Lock(folder).take()


# what else may be in the folder


def odd_files(folder: Path, target: Path) -> set[str]:
    """Links, pipes, sockets and folders, with names of ours and others."""
    folder.mkdir()
    target.write_text("mine")
    names = {"link": "1" * 32, "pipe": "2" * 32, "folder": "3" * 32, "socket": "4" * 32, "nowhere": "5" * 32}
    (folder / f"{names['link']}.lock").symlink_to(target)
    (folder / f"{names['nowhere']}.lock").symlink_to(folder / "nowhere")
    os.mkfifo(folder / f"{names['pipe']}.lock")
    (folder / f"{names['folder']}.lock").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        before = Path.cwd()
        os.chdir(folder)  # the names of sockets are short
        made.bind(f"{names['socket']}.lock")
        os.chdir(before)
    for name in ("claiming", "x.lock", "a.b.tmp.foo", ".lock", "\udcff.lock", "[.lock", "a b.lock", f"{'0' * 33}.lock"):
        (folder / name).touch()
    return {path.name for path in folder.iterdir()}


def test_what_is_not_ours_is_neither_followed_nor_removed_nor_waited_for(folder: Path, tmp_path: Path) -> None:
    names = odd_files(folder, tmp_path / "target")
    assert not any(alive(folder, name) for name in names)
    assert progress_notes(folder) == []
    remove_dead(folder)
    mine = Lock(folder)
    mine.take()
    mine.note("abc", "x", PROGRESS)
    assert {path.name for path in folder.iterdir()} == {*names, mine.take()}
    mine.close()
    assert {path.name for path in folder.iterdir()} == names
    assert (tmp_path / "target").read_text() == "mine"


@pytest.mark.parametrize("owner", ["../a.db", "", ".", "/etc/passwd", "x" * 5000, "a\0b"])
def test_an_owner_that_no_lock_can_have_is_dead(folder: Path, owner: str) -> None:
    assert not alive(folder, owner)


# what a process says


def test_notes_are_read_as_they_were_written(folder: Path) -> None:
    mine = Lock(folder)
    name = mine.take()
    assert progress_notes(folder) == []
    mine.note("abc", "x ×2")
    (note,) = progress_notes(folder)
    assert note == Note(name, True, os.getpid(), os.uname().nodename, "abc", "x ×2", note.time, None)
    assert note.time == pytest.approx(time.time(), abs=5)
    mine.note("def", "a much longer name")
    mine.drop("def")
    mine._written = 0.0
    mine.note("abc", "x ×2", PROGRESS)
    assert [each.progress for each in progress_notes(folder)] == [PROGRESS]
    mine.note("abc", "x ×2", Progress(4, 10, 1, 5, None))
    assert [each.progress for each in progress_notes(folder)] == [PROGRESS], "once a second is enough"
    close_as_the_end_of_the_process_does(mine)
    assert [each.alive for each in progress_notes(folder)] == [False]


def test_a_long_name_is_cut_and_not_unreadable(folder: Path) -> None:
    mine = Lock(folder)
    mine.take()
    mine.note("abc", "é" * 5000)
    assert [note.title for note in progress_notes(folder)] == ["é" * 1000]


def test_what_diverged_has_no_accuracy(folder: Path) -> None:
    mine = Lock(folder)
    mine.take()
    for bad in (float("nan"), float("inf")):
        mine._written = 0.0
        mine.note("abc", "x", Progress(4, 10, 1, 5, bad))
        (note,) = progress_notes(folder)
        assert note.progress == Progress(4, 10, 1, 5, None)


def test_a_full_disk_does_not_stop_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    mine = Lock(folder)
    mine.take()
    monkeypatch.setattr(lock.os, "pwrite", full)
    mine.note("abc", "x")


DAMAGE = {
    "binary": b"\xff\xfe\x00",
    "half": json.dumps(text()).encode()[:40],
    "a list": b"[]",
    "a number": b"7",
    "nested": b"[" * 100_000,
    "nested objects": b'{"cohorts":' * 100_000,
    "many digits": b'{"process":' + b"9" * 5000 + b"}",
    "no cohorts": json.dumps({"process": 7, "machine": "m"}).encode(),
    "a process that is none": json.dumps(text(process="7")).encode(),
    "a machine that is none": json.dumps(text(machine=None)).encode(),
    "a long machine": json.dumps(text(machine="m" * 2000)).encode(),
    "surrogates": b'{"process":7,"machine":"\\ud800","cohorts":{}}',
}
FIELDS = {"title": [1, None], "time": ["now", -1, 1e300, True], "progress": [[], 7, "x"]}
NUMBERS = {name: [-1, 1.5, "1", None, True, 1 << 70] for name in ("step", "steps", "task", "tasks")}
for field, values in FIELDS.items():
    for value in values:
        cohort = text()["cohorts"]["abc"] | {field: value}
        DAMAGE[f"{field} {value!r}"] = json.dumps(text(cohorts={"abc": cohort})).encode()
for field, values in (NUMBERS | {"accuracy": ["x", float("nan"), float("inf")]}).items():
    for value in values:
        cohort = text()["cohorts"]["abc"] | {"progress": vars(PROGRESS) | {field: value}}
        DAMAGE[f"{field} {value!r}"] = json.dumps(text(cohorts={"abc": cohort})).encode()


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_bad_note_is_unreadable_and_harms_no_other(folder: Path, content: bytes) -> None:
    mine = Lock(folder)
    mine.take()
    mine.note("abc", "good", PROGRESS)
    path = dead(folder, content)
    assert [note.title for note in progress_notes(folder)] == ["good"], "of the dead, nothing"
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        first, second = progress_notes(folder)
    bad, good = (first, second) if first.owner == path.name else (second, first)
    assert bad == Note(path.name, True)
    assert bad.where == "another process"
    assert (good.title, good.progress) == ("good", PROGRESS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(st.binary() | st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_no_note_is_ever_an_error(folder: Path, content: Any) -> None:
    dead(folder, content if isinstance(content, bytes) else json.dumps(text(cohorts={"abc": content})))
    assert progress_notes(folder) == []


@pytest.mark.parametrize(("step", "steps"), [(0, 0), (5, 4), (0, 7)])
def test_progress_that_cannot_be_is_none_yet(folder: Path, step: int, steps: int) -> None:
    cohort = text()["cohorts"]["abc"] | {"progress": vars(PROGRESS) | {"step": step, "steps": steps}}
    dead(folder, json.dumps(text(cohorts={"abc": cohort})))
    assert [note.progress for note in progress_notes(folder)] == [None]
