"""What a store keeps and gives back."""

import math
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_runs import a_diverged_run, a_run

from threefold.results import Record, Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "threefold.db"


def files(path):
    return {place.name: place.read_bytes() for place in path.parent.iterdir()}


def test_what_is_added_comes_back(path):
    runs = [a_run(1), a_diverged_run(2)]
    with Store(path) as store:
        assert store.get(runs[0].key) is None
        assert store.add(runs) == set()
        assert [store.get(run.key) for run in runs] == runs
    with Store(path) as store:
        assert list(store.all()) == runs
        assert math.isnan(store.get(runs[1].key).metrics["forgetting"])


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.floats(0, 100), min_size=12, max_size=12),
    seconds=st.floats(allow_infinity=False, allow_nan=False),
    text=st.text("aé\u2028\0😀\"'\\", max_size=6),
)
def test_every_bit_comes_back(tmp_path, values, seconds, text):
    run = a_run(
        1,
        method=text,
        initial=values[:3],
        matrix=[values[3:6], values[6:9], values[9:]],
        timings={text: seconds},
        environment={text: [text, 0.1]},
    )
    with Store(tmp_path / "any.db") as store:
        store._connection.execute("DELETE FROM runs")
        store.add([run])
        assert store.get(run.key) == run


def test_a_key_that_is_there_keeps_its_row(path):
    first = a_run(1)
    with Store(path) as store:
        store.add([first])
        assert store.add([a_run(1, timings={"train": 99.0}), a_run(2)]) == {first.key}
        assert store.get(first.key) == first
        assert store.add([a_run(3), a_run(3)]) == {a_run(3).key}
        assert [run.spec["seed"] for run in store.all()] == [1, 2, 3]


def test_a_cohort_is_stored_whole_or_not_at_all(path):
    bad = a_run(3, timings={"train": math.inf})  # JSON has no infinity

    def breaks_off():
        yield a_run(4)
        raise RuntimeError("the generator broke")

    with Store(path) as store:
        for records, error in (([a_run(1), bad], ValueError), (breaks_off(), RuntimeError)):
            with pytest.raises(error):
                store.add(records)
        store._connection.execute(
            "CREATE TRIGGER late BEFORE INSERT ON runs WHEN json_extract(NEW.record, '$.spec.seed') = 7"
            " BEGIN SELECT raise(ABORT, 'no sevens'); END"
        )
        with pytest.raises(Exception, match="no sevens"):
            store.add([a_run(6), a_run(7)])
        assert list(store.all()) == []
        store.add([a_run(8)])
        assert len(list(store.all())) == 1


def test_has_answers_for_thousands_of_keys(path):
    runs = [a_run(seed) for seed in range(1, 1201)]
    absent = [a_run(seed).key for seed in range(2001, 2601)]
    with Store(path) as store:
        store.add(runs)
        assert store.has(run.key for run in runs[::2]) == {run.key for run in runs[::2]}
        assert store.has([*absent, runs[0].key]) == {runs[0].key}
        assert store.has([]) == set()


def test_a_spec_without_the_usual_fields_is_kept_too(path):
    run = Record("k", {"shape": [1, 2]}, "finished", [1.0], [[2.0]], {}, {})
    with Store(path) as store:
        store.add([run])
        assert store.get("k") == run


def test_a_seed_beyond_64_bits_is_kept(path):
    runs = [a_run(2**64), a_run(2**64 + 1), a_run(2**63 - 1)]
    with Store(path) as store:
        store.add(runs)
        assert [store.get(run.key) for run in runs] == list(store.all()) == runs


def test_runs_may_be_added_while_others_are_read(path):
    with Store(path) as store, Store(path, readonly=True) as reader:
        store.add([a_run(1), a_run(2)])
        for run in store.all():
            store.add([a_run(run.spec["seed"] + 10)])
        assert len(list(reader.all())) == 4


def test_the_file_is_marked_and_in_wal_mode(path):
    Store(path).close()
    with sqlite3.connect(path) as connection:
        marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "journal_mode")]
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    connection.close()
    assert marks == [3, "wal"]
    assert application_id.to_bytes(4, "big") == b"3FLD"


def test_opening_writes_nothing_when_nothing_needs_writing(path):
    with Store(path) as store:
        store.add([a_run(1)])
    before, changed = files(path), path.stat().st_mtime_ns
    for readonly in (False, True):
        with Store(path, readonly=readonly) as store:
            assert store.has([a_run(1).key])
        assert files(path) == before
        assert path.stat().st_mtime_ns == changed


def test_a_creation_that_was_cut_short_is_taken_up(path):
    path.touch()
    Store(path).close()
    half = path.with_name("half.db")
    connection = sqlite3.connect(half)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with Store(half) as store:
        store.add([a_run(1)])
        assert list(store.all()) == [a_run(1)]


@pytest.mark.parametrize("name", ["with space.db", "a?mode=memory.db", "50%25#x.db", "ü😀.db", ":memory:"])
def test_any_file_name_will_do(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with Store(name) as store:
        store.add([a_run(1)])
    assert [place.name for place in tmp_path.iterdir()] == [name]
    with Store(name, readonly=True) as store:
        assert list(store.all()) == [a_run(1)]
