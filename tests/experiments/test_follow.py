"""A stored experiment follows its file: cells removed from the file are no longer shown."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_files import TOP, requested, small_data, write
from tiny_lab import Ended

import threefold
from threefold.cli.summary import shortened
from threefold.experiments import Section, sections
from threefold.experiments.status import Status
from threefold.report import render
from threefold.report.tables import result_tables
from threefold.results import Store, merge

Cli = Callable[..., Ended]
THREE = f"""{TOP}
[[methods]]
method = "none"
scenarios = ["class"]
[[methods]]
method = "ewc"
scenarios = ["class"]
with = {{ strength = [1, 10] }}
note = "A note."
"""
TWO = THREE.replace("[1, 10]", "10")
RUN = ("experiment", "mine.toml", "--device", "cpu", "--store", "a.db")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_data(tmp_path, monkeypatch)


def remembered(store: str = "a.db") -> Section:
    with Store(store, readonly=True) as opened:
        (section,) = sections(opened)
    return section


def seeds(section: Section) -> dict[str, list[int]]:
    """The seeds that are asked for, by method: those that are trained, and as many more as are lacking."""
    found = {}
    with closing(sqlite3.connect("a.db")) as store:
        ((text,),) = store.execute("SELECT asked FROM experiments").fetchall()
    for cell in json.loads(text)["cells"]:
        found[cell["method"]] = cell["seeds"]
    assert len(found) == len(section.cells)
    return found


def follow(text: str, **options: object) -> Section:
    with Store("a.db") as store:
        requested(text, **options).remember(store)
    return remembered()


def test_what_was_taken_out_of_the_file_is_no_longer_shown_counted_or_corrected_for(cli: Cli) -> None:
    write(THREE.replace("seeds = 3", "seeds = 5"))
    assert cli(*RUN).status == 0
    assert len(result_tables(remembered())[0].significance[0].comparisons) == 3
    write(TWO.replace("seeds = 3", "seeds = 5"))
    assert cli(*RUN).status == 0
    section = remembered()
    ((column,),) = [board.significance for board in result_tables(section)]
    (pair,) = column.comparisons
    assert pair.p_holm == pair.difference.p, "one pair needs no correction"
    for kind in ("markdown", "csv", "html"):
        assert "strength=1)" not in render([section], kind)
    assert cli("status", "--store", "a.db").out == "mine: 10 of 10 runs done\n"
    with closing(sqlite3.connect("a.db")) as store:
        assert store.execute("SELECT count(*) FROM runs").fetchone() == (15,), "the rows stay"
    write(THREE.replace("seeds = 3", "seeds = 5"))
    assert cli(*RUN).status == 0
    assert len(remembered().results) == 3, "and are found again"


def test_remarks_and_refusals_follow_the_file() -> None:
    with_xdg = THREE + '[[methods]]\nmethod = "xdg"\nscenarios = ["task", "class"]\n'
    assert len(follow(with_xdg).refused) == 1
    section = follow(TWO)
    assert (section.refused, list(section.notes)) == ([], ["ewc:strength=10.0"])


def test_rows_have_the_order_of_the_file() -> None:
    follow(TWO)
    section = follow(THREE)
    assert list(seeds(section)) == ["none", "ewc:strength=1.0", "ewc:strength=10.0"]


def test_all_of_the_file_is_remembered_also_when_some_of_it_is_trained(cli: Cli) -> None:
    write(THREE)
    ended = cli(*RUN, "--only", "none")
    assert ended.status == 0
    assert "EWC" not in ended.out, "of which nothing is trained"
    section = remembered()
    assert (len(section.cells), len(section.results), section.left) == (3, 1, 6)
    assert section.command == "threefold experiment mine.toml --device cpu"
    (line,) = cli("status", "--store", "a.db").out.splitlines()
    assert line.startswith("mine: 3 of 9 runs done, 6 left, ")
    assert line.endswith(": threefold experiment mine.toml --device cpu --store a.db")


def test_a_stopped_command_counts_its_own_runs(cli: Cli) -> None:
    write(THREE)
    ended = cli(*RUN, "--only", "none", "--time-limit", "0.000001")
    assert (ended.status, ended.err) == (
        3,
        "threefold: stopped with 3 runs left; run the same command again to continue.\n",
    )


def test_a_cell_has_the_seeds_of_both_commands() -> None:
    follow(TWO, seeds="1-2")
    section = follow(THREE, seeds="2-4")
    assert seeds(section) == {"none": [1, 2, 3, 4], "ewc:strength=1.0": [2, 3, 4], "ewc:strength=10.0": [1, 2, 3, 4]}
    commands = [f"threefold experiment mine.toml --seeds {which} --device cpu" for which in ("1-2", "2-4")]
    assert section.command == " && ".join(commands)
    assert follow(THREE, seeds="4").command == "threefold experiment mine.toml --seeds 4 --device cpu"


@pytest.mark.parametrize(
    ("before", "now", "shown"),
    [
        ("seeds = 5", "seeds = 3", [1, 2, 3]),
        ("seeds = '1-3'", "seeds = '3-5'", [3, 4, 5]),
        ("seeds = 2", "seeds = 4", [1, 2, 3, 4]),
        ("seeds = 2\norders = 2", "seeds = 2", [1, 2]),
    ],
)
def test_seeds_that_were_taken_out_of_the_file_are_no_longer_shown(before: str, now: str, shown: list[int]) -> None:
    follow(TWO.replace("seeds = 3", before))
    section = follow(TWO.replace("seeds = 3", now))
    assert seeds(section) == {"none": shown, "ewc:strength=10.0": shown}
    assert section.left == 2 * len(shown)


def test_seeds_of_a_command_stay_as_long_as_the_file_keeps_its_own() -> None:
    follow(TWO, seeds="7-8")
    assert seeds(follow(TWO))["none"] == [1, 2, 3, 7, 8]
    assert seeds(follow(TWO.replace("seeds = 3", "seeds = 4")))["none"] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "changed",
    [
        ("iters = 6", "iters = 7"),
        ("iters = 6", "iters = 6\nlr = 0.1"),
        ("hidden = 8", "hidden = 9"),
        ("tasks = 2", "tasks = 1"),
        ("tasks = 2", "tasks = 2\nnormalize = true"),
    ],
    ids=lambda pair: pair[1],
)
def test_a_changed_setting_is_another_experiment_of_the_same_name(changed: tuple[str, str]) -> None:
    before = follow(TWO)
    assert TWO.count(changed[0]) == 1
    after = follow(TWO.replace(*changed))
    old, new = ([cell.spec() for cell in section.cells] for section in (before, after))
    assert len(old) == len(new) == 2
    assert not [spec for spec in new if spec in old]
    assert [cell.spec() for cell in follow(TWO).cells] == old


def test_a_list_that_is_shortened_is_followed() -> None:
    assert len(follow(TWO.replace("iters = 6", "iters = 6\nlr = [0.1, 0.01, 0.001]")).cells) == 6
    section = follow(TWO.replace("iters = 6", "iters = 6\nlr = [0.1, 0.001]"))
    assert sorted(cell.lr for cell in section.cells) == [0.001, 0.001, 0.1, 0.1]


def test_another_device_is_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device and the precision are the command's: what was trained elsewhere stays beside it."""
    follow(TWO)
    changed: dict[str, Any] = {}

    def moved(before: Mapping[str, Any], asked: object) -> Mapping[str, Any]:
        for cell in before["cells"]:
            cell["spec"]["training"] |= {"device": "cuda", "precision": "tf32"}
        changed.update(before)
        return before

    with Store("a.db") as store:
        store.remember("mine", {}, moved)
    assert len(changed["cells"]) == 2
    section = follow(THREE)
    rows = [row for _, row in result_tables(section)[0].rows]
    assert rows == [
        *("None (precision=fp32, device=cpu)", "None (precision=tf32, device=cuda)"),
        "EWC (strength=1)",
        *("EWC (strength=10, precision=fp32, device=cpu)", "EWC (strength=10, precision=tf32, device=cuda)"),
    ]
    assert len(follow(TWO.replace("iters = 6", "iters = 7")).cells) == 2, "but another length is another file"


def test_merging_unites_what_two_stores_were_asked_for() -> None:
    follow(TWO)
    with Store("b.db") as store:
        requested(THREE, seeds="5").remember(store)
    merge("a.db", ["b.db"])
    assert seeds(remembered())["ewc:strength=10.0"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, []),
        ({"iters": 4}, ["4 of 6 iterations per task"]),
        ({"iters": 60}, []),
        ({"seeds": "2"}, ["2 of 3 seeds"]),
        ({"seeds": "4-6"}, []),
        ({"seeds": "9"}, []),
        ({"quick": True}, ["5 of 6 iterations per task", "1 of 2 tasks", "4 of 8 units per layer", "1 of 3 seeds"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("data", ["small.npz", None])
def test_a_users_experiment_is_measured_by_its_own_file(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object], told: list[str], data: str | None
) -> None:
    """On MNIST, too: six iterations are what is meant."""
    text = THREE + "[quick]\niters = 5\nhidden = 4\ntasks = 1\nseeds = 1\n"
    if data is None:
        own = threefold.Dataset.from_arrays(**dict(np.load("small.npz")), name="mnist")
        monkeypatch.setattr("threefold.experiments.experiment_request.load", lambda *_, **__: own)
        text = text.replace('data = "small.npz"', 'data = "mnist"')
    section = follow(text, **options)
    assert list(section.shortened) == told
    sentence = shortened(section, Path("a.db"))
    full = "threefold experiment mine.toml --device cpu --store a.db"
    assert sentence == (f"This was shortened: {', '.join(told)}. In full: {full}" if told else "")
    assert ("Shortened: " in render([section], "markdown")) == bool(told)
    assert ("Shortened: " in render([section], "html")) == bool(told)


@pytest.mark.parametrize("quick", [False, True])
def test_a_width_that_the_file_gives_its_network_is_whole(quick: bool) -> None:
    networks = 'network = ["mlp", "mlp:width=3", "mlp:width=500", "mlp:depth=3"]'
    text = THREE.replace("hidden = 8", networks) + "[quick]\niters = 6\nhidden = 4\n"
    assert networks in text
    told = list(follow(text, quick=quick, seeds="3").shortened)
    assert told == (["4 of 400 units per layer"] if quick else []), "of the first alone"


def test_seeds_of_two_commands_together_are_all_of_the_files() -> None:
    assert list(follow(THREE, seeds="1").shortened) == ["1 of 3 seeds"]
    assert list(follow(THREE, seeds="2-3").shortened) == []
    assert list(follow(THREE.replace("seeds = 3", "seeds = 4")).shortened) == []


def test_what_is_left_to_do_is_not_shortened() -> None:
    section = follow(THREE)
    assert (section.left, list(section.shortened)) == (9, [])


@pytest.mark.parametrize("full", [5, None, [], {"iters": "x", "seeds": None, "tasks": 1.5}, {"other": 7}])
def test_a_length_from_elsewhere_that_is_none_is_passed_over(full: object) -> None:
    follow(THREE)

    def spoilt(before: Mapping[str, Any], asked: object) -> Mapping[str, Any]:
        return {**before, "cells": [cell | {"full": full} for cell in before["cells"]]}

    with Store("a.db") as store:
        store.remember("mine", {}, spoilt)
        assert list(Status.of(store).lines())
    assert list(remembered().shortened) == []
