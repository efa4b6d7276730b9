"""Progress bars on stderr, in a terminal or a notebook; nothing elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from threefold.data import Report
from threefold.engine import Progress as CohortProgress
from threefold.experiments.cohort import Cohort, and_others
from threefold.experiments.result import Result
from threefold.experiments.scheduler import Watcher
from threefold.text import printable

LINES = 8  # cohorts in training that are shown, as a cluster has hundreds


class Bars(Watcher):
    """One line for everything, one for each cohort in training, and a permanent line for each finished cell."""

    def __init__(self, cells: int) -> None:
        console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            disable=not (sys.stderr.isatty() or console.is_jupyter),
            transient=True,
        )
        self.whole = self.bars.add_task("all", total=cells, note="")
        self.lines: dict[Cohort, TaskID] = {}
        self.unseen: dict[Cohort, None] = {}  # in training, but without a line

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.bars.stop()

    def cohort(self, cohort: Cohort) -> None:
        self.unseen[cohort] = None
        self._show()

    def progress(self, progress: CohortProgress, cohort: Cohort) -> None:
        if cohort not in self.lines:
            return
        line = self.lines[cohort]
        speed = next(task.speed for task in self.bars.tasks if task.id == line)
        note = f"task {progress.task + 1}/{progress.tasks}"
        if speed:
            note += f" · {speed:.0f} steps/s"
        if progress.accuracy is not None:
            note += f" · {progress.accuracy:.1f}% so far"
        self.bars.update(line, completed=progress.step, total=progress.steps, note=note)

    def ended(self, cohort: Cohort) -> None:
        self.unseen.pop(cohort, None)
        if cohort in self.lines:
            self.bars.remove_task(self.lines.pop(cohort))
        self._show()

    def _show(self) -> None:
        """Show lines for up to `LINES` cohorts, and a count of the rest."""
        while self.unseen and len(self.lines) < LINES:
            cohort = next(iter(self.unseen))
            del self.unseen[cohort]
            cell = cohort.cell
            name = printable(f"{cell.scenario.title} {cell.method.name}{and_others(cohort)}")
            self.lines[cohort] = self.bars.add_task(name, total=None, note="")
        self.bars.update(self.whole, note=f"{len(self.unseen)} more in training" if self.unseen else "")

    def done(self, result: Result) -> None:
        self.bars.advance(self.whole)
        if not self.bars.disable:
            line = printable(f"{result.cell.name}: {result.accuracy}")
            self.bars.console.print(line, highlight=False, markup=False)

    def warn(self, text: str) -> None:
        self.bars.console.print(printable(f"threefold: {text}"), highlight=False, markup=False, soft_wrap=True)

    def tell(self, text: str) -> None:
        Bars.warn(self, text)  # in Python too, where warnings are Python's


@contextmanager
def fetching() -> Iterator[Report]:
    """A bar for each download, on a terminal; and a message for each damaged file, anywhere."""
    console = Console(stderr=True)
    damaged = []
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        console=console,
        disable=not sys.stderr.isatty(),
        transient=True,
    ) as bars:
        known: dict[str, TaskID] = {}

        def report(text: str, done: int, total: int | None, /) -> None:
            if total == 0:  # a remark
                if not bars.disable:
                    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)
                elif text.startswith("damaged"):
                    damaged.append(text)
                return
            if text not in known:
                known[text] = bars.add_task(printable(text), total=total)
            bars.update(known[text], completed=done, total=total)

        yield report
    for text in damaged:  # only on success: an error names them itself
        console.print(printable(f"threefold: {text}"), highlight=False, markup=False, soft_wrap=True)
