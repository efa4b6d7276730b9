"""What is done, running, failed and left."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import mean
from typing import Any

from threefold.experiments.command import at
from threefold.experiments.in_progress import folder_of
from threefold.experiments.lock import Note, progress_notes
from threefold.experiments.section import Section, sections
from threefold.results import Store
from threefold.results.cohort_table import CohortRow, given_up


@dataclass(frozen=True)
class ExperimentStatus:
    """How far an experiment is."""

    name: str
    command: str  # that trains the rest; empty if it was asked for in Python
    done: int
    left: int
    time_left: timedelta | None  # None: not known, or nothing is left

    def line(self) -> str:
        line = f"{self.name}: {self.done} of {self.done + self.left} runs done"
        if not self.left:
            return line
        when = "time not known yet" if self.time_left is None else f"about {self.time_left}"
        how = self.command or "some of it was asked for in Python; ask for it there again"
        return f"{line}, {self.left} left, {when}: {how}"

    def to_json(self) -> dict[str, Any]:
        seconds = None if self.time_left is None else self.time_left.total_seconds()
        plain = {name: getattr(self, name) for name in ("name", "command", "done", "left")}
        return plain | {"seconds_left": seconds}


@dataclass(frozen=True)
class Status:
    """The state of a store: its experiments, the cohorts in training, and those that failed."""

    store: Path
    experiments: Sequence[ExperimentStatus]
    unreadable: Mapping[str, str]  # experiments that cannot be shown, with the reason
    running: Sequence[Note]
    failed: Sequence[CohortRow]

    @classmethod
    def of(cls, store: Store) -> "Status":
        where, found = at(store.path), sections(store)
        experiments = [
            ExperimentStatus(
                section.name,
                " && ".join(command + where for command in section.command.split(" && ")) if section.command else "",
                len(section.records),
                section.left,
                time_left(store, section) if section.left else None,
            )
            for section in found
        ]
        running = [note for note in progress_notes(folder_of(store.path)) if note.alive]
        return cls(store.path, experiments, store.unreadable(), running, given_up(store))

    def lines(self) -> Iterator[str]:
        """A line for each experiment, then one for each cohort in training."""
        yield from (each.line() for each in self.experiments)
        for name, why in self.unreadable.items():
            yield cannot_be_read(name, why)
        if not self.experiments:
            yield f"{self.store}: no experiment was asked for yet"
        for note in self.running:
            yield f"running: {note.title}{_how_far(note)} ({note.where})"
        for row in self.failed:
            yield f"failed: {row.title}, {row.failed}: {row.reason}"

    def to_json(self) -> dict[str, Any]:
        return {
            "experiments": [each.to_json() for each in self.experiments],
            "unreadable": [{"name": name, "reason": why} for name, why in self.unreadable.items()],
            "running": [_running(note) for note in self.running],
            "failed": [{"cohort": row.title, "time": row.failed, "reason": row.reason} for row in self.failed],
        }


def _running(note: Note) -> dict[str, Any]:
    far = note.progress
    plain = {"cohort": note.title, "process": note.process, "machine": note.machine}
    where = {"task": far.task + 1, "tasks": far.tasks, "step": far.step, "steps": far.steps} if far else {}
    return plain | where


def _how_far(note: Note) -> str:
    if note.progress is None:
        return ""
    share = 100 * note.progress.step / note.progress.steps
    return f", task {note.progress.task + 1} of {note.progress.tasks}, {share:.0f}%"


def cannot_be_read(name: str, why: str) -> str:
    """The line for a stored experiment that cannot be shown."""
    return f"{name}: cannot be read ({why}); its runs are safe, and giving its command again repairs it."


def time_left(store: Store, section: Section) -> timedelta | None:
    """The time left, one cohort after another, estimated from runs of the same method, or of any method."""
    taken: dict[tuple[str, bool], list[float]] = defaultdict(list)  # held-out data have few tasks
    for held_out, results in ((False, section.results), (True, section.validation)):
        for result in results:
            taken[result.cell.method.name, held_out] += [record.seconds for record in result.records]
    if not taken:
        return None
    overall = mean(value for values in taken.values() for value in values)
    wanted: dict[tuple[str, bool], int] = defaultdict(int)
    for cell in store.experiments()[section.name]["cells"]:
        wanted[cell["spec"]["method"]["name"], cell.get("validation", False)] += len(cell["seeds"])
    total = 0.0
    for kind, runs in wanted.items():
        done = len(taken.get(kind, []))
        total += (runs - done) * (mean(taken[kind]) if done else overall)
    return timedelta(seconds=max(1, round(total)))
