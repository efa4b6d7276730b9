"""Opens the SQLite file of a store safely, and explains in a sentence why it cannot be opened or written.

Everything about the file itself is here, so that `store` only deals with runs. The file must never be opened except
through SQLite: closing any other handle on it would drop the locks this process holds (POSIX).
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from threefold.errors import ThreefoldError

STORE_FORMAT = 3
APPLICATION_ID = 0x33464C44  # "3FLD": distinguishes a store from other programs' databases

SCHEMA = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, record TEXT NOT NULL, sum TEXT NOT NULL
    )""",  # record: the run as JSON
    "CREATE TABLE experiments (name TEXT PRIMARY KEY, asked TEXT NOT NULL)",
    # in progress: the keys of its runs in order, the lock of the process that trains it, and why it failed
    """CREATE TABLE cohorts (
        name TEXT PRIMARY KEY, title TEXT NOT NULL, runs TEXT NOT NULL, owner TEXT, failed TEXT, reason TEXT
    )""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {STORE_FORMAT}",
)


class StoreBusy(ThreefoldError):
    """Another process kept the store locked for longer than we wait."""


def open_for_writing(path: Path, patience: float) -> sqlite3.Connection:
    """A connection to the store, which is created if there is none. A file that cannot be written is refused now, not
    after hours of training."""
    with explained(path, patience):
        _refuse_special(path)
        folder = path.absolute().parent
        if not folder.is_dir():
            why = "is a file" if folder.exists() else "does not exist"
            raise ThreefoldError(f"store '{path}' cannot be created: '{folder}' {why}; it must be an existing folder.")
        for place in (folder, path):
            if place.exists() and not os.access(place, os.W_OK):
                raise ThreefoldError(f"store '{path}' cannot be written: '{place}' is read-only; give another file.")
    with _connected(path, "mode=rwc", patience) as connection:
        connection.execute("PRAGMA synchronous = FULL")  # stored runs survive a power cut too
        if _is_empty(connection):
            _create(connection, patience)
        _check_format(connection, path)
    return connection


def open_for_reading(path: Path, patience: float) -> sqlite3.Connection:
    """A connection that cannot change a row, and leaves no file behind when it is closed.

    SQLite reads a WAL database by means of two files next to it. A `mode=ro` connection creates them and may not
    delete them; a writable one that only queries cleans up. A file we may not write is opened as immutable, which
    needs no such files, unless a write-ahead log next to it shows that its owner is active.
    """
    with explained(path, patience):
        _refuse_special(path)
        if not path.exists():
            raise ThreefoldError(f"store '{path}' does not exist; give the file of a store that holds results.")
        log = Path(f"{path}-wal")
        if os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK):
            mode = "mode=rw"
        elif log.exists() and log.stat().st_size > 0:
            mode = "mode=ro"
        else:
            mode = "mode=ro&immutable=1"
    with _connected(path, mode, patience) as connection:
        connection.execute("PRAGMA query_only = ON")
        if _is_empty(connection):
            raise ThreefoldError(f"store '{path}' is empty; give the file of a store that holds results.")
        _check_format(connection, path)
    return connection


def file_id(path: Path) -> tuple[int, int] | None:
    """The identity of the file at this path: its device and inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction, which takes the write lock at the start, where waiting for it is safe.

    Inside another transaction it is a part of that one."""
    joined = connection.in_transaction
    if joined:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path, patience: float) -> Iterator[None]:
    """Turn SQLite's or the system's errors about the file into one sentence. Errors in our own calls pass unchanged."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        kind = StoreBusy if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else ThreefoldError
        raise kind(f"store '{path}' {_sentence(error, path, patience)}") from error
    except OSError as error:
        raise ThreefoldError(f"store '{path}' cannot be reached: {error.strerror}; give another file.") from error


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF  # the high bits only add detail


def _sentence(error: sqlite3.Error, path: Path, patience: float) -> str:
    safe = "nothing stored so far is lost"
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"was locked by another process for {patience:g} s; wait until that one is done, or end it; {safe}."
        case sqlite3.SQLITE_FULL:
            return f"cannot grow: the disk is full; make room and run the same command again; {safe}."
        case sqlite3.SQLITE_NOTADB:
            return "is not a database; give a file that threefold wrote, or a name that is not in use."
        case sqlite3.SQLITE_CORRUPT:
            return "is a damaged database; restore a copy, or save what is left with `sqlite3 FILE .recover`."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return f"cannot be opened ({error}); '{path.absolute().parent}' must be a folder that can be written to."
        case sqlite3.SQLITE_IOERR:
            name = getattr(error, "sqlite_errorname", error)
            return f"met an error of the disk ({name}); check that disk and the room left on it; {safe}."
    return f"cannot be used: SQLite says '{error}'; give another file, or restore a copy of this one."


def _refuse_special(path: Path) -> None:
    if path.is_dir():
        raise ThreefoldError(f"store '{path}' is a folder; give a file, such as '{path / 'threefold.db'}'.")
    if path.exists() and not path.is_file():
        raise ThreefoldError(f"store '{path}' is a device or pipe; give a file.")


@contextmanager
def _connected(path: Path, mode: str, patience: float) -> Iterator[sqlite3.Connection]:
    """A connection that is closed only if an error is raised here."""
    with explained(path, patience):
        uri = f"{path.absolute().as_uri()}?{mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=patience, isolation_level=None)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise


def _pragma(connection: sqlite3.Connection, statement: str) -> object:
    with closing(connection.execute(f"PRAGMA {statement}")) as cursor:
        return cursor.fetchone()[0]


def _is_empty(connection: sqlite3.Connection) -> bool:
    """No tables and no format marks: a new file, or one whose creation was interrupted."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    marks = {_pragma(connection, "application_id"), _pragma(connection, "user_version")}
    return {tables} | marks == {0}


def _create(connection: sqlite3.Connection, patience: float) -> None:
    prefer_wal(connection, patience)
    with transaction(connection):
        if _is_empty(connection):  # another process may have been first
            for statement in SCHEMA:
                connection.execute(statement)
    take_in_log(connection)


def take_in_log(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file itself, as people copy only that. Call it after a transaction."""
    if not connection.in_transaction:
        connection.execute("PRAGMA wal_checkpoint")


def prefer_wal(connection: sqlite3.Connection, patience: float) -> str:
    """Request write-ahead logging, where readers and a writer do not block each other; returns the actual mode.

    On network file systems without shared memory SQLite keeps its rollback journal, which is as safe and only waits
    more. The mode is stored in the file, so this is done once. Unlike other statements this one does not always wait
    for a lock, hence the loop.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return str(_pragma(connection, "journal_mode = WAL"))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise ThreefoldError(
            f"store '{path}' is the database of another program; give a file that threefold wrote, or a new name."
        )
    found = _pragma(connection, "user_version")
    if found != STORE_FORMAT:
        newer = isinstance(found, int) and found > STORE_FORMAT
        remedy = "use that newer version" if newer else "give another file"
        raise ThreefoldError(
            f"store '{path}' has format {found}, {'newer' if newer else 'older'} than the {STORE_FORMAT} that this "
            f"version of threefold reads and writes; {remedy}; the file was not touched."
        )
    tables = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    if not tables.issuperset(statement for statement in SCHEMA if statement.startswith("CREATE")):
        raise ThreefoldError(  # a view in a table's place can make reading take for ever
            f"store '{path}' does not have the tables of a store; give a file that threefold wrote."
        )
