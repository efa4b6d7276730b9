"""Commands that share a store are killed, stopped and interrupted at random, and the end must be the same."""

import csv
import fcntl
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from experiment_lab import FIELDS, Command, beside, checkpoints, count, furnish, little_memory, locks, rows

SPEC = """
title = "Disturbed"
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
with = { strength = [1, 100] }
[[methods]]
method = "er"
with = { budget = 20 }
"""
EXPERIMENT = ["experiment", "tiny.toml", "--device", "cpu", "--store", "a.db"]
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "3", "--scenario", "all", "--method", "si", "--method", "none"]
RUN += ["--seeds", "3", "--iters", "20", "--hidden", "8", "--batch", "16", "--device", "cpu", "--store", "a.db"]
TRAINING = [EXPERIMENT, RUN]
MERGE = ["merge", "all.db", "a.db"]
EXPORTS = [["export", "csv", "runs.csv", "--store", "a.db"], ["export", "rows", "runs.jsonl.gz", "--store", "a.db"]]
LOOKING = [["status", "--store", "a.db"], ["report", "--format", "csv", "--store", "a.db"]]


def one_at_a_time(folder: Path) -> None:
    """A hook: if a run goes into training that another process has in training, there is a file `twice`."""
    from threefold.experiments.executor import Local

    begin = Local.begin

    def watched(executor: Local, job: Any) -> None:
        with ExitStack() as closing:
            for run in job.cohort.runs:
                file = closing.enter_context((folder / f"training {run.key}").open("w"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends, however it does
                except BlockingIOError:
                    (folder / "twice").touch()
            begin(executor, job)

    Local.begin = watched  # type: ignore[method-assign]


def one_at_a_time_with_little_memory(folder: Path) -> None:
    """A hook: the same where there is memory for one network only."""
    little_memory(folder)
    one_at_a_time(folder)


HOOKS = [one_at_a_time, one_at_a_time, one_at_a_time_with_little_memory]


class Disturbance:
    """Rounds of it, each with a store of its own, until the time is over."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.tally: Counter[str] = Counter()
        furnish(folder, SPEC)
        self.expected = self._undisturbed()

    def _undisturbed(self) -> list[tuple[Any, ...]]:
        for words in TRAINING:
            self._finish(words)
        return self._clean_up()

    def run(self, seconds: float) -> None:
        """At least one round."""
        end = time.monotonic() + seconds
        while True:
            self._round()
            if time.monotonic() > end:
                return

    def _round(self) -> None:
        with ExitStack() as closing:
            for _ in range(self.chance.randint(4, 10)):
                self._some_commands(closing)
        self._check_what_is_stored()
        for words in TRAINING:
            self._finish(words)
        self._finish(MERGE)
        assert rows(self.folder / "all.db") == self.expected
        assert beside(self.folder / "all.db") == []
        for words in EXPORTS:
            self._finish(words)
        self._whole_files()
        assert self._clean_up() == self.expected
        self.tally["rounds"] += 1

    def _clean_up(self) -> list[tuple[Any, ...]]:
        """The rows of this round's store; the next has its own."""
        store = self.folder / "a.db"
        assert beside(store) == [], "nothing is left beside it"
        found = rows(store)
        for path in self.folder.iterdir():
            if path.name not in ("tiny.npz", "tiny.toml"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return found

    def _some_commands(self, closing: ExitStack) -> None:
        """Several commands at a time; one of them at least is disturbed."""
        kinds = [TRAINING, TRAINING, TRAINING, [MERGE], EXPORTS, LOOKING]
        words = [self.chance.choice(self.chance.choice(kinds)) for _ in range(self.chance.randint(1, 3))]
        begun = [closing.enter_context(Command(self.folder, *each, hook=self.chance.choice(HOOKS))) for each in words]
        for command in begun:
            self._wait_a_moment(command)
            self._disturb(command)
        for command, each in zip(begun, words, strict=True):
            self._ended(command, each)

    def _wait_a_moment(self, command: Command) -> None:
        """Until something happens beside the store, or just for some time."""
        store = self.folder / "a.db"
        kept, stored = checkpoints(store), count(store)
        events: list[Callable[[], object]] = [
            lambda: locks(store),
            lambda: checkpoints(store) - kept,
            lambda: count(store) > stored,
            lambda: False,
        ]
        event, end = self.chance.choice(events), time.monotonic() + self.chance.uniform(0, 1.5)
        while command.running and time.monotonic() < end and not event():
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0, 0.05))

    def _disturb(self, command: Command) -> None:
        if not command.running:
            return
        what = self.chance.choice(["killed", "killed", "killed", "interrupted", "stopped"])
        with suppress(ProcessLookupError):  # it has just ended
            command.send({"killed": signal.SIGKILL, "interrupted": signal.SIGINT, "stopped": signal.SIGSTOP}[what])
            if what == "stopped":
                time.sleep(self.chance.uniform(0, 1))
                command.send(signal.SIGCONT)
            self.tally[what] += 1

    def _ended(self, command: Command, words: list[str]) -> None:
        """It was killed, or interrupted, or there is nothing yet to merge or show; never is there a traceback."""
        ended = command.ended()
        assert "Traceback" not in ended.err, (words, ended)
        if ended.status == 2:
            assert words not in TRAINING, (words, ended)
            assert ended.err.startswith("threefold: "), (words, ended)
        self.tally[f"ended with {ended.status}"] += 1

    def _finish(self, words: list[str]) -> None:
        with Command(self.folder, *words) as command:
            ended = command.ended()
        assert (ended.status, ended.err) == (0, ""), (words, ended)

    def _check_what_is_stored(self) -> None:
        """Whatever was killed, what is stored is a part of what must come out, and files are whole."""
        assert not (self.folder / "twice").exists(), "no run was in training twice at a time"
        for name in ("a.db", "all.db"):
            if count(self.folder / name):
                assert set(rows(self.folder / name)) <= set(self.expected)
        self._whole_files()

    def _whole_files(self) -> None:
        table, text = self.folder / "runs.csv", self.folder / "runs.jsonl.gz"
        if table.exists():
            lines = table.read_text(encoding="utf-8")
            assert lines.endswith("\n")
            assert len({len(row) for row in csv.reader(lines.splitlines())}) == 1
        if text.exists():
            (self.folder / "again.db").unlink(missing_ok=True)
            self._finish(["merge", "again.db", "runs.jsonl.gz"])
            assert {*_without_images(rows(self.folder / "again.db"))} <= {*_without_images(self.expected)}


def _without_images(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A file of rows has no images."""
    place = 1 + FIELDS.index("kept")
    return [row[:place] + row[place + 1 :] for row in found]


def disturb(folder: Path, seconds: float, seed: int) -> str:
    """What happened, in a line."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    made = Disturbance(folder, seed)
    try:
        made.run(seconds)
    except BaseException as error:
        error.add_note(f"with seed {seed}, in {folder}, after {dict(made.tally)}")
        raise
    return ", ".join(f"{number} {what}" for what, number in sorted(made.tally.items()))
