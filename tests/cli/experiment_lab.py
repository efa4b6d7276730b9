"""An experiment small enough for tests, and commands that run on it as processes of their own."""

import itertools
import json
import multiprocessing
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tiny_lab import Ended, write_npz

SPEC = """
title = "Tiny"
stream = "split"
data = "tiny.npz"
tasks = 3
seeds = 2

[training]
iters = 20
hidden = 8
batch = 16

[[methods]]
method = "none"

[[methods]]
method = "ewc"
with = { strength = [1, 100, 10000] }

[[methods]]
method = "lwf"
with = { reduction = ["sum", "mean"] }

[[methods]]
method = "er"
with = { budget = 20 }

[[methods]]
method = "dgr"
scenarios = ["class"]

[[methods]]
method = "xdg"
"""
COHORTS = 3 + 3 + 6 + 3 + 1 + 1  # the three strengths of ewc are one, the two reductions of lwf are not
RUNS = 2 * (COHORTS + 6)
PATIENCE = 90.0
FIELDS = ("spec", "status", "diverged_at", "initial", "matrix", "kept", "curves")


def furnish(folder: Path, spec: str = SPEC) -> Path:
    """The experiment's file and data in a folder."""
    write_npz(folder / "tiny.npz", classes=6)
    (folder / "tiny.toml").write_text(spec)
    return folder


def rows(path: Path) -> list[tuple[Any, ...]]:
    """Everything that was measured, sorted; when, where and how fast left out."""
    columns = ", ".join(["key", *(f"json_extract(record, '$.{field}')" for field in FIELDS)])
    with closing(sqlite3.connect(path)) as store:
        return store.execute(f"SELECT {columns} FROM runs ORDER BY key").fetchall()


def alter(path: Path, *statements: str) -> None:
    """Change a store behind threefold's back; each row's sum fits again, as if other code had computed it."""
    from threefold.results import store as module

    with closing(sqlite3.connect(path, isolation_level=None)) as store:
        for statement in statements:
            store.execute(statement)
        for identity, key, text in store.execute("SELECT id, key, record FROM runs").fetchall():
            store.execute("UPDATE runs SET sum = ? WHERE id = ?", (module._sum(key, text), identity))


def count(path: Path) -> int:
    """How many runs are stored so far."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as store:
        try:
            return int(store.execute("SELECT count(*) FROM runs").fetchone()[0])
        except sqlite3.OperationalError:  # the tables are not there yet
            return 0


def beside(store: Path) -> list[str]:
    """What lies beside a store that is not the store."""
    return sorted(path.name for path in store.parent.rglob("*") if path.name.startswith(store.name) and path != store)


def locks(store: Path) -> set[str]:
    return {path.name for path in Path(f"{store}.checkpoints").glob("*.lock")}


def checkpoints(store: Path, *endings: str) -> set[tuple[str, int]]:
    """Each checkpoint that is there (or file of another ending), and when it was written."""
    found = set()
    for path in Path(f"{store}.checkpoints").glob("*"):
        if path.suffix not in (endings or (".pt",)):
            continue
        with suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_mtime_ns))
    return found


class Command:
    """A command of threefold in a process of its own."""

    def __init__(self, folder: Path, *words: str, hook: Callable[[Path], None] | None = None) -> None:
        self._said = [folder / f"said.{time.monotonic_ns()}.{stream}" for stream in ("out", "err")]
        context = multiprocessing.get_context("forkserver")
        self.process: ForkServerProcess = context.Process(target=_main, args=(folder, words, self._said, hook))
        self.process.start()

    @property
    def running(self) -> bool:
        return self.process.exitcode is None

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.ended().status == -signal.SIGKILL, "it ended before it could be killed"

    def wait_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.running, self.ended()
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def ended(self) -> Ended:
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "it does not end"
        out, err = (path.read_text() if path.exists() else "" for path in self._said)
        return Ended(self.process.exitcode, out, err)

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        for path in self._said:
            path.unlink(missing_ok=True)


@contextmanager
def server() -> Iterator[None]:
    """Processes are forked from one that has torch at hand; else each would spend seconds on importing it."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "OMP_NUM_THREADS")}
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parent), before["PYTHONPATH"]]))  # this very source
    os.environ |= {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    multiprocessing.set_forkserver_preload(["warm_lab"])
    multiprocessing.forkserver.ensure_running()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _main(folder: Path, words: tuple[str, ...], said: list[Path], hook: Callable[[Path], None] | None) -> None:
    os.chdir(folder)
    os.environ["PATH"] = ""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    for number, path in zip((1, 2), said, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    sys.argv = ["threefold", *words]
    if hook:
        hook(folder)
    from threefold.cli import main

    main()


def before_each_cohort(call: Callable[[Any], None]) -> None:
    """Have this called with each cohort of this process when its training begins."""
    from threefold.experiments.executor import Local

    begin = Local.begin

    def begin_after(executor: Local, job: Any) -> None:
        call(job.cohort)
        begin(executor, job)

    Local.begin = begin_after  # type: ignore[method-assign]


def write_down_cohorts(folder: Path) -> None:
    """A hook: every cohort that goes into training, and by which process, in the file `trained`; not too fast."""

    def note(cohort: Any) -> None:
        with (folder / "trained").open("a") as file:
            file.write(json.dumps([os.getpid(), cohort.name, [run.key for run in cohort.runs]]) + "\n")
        time.sleep(0.05)

    before_each_cohort(note)


def little_memory(folder: Path) -> None:
    """A hook: there is memory for one network at a time; what is trained is written down."""
    write_down_cohorts(folder)
    sys.modules["threefold.experiments.cohort"].__dict__["_free_memory"] = lambda device: 1


def die_with_little_memory(folder: Path) -> None:
    """A hook: there is memory for one network at a time; the process dies when the fourth has finished a task."""
    little_memory(folder)
    module = sys.modules["threefold.engine.checkpoint"]
    save, known = module.Checkpoint.save, set()

    def last(checkpoint: Any, state: Any) -> None:
        save(checkpoint, state)
        known.add(checkpoint.path)
        if len(known) == 4:
            os._exit(9)

    module.Checkpoint.save = last


def slow_to_plan(folder: Path) -> None:
    """A hook: it takes longer than a second until it is known what there is to train."""
    from threefold.experiments import experiment_request as module

    made = module.experiment_request

    def slowly(*given: Any) -> Any:
        time.sleep(1.2)
        return made(*given)

    module.experiment_request = slowly


def stuck_in_the_third(folder: Path) -> None:
    """A hook: the third cohort is in a step that takes for ever."""
    calls = itertools.count(1)

    def stick(cohort: Any) -> None:
        if next(calls) == 3:
            (folder / "stuck").touch()
            time.sleep(PATIENCE)

    before_each_cohort(stick)


def time_is_over_in_the_third(folder: Path) -> None:
    """A hook: however slow the machine, a time limit of a minute is over when the third cohort begins."""
    calls, now = itertools.count(1), time.monotonic

    def over(cohort: Any) -> None:
        if next(calls) == 3:
            time.monotonic = lambda: now() + 60

    before_each_cohort(over)


def die_when_stored(folder: Path) -> None:
    """A hook: the process dies right after storing its first cohort, before it can clean up."""
    from threefold.engine import Checkpoint

    Checkpoint.discard = lambda self: os._exit(9)  # type: ignore[method-assign]


def trained(folder: Path) -> list[tuple[int, str, list[str]]]:
    return [tuple(json.loads(line)) for line in (folder / "trained").read_text().splitlines()]
