"""A store under several processes at once, and under kill -9."""

import multiprocessing
import random
import sqlite3
import time
from collections import Counter

from sample_runs import a_run

from threefold.results import Store

COHORT = 5
processes = multiprocessing.get_context("fork")  # the children only use the store; importing all anew would be slow


def sound(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def write_cohorts_for_ever(path, cohort, tell):
    with Store(path) as store:
        while True:
            store.add(a_run(cohort * COHORT + member) for member in range(COHORT))
            tell.send(cohort)
            cohort += 1


def heard(listen):
    """All that a writer told before it died."""
    told = []
    while True:
        try:
            told.append(listen.recv())
        except EOFError:
            return told


def test_a_killed_writer_leaves_whole_cohorts_and_all_it_had_reported(tmp_path):
    path = tmp_path / "threefold.db"
    chance = random.Random(0)
    cohorts = 0
    for number in range(40):
        if number >= 10 and cohorts > 10:
            break
        listen, tell = processes.Pipe(duplex=False)
        writer = processes.Process(target=write_cohorts_for_ever, args=(path, cohorts, tell))
        writer.start()
        tell.close()
        # the shortest ones strike while the store is being created; a busy machine needs longer ones, too
        time.sleep(chance.uniform(0, 0.1 if number < 10 else 1))
        writer.kill()
        told = heard(listen)
        writer.join()
        with Store(path) as store:
            runs = list(store.all())
        assert len(runs) % COHORT == 0
        assert runs == [a_run(seed) for seed in range(len(runs))]
        assert len(runs) // COHORT >= cohorts + len(told)
        assert sound(path)
        cohorts = len(runs) // COHORT
    assert cohorts > 10


def write_shared_and_own(path, process, start, stored):
    """Add twenty runs that all processes add, and twenty that are ours, in mixed cohorts; answer what we stored."""
    start.wait()
    new = set()
    for cohort in range(4):
        shared = [a_run(cohort * COHORT + member) for member in range(COHORT)]
        own = [a_run(1000 * process + run.spec["seed"]) for run in shared]
        with Store(path) as store:
            new |= {run.key for run in shared + own} - store.add(shared + own)
    stored.put(new)


def test_processes_that_create_and_write_one_store_at_once(tmp_path):
    names = range(1, 7)
    shared = {a_run(seed).key for seed in range(20)}
    own = {a_run(1000 * process + seed).key for process in names for seed in range(20)}
    for attempt in range(5):
        path, start, stored = tmp_path / f"{attempt}.db", processes.Event(), processes.Queue()
        writers = [processes.Process(target=write_shared_and_own, args=(path, p, start, stored)) for p in names]
        for writer in writers:
            writer.start()
        start.set()
        new = Counter(key for _ in names for key in stored.get(timeout=60))
        for writer in writers:
            writer.join(timeout=60)
            assert writer.exitcode == 0
        assert new == Counter(shared | own)  # each was stored by exactly one process
        with Store(path, readonly=True) as store:
            assert Counter(run.key for run in store.all()) == new
        assert sound(path)
