"""The table of cohorts in progress: each run is claimed by one process at a time."""

import random
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sample_runs import a_run

from threefold.errors import ThreefoldError
from threefold.results import Store, cohort_table
from threefold.results.cohort_table import CohortRow, claim, cohort_rows, forget, give_up, given_up


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.db"


@pytest.fixture
def store(path):
    with Store(path) as store:
        yield store


def take(store, name, runs, owner="me", alive=lambda owner: True):
    return claim(store, name, f"title of {name}", runs.split(), owner, alive)


def test_a_cohort_is_kept_as_it_was_cut(store):
    assert take(store, "a", "3 1 2") == []
    assert cohort_rows(store) == [CohortRow("a", "title of a", ("3", "1", "2"), "me", None, None)]


def test_who_is_in_the_way_is_answered_and_nothing_is_taken(store):
    take(store, "a", "1 2", "one")
    take(store, "b", "5 6", "two")
    before = cohort_rows(store)
    assert [row.name for row in take(store, "c", "2 3 5")] == ["a", "b"]
    assert [row.name for row in take(store, "a", "1 2")] == ["a"]
    assert cohort_rows(store) == before
    assert take(store, "c", "3 4") == []


def test_the_dead_and_we_ourselves_are_in_nobodys_way(store):
    asked = []

    def alive(owner):
        asked.append(owner)
        return owner != "dead"

    take(store, "a", "1 2", "dead")
    take(store, "b", "5 6", "me")
    take(store, "d", "8 9", "far away")
    assert take(store, "a", "1 2", "me", alive) == []
    assert take(store, "c", "2 3 5", "me", alive) == []
    assert asked == ["dead"], "who has nothing in common is not looked for"
    assert {row.name: row.owner for row in cohort_rows(store)} == {"a": "me", "b": "me", "c": "me", "d": "far away"}


def test_what_was_given_up_is_told_until_it_is_stored(store):
    runs = [a_run(1), a_run(2)]
    take(store, "a", " ".join(run.key for run in runs))
    assert given_up(store) == []
    give_up(store, "a", "it broke")
    (row,) = given_up(store)
    assert (row.title, row.reason, row.owner) == ("title of a", "it broke", None)
    assert row.failed.startswith("20")
    store.add(runs[:1])
    assert len(given_up(store)) == 1
    store.add(runs)
    assert given_up(store) == []


@pytest.mark.parametrize("column", ["title", "failed", "reason", "owner"])
@pytest.mark.parametrize("value", ["7", "x'ff'", "''", "0.5"])
def test_whatever_is_in_a_row_is_text(store, column, value):
    take(store, "a", "1 2")
    give_up(store, "a", "it broke")
    with store.writing() as connection:
        connection.execute(f"UPDATE cohorts SET {column} = {value}")
    for row in given_up(store):
        assert all(isinstance(text, str) and text for text in (row.failed, row.reason))
        assert isinstance(row.title, str)
        assert isinstance(row.owner, str | None)


def test_what_is_begun_again_was_not_given_up(store):
    take(store, "a", "1 2")
    give_up(store, "a", "it broke")
    assert take(store, "a", "1 2", "another") == []
    assert given_up(store) == []
    with store.writing() as connection:
        forget(connection, "a")
    assert cohort_rows(store) == []


def test_a_locked_store_is_not_waited_for_long(store, path, monkeypatch):
    monkeypatch.setattr(cohort_table, "PATIENCE", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        assert take(store, "a", "1 2") is None
        assert time.monotonic() - start < 5
        other.execute("ROLLBACK")
    assert take(store, "a", "1 2") == []
    assert store._connection.execute("PRAGMA busy_timeout").fetchone() == (60_000,), "others are waited for as before"


def test_a_store_for_reading_takes_nothing(path):
    Store(path).close()
    with Store(path, readonly=True) as store:
        assert cohort_rows(store) == []
        with pytest.raises(ThreefoldError, match="was opened for reading"):
            take(store, "a", "1 2")


def test_no_run_is_ever_taken_by_two(path):
    Store(path).close()
    guard, held, taken = threading.Lock(), set(), []

    def work(number):
        moments = random.Random(number)
        with Store(path) as store:
            for turn in range(40):
                runs = sorted(moments.sample("abcdefgh", moments.randint(1, 4)))
                name = f"{number} {turn}"
                if take(store, name, " ".join(runs), str(number)) != []:  # others have it, or have the store for long
                    continue
                with guard:
                    assert held.isdisjoint(runs)
                    held.update(runs)
                    taken.append(number)
                time.sleep(0.001)
                with guard:
                    held.difference_update(runs)
                with store.writing() as connection:
                    forget(connection, name)

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, number) for number in range(4)]:
            each.result(60)
    assert len(set(taken)) > 1, "they met: on a busy machine one of the four may never get a turn"
