"""Runs made from Python are stored, reported and reused like those of the command line."""

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiment_lab import alter, count
from tiny_lab import SETTINGS, Ended, arrays, with_option

import threefold
from threefold import Dataset, Split
from threefold.experiments import Result, executor
from threefold.watch.view import View

Cli = Callable[..., Ended]
STORE = ["--store", "a.db"]
GIVEN: dict[str, Any] = {"scenario": "class", "method": "ewc:strength=5", "seeds": 2, "store": "a.db"}
GIVEN |= {"iters": 6, "hidden": 8, "batch": 16, "device": "cpu"}
WORDS = ["run", "split", "--data", "tiny.npz", "--tasks", "2", "--scenario", "class", "--method", "ewc:strength=5"]
WORDS += ["--seeds", "2", *SETTINGS, *STORE]  # the same
NAME = "run split-tiny, 6 iterations"


@pytest.fixture
def result(lab: Path) -> Result:
    return threefold.run(Split(threefold.load("tiny.npz"), 2), **GIVEN)


def untrained(*_: object) -> None:
    raise AssertionError("a run that is in the store was trained again")


def test_status_the_report_and_the_live_page_show_it(result: Result, cli: Cli) -> None:
    assert cli("status", *STORE) == (0, f"{NAME}: 2 of 2 runs done\n", "")
    (row,) = csv.DictReader(io.StringIO(cli("report", *STORE, "--format", "csv").out))
    assert (row["experiment"], row["written"], row["scenario"]) == (NAME, "ewc:strength=5.0", "Class-IL")
    mean = sum(sum(record.matrix[-1]) / 2 for record in result.records) / 2
    assert float(row["mean"]) == pytest.approx(mean)
    parts = View(Path("a.db")).look()
    assert "All that was asked for is done." in parts["now"]
    assert f"{mean:.2f}" in parts["e0"]


def test_the_same_run_on_the_command_line_finds_it(result: Result, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "train", untrained)
    (found,) = json.loads(cli(*WORDS, "--json").out)["results"]
    assert found["accuracy_matrix"] == [record.matrix for record in result.records]
    assert cli("status", *STORE).out == f"{NAME}: 2 of 2 runs done\n"


def test_python_finds_what_the_command_line_trained(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = json.loads(cli(*WORDS, "--json").out)["results"]
    monkeypatch.setattr(executor, "train", untrained)
    again = threefold.run(Split(threefold.load("tiny.npz"), 2), **GIVEN)
    assert [record.matrix for record in again.records] == found["accuracy_matrix"]


def test_what_is_left_of_it_is_told_with_a_command_that_trains_it(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Dataset.from_arrays(**arrays(classes=10, train=400), name="mnist")
    monkeypatch.setattr("threefold.experiments.request.load", lambda name, report: small)
    threefold.run("split-mnist", **GIVEN)
    alter(lab / "a.db", "DELETE FROM runs WHERE json_extract(record, '$.spec.seed') = 2")
    line = cli("status", *STORE).out
    assert line.startswith("run split-mnist, 6 iterations: 1 of 2 runs done, 1 left, about ")
    program, *words = shlex.split(line.rpartition("about ")[2].partition(": ")[2])
    assert program == "threefold"
    assert cli(*words).status == 0
    assert count(lab / "a.db") == 2
    assert cli("status", *STORE).out == "run split-mnist, 6 iterations: 2 of 2 runs done\n"


@pytest.mark.usefixtures("result")
def test_where_no_command_trains_all_of_it_none_is_shown(lab: Path, cli: Cli) -> None:
    """Data of one's own may have come from anywhere; the same call goes on."""
    told = "some of it was asked for in Python; ask for it there again"
    alter(lab / "a.db", "DELETE FROM runs WHERE json_extract(record, '$.spec.seed') = 2")
    assert cli("status", *STORE).out == f"{NAME}: 1 of 2 runs done, 1 left, about 0:00:01: {told}\n"
    assert cli(*with_option(WORDS, "--seeds", "3-3")).status == 0
    assert cli("status", *STORE).out == f"{NAME}: 2 of 3 runs done, 1 left, about 0:00:01: {told}\n"
    assert cli("report", *STORE).status == 0
