"""The store of finished runs: one SQLite file, one row for each run, shared by any number of processes."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from threefold.errors import ThreefoldError
from threefold.reading import parse_json
from threefold.results.database import (
    explained,
    file_id,
    open_for_reading,
    open_for_writing,
    take_in_log,
    transaction,
)
from threefold.results.kept_networks import KeptNetworks
from threefold.results.record import Record, checksum
from threefold.results.schema import check_experiment

Unite = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]  # an earlier request, and a new one
_SELECT = "SELECT key, record, sum FROM runs"
_INSERT = "INSERT INTO runs (key, record, sum) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING"
_KEYS_AT_ONCE = 500  # SQLite before 3.32 takes no more than 999 values in one statement


class Store:
    """The results of all runs so far.

    `Store(path)` creates the file if there is none; `Store(path, readonly=True)` creates nothing and cannot write.
    Existing rows are never changed. Many processes may have the same file open; they wait for each other up to
    `patience` seconds. Use a store in one thread of one process, and close it (it is a context manager).
    """

    def __init__(self, path: str | PathLike[str], *, readonly: bool = False, patience: float = 60.0) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self._patience = patience
        self._connection = (open_for_reading if readonly else open_for_writing)(self.path, patience)
        self._place = self.path.absolute()
        self._file = file_id(self._place)

    def close(self) -> None:
        if not self.readonly and not self.in_place:
            # a moved file leaves its log behind, which would be taken for that of the next file of this name
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for queries."""
        with explained(self.path, self._patience):
            yield self._connection

    @contextmanager
    def writing(self, patience: float | None = None) -> Iterator[sqlite3.Connection]:
        """A transaction, in the file that must still be at the store's path."""
        if self.readonly:
            raise ThreefoldError(f"store '{self.path}' was opened for reading; open it for writing.")
        wait = self._patience if patience is None else patience
        with explained(self.path, wait):
            self._connection.execute(f"PRAGMA busy_timeout = {1000 * wait:.0f}")
            try:
                with transaction(self._connection):
                    self.check_in_place()
                    yield self._connection
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * self._patience:.0f}")

    @property
    def in_place(self) -> bool:
        """Is the opened file still at its path? What is written to a deleted file is lost."""
        return file_id(self._place) == self._file

    def check_in_place(self) -> None:
        if not self.in_place:
            raise ThreefoldError(
                f"store '{self.path}' was moved, deleted or replaced while this command was using it; put it back, or "
                "give its new name, and give the same command again; checkpoints were kept, nothing was overwritten."
            )

    def get(self, key: str) -> Record | None:
        """The run with this key, or None."""
        with explained(self.path, self._patience):
            row = self._connection.execute(f"{_SELECT} WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._record(row)

    def has(self, keys: Iterable[str]) -> set[str]:
        """Those of `keys` that are in the store."""
        asked = list(keys)
        found: set[str] = set()
        with explained(self.path, self._patience):
            for start in range(0, len(asked), _KEYS_AT_ONCE):
                some = asked[start : start + _KEYS_AT_ONCE]
                marks = ", ".join("?" * len(some))
                rows = self._connection.execute(f"SELECT key FROM runs WHERE key IN ({marks})", some)
                found.update(key for (key,) in rows)
        return found

    def add(self, records: Iterable[Record]) -> set[str]:
        """Store these runs, all of them or, on any error, none.

        Rows of keys that exist already are kept; returns the set of such keys.
        """
        rows = [_row(record) for record in records]  # invalid records raise before the lock is taken
        present: set[str] = set()
        with self.writing() as connection:
            for row in rows:
                if connection.execute(_INSERT, row).rowcount == 0:
                    present.add(row[0])
        with self.reading() as connection:
            take_in_log(connection)
        return present

    def forget(self, keys: Iterable[str], experiments: Iterable[str] = ()) -> int:
        """Remove these runs, and the requests of these names: all of them or, on any error, none.

        Then the networks that the runs kept; returns how many."""
        keys = list(keys)
        with self.writing() as connection:
            connection.executemany("DELETE FROM runs WHERE key = ?", ((key,) for key in keys))
            connection.executemany("DELETE FROM experiments WHERE name = ?", ((name,) for name in experiments))
        with self.reading() as connection:
            take_in_log(connection)
        return KeptNetworks(self.path).forget(keys)

    def all(self) -> Iterator[Record]:
        """Every run, in the order of insertion."""
        with explained(self.path, self._patience):
            rows = self._connection.execute(f"{_SELECT} ORDER BY id").fetchall()
        return map(self._record, rows)

    def remember(self, name: str, asked: Mapping[str, Any], unite: Unite | None = None) -> None:
        """Store a request under this name, so that it can be reported and counted later.

        `unite` makes one of it and an earlier request of its name, unless that cannot be read (`unreadable`)."""
        text = json.dumps(asked, allow_nan=False)
        with self.writing() as connection:
            found = connection.execute("SELECT asked FROM experiments WHERE name = ?", (name,)).fetchone()
            if found is not None and found[0] == text:
                return
            before, _ = _asked(name, found[0]) if unite and found else (None, "")
            if unite and before:
                text = json.dumps(unite(before, asked), allow_nan=False)
            connection.execute(
                "INSERT INTO experiments VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET asked = excluded.asked",
                (name, text),
            )
        with self.reading() as connection:
            take_in_log(connection)

    def experiments(self) -> dict[str, dict[str, Any]]:
        """All requests by name, oldest first, without those that cannot be read (`unreadable`)."""
        return {name: asked for name, (asked, _) in self._experiments() if asked is not None}

    def unreadable(self) -> dict[str, str]:
        """The experiments that cannot be read, by name, and why."""
        return {str(name): why for name, (_, why) in self._experiments() if why}

    def _experiments(self) -> Iterator[tuple[str, tuple[dict[str, Any] | None, str]]]:
        with explained(self.path, self._patience):
            rows = self._connection.execute("SELECT name, asked FROM experiments ORDER BY rowid").fetchall()
        return ((name, _asked(name, asked)) for name, asked in rows)

    def _record(self, row: tuple[str, str, str]) -> Record:
        key, text, total = row
        try:
            if _sum(key, text) != total:
                raise ValueError("its sum does not fit, so something in it was changed")
            return Record.from_json(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ThreefoldError(
                f"store '{self.path}' holds a damaged row (key '{key}': {error}); delete it from the table"
                " runs, and the run can be trained again."
            ) from error


def _asked(name: object, text: Any) -> tuple[dict[str, Any] | None, str]:
    """A stored request, or None and what is wrong with it."""
    why = _trouble(name, text)
    return (None, why) if why else (json.loads(text), "")


@lru_cache(maxsize=64)
def _trouble(name: object, text: Any) -> str:
    """Why a request cannot be read; empty if it can. Cached, as it is called often for the same text."""
    try:
        check_experiment(name, parse_json(text))
    except (ValueError, TypeError) as error:
        return str(error)
    return ""


def _row(record: Record) -> tuple[str, str, str]:
    text = json.dumps(record.to_json(), allow_nan=False)
    return record.key, text, _sum(record.key, text)


def _sum(key: object, text: object) -> str:
    return checksum(f"{key} {text}".encode("utf-8", "surrogatepass"))
