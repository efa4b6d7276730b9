"""Processes that are killed, interrupted, or run side by side: the same command goes on, and ends in the same bytes."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tiny_lab import Ended, leftovers, said_besides_waiting, write_npz

PROGRAM = Path(sys.executable).parent / "threefold"
RUN = ["run", "split", "--data", "tiny.npz", "--scenario", "all", "--method", "none", "--method", "offline"]
RUN += ["--seeds", "3", "--tasks", "3", "--iters", "30", "--hidden", "8", "--batch", "16", "--device", "cpu", "--json"]
RUNS = 2 * 3 * 3  # methods × scenarios × seeds
PATIENCE = 120.0


@contextmanager
def started(folder: Path, store: str) -> Iterator[subprocess.Popen[str]]:
    """The command, as a process of its own."""
    process = subprocess.Popen(
        [PROGRAM, *RUN, "--store", store],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def finished(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, out, err)


def checkpoints(folder: Path, store: str) -> set[tuple[str, int]]:
    """Each checkpoint that is there, and when it was written."""
    found = set()
    for path in (folder / f"{store}.checkpoints").glob("*.pt"):
        try:
            found.add((path.name, path.stat().st_mtime_ns))
        except FileNotFoundError:
            continue
    return found


def wait_for_checkpoints(process: subprocess.Popen[str], folder: Path, store: str, number: int) -> None:
    """Return when the process has written this many checkpoints, so well after training began."""
    seen = checkpoints(folder, store)
    deadline = time.monotonic() + PATIENCE
    while number:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        new = checkpoints(folder, store) - seen
        number -= bool(new)
        seen |= new
        time.sleep(0.001)


def stored(path: Path) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(path)) as store:
        return store.execute("SELECT method, scenario, seed FROM runs").fetchall()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    write_npz(folder / "tiny.npz", classes=6)
    return folder


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Ended:
    with started(place, "undisturbed.db") as process:
        ended = finished(process)
    assert (ended.status, ended.err) == (0, "")
    assert len(stored(place / "undisturbed.db")) == RUNS
    return ended


def test_killed_twice_the_same_command_ends_in_the_same_bytes(place: Path, undisturbed: Ended) -> None:
    moments = random.Random(20)
    progress = []
    for number in (moments.randint(1, 2), moments.randint(3, 5)):
        with started(place, "killed.db") as process:
            wait_for_checkpoints(process, place, "killed.db", number)
            time.sleep(moments.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            assert finished(process) == Ended(-signal.SIGKILL, "", "")
        progress.append(len(stored(place / "killed.db")))
    assert progress[0] < RUNS
    assert progress[0] <= progress[1] < RUNS
    with started(place, "killed.db") as process:
        assert finished(process) == undisturbed
    assert sorted(stored(place / "killed.db")) == sorted(stored(place / "undisturbed.db"))
    assert leftovers(place / "killed.db") == leftovers(place / "undisturbed.db") == []


def test_interrupted_it_says_so_and_the_same_command_goes_on(
    place: Path, undisturbed: Ended, cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(place, "interrupted.db") as process:
        wait_for_checkpoints(process, place, "interrupted.db", 1)
        process.send_signal(signal.SIGINT)
        ended = finished(process)
    left = RUNS - len(stored(place / "interrupted.db"))
    assert left
    assert ended == Ended(3, "", f"threefold: stopped with {left} runs left; the same command goes on.\n")
    monkeypatch.chdir(place)
    assert cli(*RUN, "--store", "interrupted.db") == undisturbed
    assert leftovers(place / "interrupted.db") == []


def test_two_processes_at_once_do_each_other_no_harm(place: Path, undisturbed: Ended) -> None:
    with started(place, "shared.db") as one, started(place, "shared.db") as other:
        for ended in (finished(one), finished(other)):
            assert (ended.status, ended.out, said_besides_waiting(ended)) == undisturbed
    rows = stored(place / "shared.db")
    assert len(rows) == len(set(rows)) == RUNS
    assert leftovers(place / "shared.db") == []
