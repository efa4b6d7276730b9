"""`--json` of whole experiments: one document on stdout, the same for every command, with what is done and left."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_lab import EXPERIMENT, RUNS
from tiny_lab import Ended, refusal

from threefold.experiments import sections
from threefold.report.tables import result_tables
from threefold.results import Store

Cli = Callable[..., Ended]


def document(ended: Ended) -> Any:
    assert (ended.status, ended.err) == (0, "")
    return json.loads(ended.out)


def test_report_and_experiment_print_the_same_document(place: Path, cli: Cli) -> None:
    first = cli("report", "--json", "--store", "a.db")
    (found,) = document(first)["experiments"]
    assert cli(*EXPERIMENT, "a.db", "--json") == first
    assert cli("report", "--format", "json", "-o", "-", "--store", "a.db") == first
    assert (found["name"], found["title"], found["kind"]) == ("tiny", "Small", "table")
    assert (found["done"], found["left"], found["lacking"], found["statements"]) == (RUNS, 0, [], [])


def test_the_page_shows_the_fields_of_every_document(place: Path, cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (shown,) = json.loads(text)["experiments"]
    (whole,) = document(cli("report", "--json", "--store", "a.db"))["experiments"]
    words = ["run", "split", "--data", "tiny.npz", "--tasks", "3", "--hidden", "8", "--batch", "16", "--iters", "6"]
    one = document(cli(*words, "--scenario", "class", "--seeds", "2", "--device", "cpu", "--store", "a.db", "--json"))
    assert list(shown) == list(whole) == [name for name in one if name != "unit"]
    for made in (whole, one):
        assert set(shown["results"][0]) == set(made["results"][0])
    assert one["results"][0] in whole["results"], "run says of a cell what report says"


def test_each_cell_has_its_place_its_settings_and_the_accuracy_of_each_seed(place: Path, cli: Cli) -> None:
    (found,) = document(cli("report", "--json", "--store", "a.db"))["experiments"]
    with Store("a.db", readonly=True) as store:
        records = {record.key: record for record in store.all()}
        (table,) = result_tables(sections(store)[0])
    assert len(found["results"]) == len(table.at) == 9
    for each in found["results"]:
        cell = table.at[each["row"], each["column"]]
        spec = each["spec"]
        assert spec["seeds"] == [1, 2]
        own = [
            record
            for record in records.values()
            if {**record.spec, "seed": 0} == {**{k: v for k, v in spec.items() if k != "seeds"}, "seed": 0}
        ]
        last = [sum(record.matrix[-1]) / 3 for record in sorted(own, key=lambda record: record.spec["seed"])]
        assert each["accuracy"]["per_seed"] == pytest.approx(last)
        assert each["accuracy"]["mean"] == pytest.approx(sum(last) / 2)
        assert each["judgement"] == cell.judgement == "nothing published"


def test_a_stopped_experiment_prints_what_it_has_and_what_is_left(place: Path, cli: Cli) -> None:
    stopped = cli(*EXPERIMENT, "a.db", "--json", "--seeds", "5", "--time-limit", "0.000001")
    assert (stopped.status, stopped.err) == (
        3,
        "threefold: stopped with 27 runs left; run the same command again to continue.\n",
    )
    (found,) = json.loads(stopped.out)["experiments"]
    assert (found["done"], found["left"]) == (RUNS, 27)
    assert [each["runs"] for each in found["lacking"]] == [3] * 9
    (told,) = document(cli("status", "--json", "--store", "a.db"))["experiments"]
    assert (told["name"], told["done"], told["left"]) == ("tiny", RUNS, 27)
    assert told["command"].endswith(" --seeds 5 --device cpu --store a.db")
    assert told["seconds_left"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--json", "--format", "csv"], "json is set, but format is 'csv'; give one of them."),
        (["report", "--json", "--experiment", "tinny"], "did you mean 'tiny'?"),
        (["status", "--json", "--store", "none.db"], "store 'none.db' does not exist"),
        (["reproduce", "tabel4", "--json"], "experiment 'tabel4' is not known; did you mean 'table4'?"),
        (["experiment", "tiny.tml", "--json"], "experiment 'tiny.tml' cannot be read"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_no_document(place: Path, cli: Cli, words: list[str], said: str) -> None:
    if "--store" not in words:
        words = [*words, "--store", "a.db"]
    assert said in refusal(cli(*words))


def test_the_status_of_an_empty_store(lab: Path, cli: Cli) -> None:
    Store("a.db").close()
    empty = {"experiments": [], "unreadable": [], "running": [], "failed": []}
    assert document(cli("status", "--json", "--store", "a.db")) == empty
