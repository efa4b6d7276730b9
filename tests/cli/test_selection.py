"""Reporting, exporting and forgetting some of the runs in a store."""

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from small_lab import EXPERIMENT, RUNS
from tiny_lab import Ended, refusal

from threefold.results import Store

Cli = Callable[..., Ended]
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "3", "--hidden", "8", "--batch", "16", "--iters", "6"]
RUN += ["--device", "cpu", "--store", "a.db"]


def kept(store: str = "a.db") -> list[tuple[str, str, int]]:
    with Store(store, readonly=True) as opened:
        specs = [record.spec for record in opened.all()]
    return [(spec["method"]["name"], spec["scenario"]["name"], spec["seed"]) for spec in specs]


def test_a_report_of_some_cells_shows_them_alone(place: Path, cli: Cli) -> None:
    whole = cli("report", "--store", "a.db", "--format", "csv").out
    some = cli("report", "--store", "a.db", "--format", "csv", "--only", "ewc,class").out
    rows = [line for line in some.splitlines() if "EWC" in line or "None" in line]
    assert rows
    assert not [line for line in rows if "None" in line or "Task-IL" in line]
    assert len(some) < len(whole)


def test_an_export_of_some_runs_holds_them_alone(place: Path, cli: Cli) -> None:
    said = cli("export", "csv", "-", "--store", "a.db", "--only", "none,task").out
    rows = list(csv.DictReader(said.splitlines()))
    assert {(row["method"], row["scenario"]) for row in rows} == {("none", "task")}
    assert len({row["key"] for row in rows}) == 2


def test_experiments_are_chosen_by_name(place: Path, cli: Cli) -> None:
    assert cli(*RUN, "--scenario", "class", "--method", "lwf", "--seeds", "1").status == 0
    names = [line.split(":")[0] for line in cli("status", "--store", "a.db").out.splitlines()]
    assert names[0] == "tiny"
    assert len(names) == 2
    found = cli("export", "csv", "-", "--store", "a.db", "--experiment", names[1]).out
    assert {row["method"] for row in csv.DictReader(found.splitlines())} == {"lwf"}
    assert "LwF" not in cli("report", "--store", "a.db", "--experiment", "tiny").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--experiment", "tinny"], "experiment 'tinny' is not known; did you mean 'tiny'?"),
        (["export", "csv", "x.csv", "--only", "lwff"], "only 'lwff' is not known"),
        (["forget"], "forget needs experiment, only or older-than"),
        (["forget", "--older-than", "-1"], "older-than must be a number of days from 0 on, got -1."),
        (["forget", "--older-than", "nan"], "older-than must be a number of days from 0 on, got nan."),
        (["forget", "--experiment", "tiny"], "nobody can answer here; use --yes."),
    ],
)
def test_what_cannot_be_chosen_is_a_sentence(place: Path, cli: Cli, words: list[str], said: str) -> None:
    before = kept()
    assert said in refusal(cli(*words, "--store", "a.db"))
    assert kept() == before


def test_runs_of_a_method_are_forgotten_and_can_be_trained_again(place: Path, cli: Cli) -> None:
    with Store("a.db", readonly=True) as opened:
        before = {record.key: record.matrix for record in opened.all()}
    ended = cli("forget", "--only", "ewc", "--yes", "--store", "a.db")
    assert ended.out == "a.db: 12 runs forgotten.\n"
    assert {method for method, _, _ in kept()} == {"none"}
    assert "6 of 18 runs done" in cli("status", "--store", "a.db").out
    assert cli(*EXPERIMENT, "a.db").status == 0
    with Store("a.db", readonly=True) as opened:
        assert {record.key: record.matrix for record in opened.all()} == before


def test_an_experiment_is_forgotten_but_for_what_another_shows(place: Path, cli: Cli) -> None:
    assert cli(*RUN, "--scenario", "class", "--method", "none", "--seeds", "2").status == 0  # two of the small one's
    assert len(kept()) == RUNS
    ended = cli("forget", "--experiment", "tiny", "--yes", "--store", "a.db")
    assert ended.out == "a.db: 16 runs and the experiment tiny forgotten.\n"
    assert sorted(kept()) == [("none", "class", 1), ("none", "class", 2)]
    with Store("a.db", readonly=True) as opened:
        assert list(opened.experiments()) != ["tiny"]


def test_old_runs_are_forgotten(place: Path, cli: Cli) -> None:
    with Store("a.db", readonly=True) as opened:
        first, *others = opened.all()
    old = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    with Store("b.db") as opened:
        opened.add([replace(first, created=old), *others])
    assert cli("forget", "--older-than", "2", "--yes", "--store", "b.db").out == "b.db: 1 run forgotten.\n"
    assert len(kept("b.db")) == RUNS - 1
    assert cli("forget", "--older-than", "2", "--yes", "--store", "b.db").out == "b.db: no run fits.\n"


@pytest.mark.parametrize(("answer", "left"), [("n\n", RUNS), ("y\n", RUNS - 6)])
def test_it_asks_first(place: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    class Typed:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr(sys, "stdin", Typed())
    monkeypatch.setattr("builtins.input", lambda prompt="": answer.strip())
    ended = cli("forget", "--only", "none", "--store", "a.db")
    assert ended.status == 0
    assert len(kept()) == left


def test_a_store_that_cannot_be_written_loses_nothing(place: Path, cli: Cli) -> None:
    with Store("a.db") as opened:
        keys = [record.key for record in opened.all()]
        with opened.writing() as connection:
            connection.execute("CREATE TRIGGER stop BEFORE DELETE ON experiments BEGIN SELECT RAISE(ABORT, 'no'); END")
    assert cli("forget", "--experiment", "tiny", "--yes", "--store", "a.db").status == 2
    with Store("a.db", readonly=True) as opened:
        assert [record.key for record in opened.all()] == keys
    assert json.dumps(keys)
