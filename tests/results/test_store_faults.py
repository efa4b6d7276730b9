"""Everything that can be wrong with a store's file: one sentence that names it, and nothing lost."""

import sqlite3
import threading
from pathlib import Path

import pytest
from sample_runs import a_run, asked_for

from threefold.errors import ThreefoldError
from threefold.results import Store
from threefold.results.database import prefer_wal


@pytest.fixture
def path(tmp_path):
    """A store with two runs."""
    path = tmp_path / "threefold.db"
    with Store(path) as store:
        store.add([a_run(1), a_run(2)])
    return path


def sentence(error, path):
    """The message, after the checks every message must pass."""
    text = str(error.value)
    assert text.startswith(f"store '{path}' ")
    assert text.endswith(".")
    assert "\n" not in text
    return text


def alter(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def refused(path, *, readonly=False, **options):
    """Opening is refused and the folder is as it was; the sentence."""
    folder = path.parent if path.parent.is_dir() else path.parent.parent
    before = {place: place.read_bytes() for place in folder.iterdir() if place.is_file()} if folder != Path("/") else {}
    with pytest.raises(ThreefoldError) as error:
        Store(path, readonly=readonly, **options)
    assert {place: place.read_bytes() for place in folder.iterdir() if place.is_file() and before} == before
    return sentence(error, path)


@pytest.mark.parametrize("readonly", [False, True])
class TestRefusedEitherWay:
    def test_a_text_file(self, tmp_path, readonly):
        path = tmp_path / "notes.txt"
        path.write_text("not a database at all\n" * 50)
        assert "is not a database; give a file" in refused(path, readonly=readonly)

    def test_a_folder(self, tmp_path, readonly):
        path = tmp_path / "folder"
        path.mkdir()
        assert "is a folder; give a file, such as" in refused(path, readonly=readonly)

    def test_a_device(self, readonly):
        with pytest.raises(ThreefoldError) as error:
            Store("/dev/null", readonly=readonly)
        assert "is a device or pipe; give a file" in sentence(error, "/dev/null")

    def test_a_newer_format(self, path, readonly):
        alter(path, "PRAGMA user_version = 99")
        assert "has format 99, newer than the 3" in refused(path, readonly=readonly)

    @pytest.mark.parametrize("version", [2, 1, -3])
    def test_an_older_format(self, path, readonly, version):
        alter(path, f"PRAGMA user_version = {version}")
        assert f"has format {version}, older than the 3" in refused(path, readonly=readonly)

    @pytest.mark.parametrize("version", [0, 1])
    def test_the_database_of_another_program(self, tmp_path, readonly, version):
        path = tmp_path / "places.sqlite"
        alter(path, "CREATE TABLE bookmarks (url TEXT)", f"PRAGMA user_version = {version}")
        assert "is the database of another program" in refused(path, readonly=readonly)

    def test_a_truncated_store(self, path, readonly):
        path.write_bytes(path.read_bytes()[:5000])
        assert "is a damaged database" in refused(path, readonly=readonly)


def test_a_path_below_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    assert f"'{tmp_path / 'file'}' is a file; it must be an existing folder" in refused(tmp_path / "file" / "a.db")


def test_a_folder_that_does_not_exist(tmp_path):
    assert "does not exist; it must be an existing folder" in refused(tmp_path / "no" / "a.db")


def test_a_folder_where_nothing_can_be_created():
    with pytest.raises(ThreefoldError) as error:
        Store("/proc/threefold.db")
    assert "/proc'" in sentence(error, "/proc/threefold.db")


def test_reading_creates_nothing(tmp_path):
    path = tmp_path / "absent.db"
    assert "does not exist; give the file of a store" in refused(path, readonly=True)
    path.touch()
    assert "is empty" in refused(path, readonly=True)
    assert path.stat().st_size == 0


def test_a_store_opened_for_reading_does_not_write(path):
    with Store(path, readonly=True) as store:
        with pytest.raises(ThreefoldError) as error:
            store.add([a_run(3)])
        assert "was opened for reading" in sentence(error, path)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            store._connection.execute("DELETE FROM runs")
        assert len(list(store.all())) == 2


def test_a_name_that_is_too_long(tmp_path):
    assert "cannot be reached: File name too long" in refused(tmp_path / ("x" * 300))


def test_a_full_disk(path):
    cohort = [a_run(seed) for seed in range(100, 200)]
    with Store(path) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(ThreefoldError) as error:
            store.add(cohort)
        assert "the disk is full; make room and run the same command again; nothing" in sentence(error, path)
        assert list(store.all()) == [a_run(1), a_run(2)]
        store._connection.execute("PRAGMA max_page_count = 1000000")
        assert store.add(cohort) == set()
        assert len(list(store.all())) == 102


def test_locked_for_too_long(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store(path, patience=0.2) as store:  # opening and reading do not wait for a writer
        assert len(list(store.all())) == 2
        with pytest.raises(ThreefoldError) as error:
            store.add([a_run(3)])
        assert "was locked by another process for 0.2 s" in sentence(error, path)
        other.execute("COMMIT")
        other.close()
        assert store.add([a_run(3)]) == set()


def test_locked_for_a_while(path):
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.execute, ["COMMIT"])
    with Store(path) as store:
        release.start()
        assert store.add([a_run(3)]) == set()
    release.join()
    other.close()


def test_locked_while_being_created(tmp_path):
    path = tmp_path / "new.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert "was locked by another process for 0.1 s" in refused(path, patience=0.1)
    other.close()
    Store(path, patience=0.1).close()


def test_a_damaged_row_is_named(path):
    key = a_run(2).key
    alter(path, "PRAGMA ignore_check_constraints = ON", f"UPDATE runs SET record = '[[1' WHERE key = '{key}'")
    with Store(path) as store:
        assert store.get(a_run(1).key) == a_run(1)
        with pytest.raises(ThreefoldError) as error:
            store.get(key)
        assert f"damaged row (key '{key}'" in sentence(error, path)


@pytest.mark.parametrize(
    "change",
    [
        "record = replace(record, '2.0', '3.0')",
        "record = replace(record, '10.0', '10.1')",
        "record = replace(record, 'cpu', 'gpu')",
        "record = record || ' '",
        "key = 'x' || key",
        "sum = 'x' || sum",
        "sum = ''",
    ],
)
def test_a_row_that_was_changed_is_noticed(path, change):
    alter(path, f"UPDATE runs SET {change} WHERE id = 2")
    with Store(path) as store:
        assert store.get(a_run(1).key) == a_run(1)
        with pytest.raises(ThreefoldError) as error:
            list(store.all())
    assert "its sum does not fit, so something in it was changed); delete it from the table runs" in sentence(
        error, path
    )


@pytest.mark.parametrize("readonly", [False, True])
def test_a_view_in_the_place_of_a_table_is_not_read(path, readonly):
    """It could make us count for ever."""
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'x' || i AS name, '' AS asked FROM n"
    )
    alter(path, "DROP TABLE experiments", f"CREATE VIEW experiments AS {endless}")
    assert "does not have the tables of a store" in refused(path, readonly=readonly)


def test_a_bad_experiment_is_named_and_the_rest_is_read(path):
    good = asked_for(a_run(1))
    with Store(path) as store:
        store.remember("good", good)
        store.remember("bad", {"cells": 5})
        for name, text in (("deep", "[" * 100_000), ("long", "9" * 5000), ("half", '{"title": '), ("blob", b"\xff")):
            store._connection.execute("INSERT INTO experiments VALUES (?, ?)", (name, text))
        assert store.experiments() == {"good": good}
        assert store.unreadable()["bad"] == "lacks the field title"
        assert set(store.unreadable()) == {"bad", "deep", "long", "half", "blob"}
        for name in store.unreadable():
            store.remember(name, good, lambda before, asked: {})
        assert list(store.experiments().values()) == [good] * 6


def test_damaged_pages_are_named_when_they_are_met(path):
    with Store(path) as store:
        store.add(a_run(seed) for seed in range(100, 300))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\xff" * (size - 4096 * 4))
    with Store(path, readonly=True) as store:
        with pytest.raises(ThreefoldError) as error:
            list(store.all())
        assert "is a damaged database" in sentence(error, path)


def test_a_mistake_in_our_own_calls_is_not_blamed_on_the_file(path):
    store = Store(path)
    store.close()
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.get("k")


def test_where_wal_cannot_be_had_the_journal_serves(tmp_path, monkeypatch):
    """SQLite's dot-file locking has no shared memory, like some network file systems."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda name, **options: connect(f"{name}&vfs=unix-dotfile", **options))
    path = tmp_path / "network.db"
    with Store(path) as store:
        assert prefer_wal(store._connection, 1.0) == "delete"
        store.add([a_run(1)])
    with Store(path) as store, Store(path, readonly=True) as reader:
        store.add([a_run(2)])
        assert list(reader.all()) == [a_run(1), a_run(2)]
