"""Which cohorts are in progress, and in which process: a table in the store, so that claiming is a transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sqlite3 import Connection

from threefold.results.database import StoreBusy
from threefold.results.record import utc_now
from threefold.results.store import Store

PATIENCE = 1.0  # seconds: a process that locks the store for longer may hang, and the waiting one must stay stoppable


@dataclass(frozen=True)
class CohortRow:
    """A cohort that was started and whose runs are not in the store yet."""

    name: str
    title: str
    runs: tuple[str, ...]  # their keys, in order
    owner: str | None  # name of the lock of the process that trains it
    failed: str | None  # when it failed for good
    reason: str | None


def cohort_rows(store: Store) -> list[CohortRow]:
    with store.reading() as connection:
        rows = connection.execute("SELECT name, title, runs, owner, failed, reason FROM cohorts").fetchall()
    return [_row(*row) for row in rows]


def _row(name: object, title: object, runs: object, *rest: object) -> CohortRow:
    """A row, with every field as text, whatever another program may have written."""
    texts = (None if value is None else str(value) for value in rest)
    return CohortRow(str(name), str(title), tuple(str(runs).split()), *texts)


def claim(
    store: Store, name: str, title: str, runs: Sequence[str], owner: str, alive: Callable[[str], bool]
) -> list[CohortRow] | None:
    """Claim a cohort. If live processes train some of its runs, it is not claimed, and their cohorts are returned.

    None: the store stayed locked by another process.
    """
    try:
        with store.writing(PATIENCE) as connection:
            others = [row for row in cohort_rows(store) if row.owner not in (None, owner)]
            theirs = [row for row in others if not set(runs).isdisjoint(row.runs) and alive(str(row.owner))]
            if not theirs:
                connection.execute(
                    "INSERT OR REPLACE INTO cohorts (name, title, runs, owner) VALUES (?, ?, ?, ?)",
                    (name, title, " ".join(runs), owner),
                )
            return theirs
    except StoreBusy:
        return None


def give_up(store: Store, name: str, reason: str) -> None:
    """Record why this cohort is no longer trained."""
    with store.writing() as connection:
        connection.execute(
            "UPDATE cohorts SET owner = NULL, failed = ?, reason = ? WHERE name = ?", (utc_now(), reason, name)
        )


def forget(connection: Connection, name: str) -> None:
    """This cohort is no longer in progress."""
    connection.execute("DELETE FROM cohorts WHERE name = ?", (name,))


def given_up(store: Store) -> list[CohortRow]:
    """Cohorts that failed, with time and reason, as long as any of their runs are missing."""
    found = [row for row in cohort_rows(store) if row.failed and row.reason]
    return [row for row in found if store.has(row.runs) != set(row.runs)]
