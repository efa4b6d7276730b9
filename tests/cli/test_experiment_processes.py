"""Experiments as processes that are killed, stopped, or work side by side: the end is always the same."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experiment_lab import (
    COHORTS,
    RUNS,
    Command,
    beside,
    checkpoints,
    count,
    die_when_stored,
    die_with_little_memory,
    furnish,
    little_memory,
    locks,
    rows,
    server,
    slow_to_plan,
    stuck_in_the_third,
    time_is_over_in_the_third,
    trained,
    write_down_cohorts,
)
from tiny_lab import said_besides_waiting

PROGRAM = Path(sys.executable).parent / "threefold"
EXPERIMENT = ["experiment", "tiny.toml", "--device", "cpu", "--store"]
MORE = r"threefold: stopped with (\d+) runs left; run the same command again to continue\.\n"


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    with server():
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """The rows of a run of the program itself that nothing happened to."""
    folder = furnish(tmp_path_factory.mktemp("undisturbed"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([PROGRAM, *EXPERIMENT, "a.db"], cwd=folder, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Tiny" in ended.stdout
    assert beside(folder / "a.db") == []
    found = rows(folder / "a.db")
    assert len(found) == RUNS
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return furnish(tmp_path)


def finish(folder: Path) -> None:
    """The same command, left alone, comes to its end."""
    with Command(folder, *EXPERIMENT, "a.db") as command:
        ended = command.ended()
    assert (ended.status, ended.err) == (0, "")
    assert beside(folder / "a.db") == []


def test_killed_at_ten_random_moments_it_ends_with_the_rows_of_an_undisturbed_run(
    place: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    store, moments, in_training, progress = place / "a.db", random.Random(4), 0, []
    loading = subprocess.Popen([PROGRAM, *EXPERIMENT, "a.db"], cwd=place)
    time.sleep(moments.uniform(0, 0.5))  # while it imports
    loading.kill()
    assert loading.wait() == -signal.SIGKILL
    assert count(store) == 0
    for number in range(9):
        with Command(place, *EXPERIMENT, "a.db") as command:
            before, known = count(store), checkpoints(store, ".lock", ".pt")
            if number == 0:  # at the very beginning
                time.sleep(moments.uniform(0, 0.1))
            elif number in (3, 6):  # where it stores
                command.wait_until(lambda before=before: count(store) > before)
            else:  # while it trains
                command.wait_until(lambda known=known: checkpoints(store, ".lock", ".pt") - known)
                time.sleep(moments.uniform(0, 0.08))
            in_training += bool(locks(store))
            command.kill()
        progress.append(count(store))
    assert progress == sorted(progress)
    assert progress[-1] < RUNS
    assert in_training >= 6, "most were hit in training"
    finish(place)
    assert rows(store) == undisturbed


def test_killed_right_after_storing_nothing_is_left_behind(place: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    for _ in range(2):
        with Command(place, *EXPERIMENT, "a.db", hook=die_when_stored) as command:
            assert command.ended().status == 9
    assert 0 < count(place / "a.db") < RUNS
    finish(place)
    assert rows(place / "a.db") == undisturbed


def test_a_time_limit_stops_cleanly_and_the_same_command_goes_on(
    place: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    with Command(place, *EXPERIMENT, "a.db", "--time-limit", "60", hook=time_is_over_in_the_third) as command:
        ended = command.ended()
    match = re.fullmatch(MORE, ended.err)
    assert ended.status == 3
    assert match, ended.err
    assert count(place / "a.db") == RUNS - int(match[1]) == 4, "two cohorts of two seeds"
    assert "Tiny" in ended.out, "what there is so far is shown"
    assert set(rows(place / "a.db")) < set(undisturbed)
    assert locks(place / "a.db") == set()
    with Command(place, *EXPERIMENT, "a.db", "--time-limit", "300") as command:
        ended = command.ended()
    assert (ended.status, ended.err) == (0, "")
    assert rows(place / "a.db") == undisturbed
    assert beside(place / "a.db") == []


def test_a_time_limit_counts_from_the_command_on(place: Path) -> None:
    with Command(place, *EXPERIMENT, "a.db", "--time-limit", "1", hook=slow_to_plan) as command:
        ended = command.ended()
    assert ended.status == 3
    assert re.fullmatch(MORE, ended.err)
    assert count(place / "a.db") == 0, "planning used the time up"


def test_stopped_after_each_task_a_cohort_goes_on_from_there(place: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    states = []
    for _ in range(2):
        known = checkpoints(place / "a.db")
        with Command(place, *EXPERIMENT, "a.db", "--only", "dgr") as command:
            command.wait_until(lambda known=known: checkpoints(place / "a.db") - known)
            command.send(signal.SIGINT)
            states.append(command.ended().status)
    assert states == [3, 3]
    assert len(checkpoints(place / "a.db")) == 1
    with Command(place, *EXPERIMENT, "a.db", "--only", "dgr") as command:
        assert command.ended().status == 0
    assert count(place / "a.db") == 2
    assert set(rows(place / "a.db")) < set(undisturbed)
    assert beside(place / "a.db") == []


@pytest.mark.parametrize("limit", ["0", "-1", "nan"])
def test_a_time_limit_that_is_none(place: Path, limit: str) -> None:
    with Command(place, *EXPERIMENT, "a.db", "--time-limit", limit) as command:
        ended = command.ended()
    assert ended.status == 2
    assert re.fullmatch(r"threefold: time-limit must be a number of seconds above 0, got [^\n]*\.\n", ended.err)
    assert not (place / "a.db").exists()


def test_a_second_ctrl_c_stops_at_once_and_loses_no_finished_run(
    place: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    store = place / "a.db"
    with Command(place, *EXPERIMENT, "a.db", hook=stuck_in_the_third) as command:
        command.wait_until(lambda: (place / "stuck").exists())
        command.send(signal.SIGINT)
        time.sleep(0.2)
        assert command.running, "the first waits for the task to be done"
        command.send(signal.SIGINT)
        ended = command.ended()
    said = "threefold: stopped; run the same command again to continue from the last finished task.\n"
    assert ended == (3, "", said)
    assert count(store) == 4
    assert set(rows(store)) < set(undisturbed)
    assert locks(store) == set()
    finish(place)
    assert rows(store) == undisturbed


def test_two_processes_share_the_work(place: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    words = [*EXPERIMENT, "a.db"]
    with (
        Command(place, *words, hook=write_down_cohorts) as one,
        Command(place, *words, hook=write_down_cohorts) as other,
    ):
        ends = [one.ended(), other.ended()]
    assert [(end.status, said_besides_waiting(end)) for end in ends] == [(0, ""), (0, "")]
    assert ends[0].out == ends[1].out, "both show the whole"
    assert rows(place / "a.db") == undisturbed
    assert beside(place / "a.db") == []
    work = trained(place)
    assert len({name for _, name, _ in work}) == len(work) == COHORTS, "no cohort was trained twice"
    assert {pid for pid, _, _ in work} == {one.process.pid, other.process.pid}
    assert sorted(key for _, _, keys in work for key in keys) == [row[0] for row in undisturbed]


def test_a_partner_that_is_killed_is_finished_for(place: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    store = place / "a.db"
    words = [*EXPERIMENT, "a.db"]
    with (
        Command(place, *words, hook=write_down_cohorts) as one,
        Command(place, *words, hook=write_down_cohorts) as other,
    ):
        other.wait_until(lambda: count(store) > 6 and len(locks(store)) == 2)
        other.kill()
        ended = one.ended()
    assert (ended.status, said_besides_waiting(ended)) == (0, "")
    assert rows(store) == undisturbed
    assert beside(store) == []
    work = trained(place)
    twice = len(work) - len({name for _, name, _ in work})
    assert twice <= 1, "only what the dead one had in training"


def test_two_processes_that_see_different_memory_train_no_run_twice(
    place: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    words = [*EXPERIMENT, "a.db"]
    with (
        Command(place, *words, hook=write_down_cohorts) as one,
        Command(place, *words, hook=little_memory) as other,
    ):
        ends = [one.ended(), other.ended()]
    assert [(end.status, said_besides_waiting(end)) for end in ends] == [(0, ""), (0, "")]
    assert beside(place / "a.db") == []
    work = trained(place)
    assert {pid for pid, _, _ in work} == {one.process.pid, other.process.pid}
    assert sorted(key for _, _, keys in work for key in keys) == [row[0] for row in undisturbed]


def test_killed_where_memory_was_little_it_goes_on_where_there_is_plenty(place: Path) -> None:
    store = place / "a.db"
    with Command(place, *EXPERIMENT, "a.db", hook=die_with_little_memory) as command:
        assert command.ended().status == 9
    assert count(store) == 3
    begun = trained(place)[-1][1:]
    assert {name for name, _ in checkpoints(store)} == {f"{begun[0]}.pt"}
    (place / "trained").unlink()
    with Command(place, *EXPERIMENT, "a.db", hook=write_down_cohorts) as command:
        assert command.ended().status == 0
    assert begun in [work[1:] for work in trained(place)], "alone, as it was cut"
    assert sum(len(keys) for _, _, keys in trained(place)) == RUNS - 3
    assert beside(store) == []


def test_a_store_that_is_moved_away_is_told_of_and_nothing_is_lost(
    place: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    store = place / "a.db"
    with Command(place, *EXPERIMENT, "a.db", hook=write_down_cohorts) as command:
        command.wait_until(lambda: count(store) > 4 and checkpoints(store))
        store.rename(place / "b.db")
        ended = command.ended()
    assert (ended.status, ended.out) == (2, "")
    assert re.fullmatch(r"threefold: store 'a\.db' was moved, deleted or replaced [^\n]*\n", ended.err)
    assert not store.exists()
    assert locks(store) == set()
    assert len(checkpoints(store)) <= 1  # none, if a cohort was just stored and the next had finished no task
    assert 4 < count(place / "b.db") < RUNS
    (place / "b.db").rename(store)
    finish(place)
    assert rows(store) == undisturbed
