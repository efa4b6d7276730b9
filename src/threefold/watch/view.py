"""A store and its locks as the parts of a page."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from threefold.errors import ThreefoldError
from threefold.experiments import sections
from threefold.experiments.in_progress import folder_of
from threefold.experiments.status import time_left
from threefold.report.formatting import duration
from threefold.report.html import Arranged, arrange, part, table_anchor, templates
from threefold.results import Record, Store
from threefold.results.cohort_table import CohortRow, given_up
from threefold.watch.progress import Pace

PATIENCE = 10.0  # seconds to wait for a locked store; then the page says so and tries again
Stamp = tuple[tuple[int, int, int] | None, ...]


class View:
    """The view of a store, which is read again only if it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pace = Pace(folder_of(path))
        self._known: dict[str, Record] = {}
        self._stamp: Stamp | None = None
        self._found: list[Arranged] = []
        self._left: dict[str, str] = {}
        self._failed: list[CohortRow] = []
        self._parts: dict[str, str] = {}
        self._folded: dict[str, Callable[[], str]] = {}

    def look(self) -> dict[str, str]:
        """The parts of the page, by name, in order."""
        trouble, stamp = None, self._stamped()
        if stamp != self._stamp:
            try:
                self._read()
                self._stamp = stamp  # from before reading, so that later changes are seen the next time
            except ThreefoldError as error:
                trouble = str(error) if self.path.exists() else None
        return {"now": self._now(trouble), **self._parts}

    def unfold(self, name: str) -> str | None:
        """The content of a part that is collapsed until it is opened."""
        make = self._folded.get(name)
        return make() if make else None

    def _stamped(self) -> Stamp:
        """Identity, size and modification time of the store's file, and of its write-ahead log."""
        stats = []
        for path in (self.path, Path(f"{self.path}-wal")):
            try:
                found = path.stat()
                stats.append((found.st_ino, found.st_mtime_ns, found.st_size))
            except OSError:
                stats.append((0, 0, 0))
        return tuple(stats)

    def _read(self) -> None:
        with _ReadOnce(self.path, self._known) as store:
            self._found = arrange(sections(store))
            self._failed = given_up(store)
            lefts = {each.section.name: time_left(store, each.section) for each in self._found if each.section.left}
        self._left = {
            name: f"about {duration(rest.total_seconds())}" if rest else "time not known yet"
            for name, rest in lefts.items()
        }
        self._parts = {"summary": part("summary", self._found)} if self._found else {}
        for each in self._found:
            self._parts[each.name] = part("experiment", each, True)
        if self._found:
            self._parts["closing"] = part("closing", self._found)
        self._folded = {}
        for table in (table for each in self._found for table in each.tables):
            self._folded[table_anchor(table, "forgetting")] = partial(part, "curves", table)
            for cell in table.cells:
                name = table_anchor(table, cell.row, cell.column)
                self._folded[name] = partial(part, "inside", cell, name)

    def _now(self, trouble: str | None) -> str:
        cohorts = self._pace.look(time.time())
        left = [(each.section, self._left[each.section.name]) for each in self._found if each.section.left]
        done = sum(len(each.section.records) for each in self._found)
        return templates.get_template("watch/now.html").render(
            trouble=trouble,
            running=[cohort for cohort in cohorts if cohort.note.alive],
            killed=[cohort for cohort in cohorts if not cohort.note.alive] if left else [],
            failed=self._failed,
            left=left,
            done=done,
            exists=self.path.exists(),
            store=self.path,
        )


class _ReadOnce(Store):
    """A store opened for reading that caches runs, as rows never change."""

    def __init__(self, path: Path, known: dict[str, Record]) -> None:
        super().__init__(path, readonly=True, patience=PATIENCE)
        self._known = known
        for key in set(known) - self.has(known):  # the file was replaced
            del known[key]

    def get(self, key: str) -> Record | None:
        if key not in self._known and (record := super().get(key)):
            self._known[key] = record
        return self._known.get(key)
