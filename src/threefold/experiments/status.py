"""What is done, running, failed and left."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from statistics import mean

from threefold.experiments.command import at
from threefold.experiments.in_progress import folder_of
from threefold.experiments.lock import Note, progress_notes
from threefold.experiments.section import Section, sections
from threefold.results import Store
from threefold.results.cohort_table import given_up


def status_of(store: Store) -> Iterator[str]:
    """A line for each experiment, then one for each cohort in training."""
    found = sections(store)
    where = at(store.path)
    for section in found:
        done = len(section.records)
        line = f"{section.name}: {done} of {done + section.left} runs done"
        if section.left:
            rest = time_left(store, section)
            when = "time not known yet" if rest is None else f"about {rest}"
            line += f", {section.left} left, {when}: {_command(section, where)}"
        yield line
    for name, why in store.unreadable().items():
        yield cannot_be_read(name, why)
    if not found:
        yield f"{store.path}: no experiment was asked for yet"
    for note in progress_notes(folder_of(store.path)):
        if note.alive:
            yield f"running: {note.title}{_how_far(note)} ({note.where})"
    for row in given_up(store):
        yield f"failed: {row.title}, {row.failed}: {row.reason}"


def _command(section: Section, where: str) -> str:
    """The commands that train the rest, each with its store."""
    if not section.command:
        return "some of it was asked for in Python; ask for it there again"
    return " && ".join(command + where for command in section.command.split(" && "))


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
