"""Ctrl-C, SIGTERM and SIGHUP at any time: nothing is lost, one sentence, and the right exit status."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from experiment_lab import Command, beside, checkpoints, count, furnish, locks, rows, server
from tiny_lab import Ended, with_option

PROGRAM = Path(sys.executable).parent / "threefold"
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "3", "--seeds", "2", "--method", "none", "--method", "lwf"]
RUN += ["--iters", "20", "--hidden", "8", "--batch", "16", "--device", "cpu", "--store", "a.db", "--json"]
RUNS = 2 * 3 * 2  # methods × scenarios × seeds
LEFT = r"threefold: stopped with (\d+) runs? left; run the same command again to continue\.\n"
STOPPED = "threefold: stopped; run the same command again to continue from the last finished task.\n"
STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
PATIENCE = 60.0


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    with server():
        yield


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return furnish(tmp_path)


@contextmanager
def program(
    folder: Path, *words: str, ignored: int | None = None, stdout: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """The command as a user starts it, which loads for a while; with one signal ignored, as by nohup."""

    def signals() -> None:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN if number == ignored else signal.SIG_DFL)

    pipes = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([PROGRAM, *words], cwd=folder, preexec_fn=signals, **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: "subprocess.Popen[str]") -> Ended:
    out, err = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, out, err)


def signals_of(process: "subprocess.Popen[str]", kind: str) -> set[int]:
    """The numbers of the signals that a process catches (SigCgt) or ignores (SigIgn)."""
    found = re.search(rf"^{kind}:\s*([0-9a-f]+)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    assert found
    return {number for number in range(1, 65) if int(found[1], 16) >> (number - 1) & 1}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(("number", "after"), [*zip(STOPS, [0.0, 0.2, 0.5], strict=True)])
def test_while_it_loads_it_stops_at_once_in_a_sentence(place: Path, number: int, after: float) -> None:
    with program(place, *RUN) as process:
        wait_until(lambda: signal.SIGTERM in signals_of(process, "SigCgt"))
        time.sleep(after)
        process.send_signal(number)
        assert ended(process) == Ended(3, "", STOPPED)
    assert sorted(path.name for path in place.iterdir()) == ["tiny.npz", "tiny.toml"]


def test_signals_are_handled_before_anything_heavy_is_imported() -> None:
    """Else there is a second in which Ctrl-C shows a traceback."""
    code = (
        "import sys, threefold.cli; print(sorted({'typer', 'rich', 'pydantic', 'numpy', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[tuple[Any, ...]]]:
    """What it prints, and its rows."""
    folder = furnish(tmp_path_factory.mktemp("undisturbed"))
    with Command(folder, *RUN) as command:
        assert command.ended().status == 0
        return command.ended().out, rows(folder / "a.db")


def finish(folder: Path, undisturbed: tuple[str, list[tuple[Any, ...]]]) -> None:
    """The same command, left alone, ends as if nothing had happened."""
    with Command(folder, *RUN) as command:
        assert command.ended() == (0, undisturbed[0], "")
    assert rows(folder / "a.db") == undisturbed[1]
    assert beside(folder / "a.db") == []


@pytest.mark.parametrize("number", STOPS)
def test_in_training_it_stops_and_the_same_command_goes_on(
    place: Path, undisturbed: tuple[str, list[tuple[Any, ...]]], number: int
) -> None:
    store = place / "a.db"
    with Command(place, *RUN) as command:
        command.wait_until(lambda: count(store) and locks(store))
        command.send(number)
        end = command.ended()
    told = re.fullmatch(LEFT, end.err)
    assert (end.status, end.out) == (3, "")
    assert told, end.err
    assert 0 < count(store) == RUNS - int(told[1]) < RUNS
    assert locks(store) == set()
    finish(place, undisturbed)


def test_killed_twice_the_same_command_ends_in_the_same_bytes(
    place: Path, undisturbed: tuple[str, list[tuple[Any, ...]]]
) -> None:
    store, moments = place / "a.db", random.Random(20)
    for _ in range(2):
        known = checkpoints(store)
        with Command(place, *RUN) as command:
            command.wait_until(lambda known=known: checkpoints(store) - known)
            time.sleep(moments.uniform(0, 0.05))
            command.kill()
    assert count(store) < RUNS
    finish(place, undisturbed)


def test_run_has_a_time_limit(place: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Ended]) -> None:
    monkeypatch.chdir(place)
    end = cli(*RUN, "--time-limit", "1e-9")
    assert end == (3, "", f"threefold: stopped with {RUNS} runs left; run the same command again to continue.\n")
    assert cli(*RUN).status == 0
    assert "--time-limit" not in cli("status", "--store", "a.db").out


def test_between_two_tasks_a_stopped_run_leaves_its_checkpoint(place: Path) -> None:
    with Command(place, *with_option(RUN, "--iters", "300")) as command:
        command.wait_until(lambda: checkpoints(place / "a.db"))
        command.send(signal.SIGTERM)
        assert command.ended().status == 3
    assert len(checkpoints(place / "a.db")) == 1


@pytest.mark.parametrize(
    ("number", "status", "after"), [(signal.SIGINT, 130, 2.0), (signal.SIGTERM, 143, 0.0), (signal.SIGHUP, 129, 0.3)]
)
def test_a_command_that_trains_nothing_ends_as_usual(
    place: Path, full_pipe: int, number: int, status: int, after: float
) -> None:
    with program(place, "list", "methods", stdout=full_pipe) as process:
        wait_until(lambda: signal.SIGTERM in signals_of(process, "SigCgt"))
        time.sleep(after)
        process.send_signal(number)
        assert (ended(process).status, ended(process).err) == (status, "threefold: stopped.\n")


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """Who writes to it waits, so that a quick command is still there when the signal comes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def test_what_is_ignored_stays_ignored(place: Path) -> None:
    """`nohup threefold …` outlives its terminal, and Ctrl-C in a shell does not reach what runs in the background."""
    for number in (signal.SIGHUP, signal.SIGINT):
        with program(place, *RUN, ignored=number) as process:
            wait_until(lambda: signal.SIGTERM in signals_of(process, "SigCgt"))
            assert signals_of(process, "SigIgn") >= {number}
            process.send_signal(number)
            process.send_signal(signal.SIGTERM)
            assert ended(process).status == 3


def test_a_signal_that_a_library_took_is_taken_back() -> None:
    """Ray handles SIGTERM in its own way from when it is connected."""
    code = """
import os, signal, sys
from threefold.cli import stopping
sys.argv = ["threefold", "experiment"]
stopping.install()
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
stopping.loaded()
try:
    os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    sys.exit(stopping.status())
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 3


def test_at_the_very_end_a_signal_does_not_change_the_status() -> None:
    code = """
import atexit, os, signal, sys
atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))  # what is registered first is called last
from threefold.cli import main
main()
"""
    answer = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_an_import_that_catches_the_interruption_does_not_go_on(tmp_path: Path) -> None:
    """PyTorch catches what goes wrong while it imports NumPy, be it a KeyboardInterrupt."""
    (tmp_path / "broken.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\n")
    (tmp_path / "catching.py").write_text("try:\n    import broken\nexcept BaseException:\n    pass\n")
    code = (
        "from threefold.cli import stopping; stopping.install(); stopping.loaded(); import catching; print('went on')"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (129, "", "threefold: stopped.\n")
