"""`threefold run --json`: one document on stdout and nothing else anywhere; nothing is trained twice."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_lab import SETTINGS, Ended, arrays, leftovers, with_option, write_npz

from threefold.engine import Checkpoint, Replicas
from threefold.experiments import executor
from threefold.methods import METHODS
from threefold.results import Store
from threefold.results.metrics import measure

Cli = Callable[..., Ended]
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "2", *SETTINGS, "--json"]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The seeds of each cohort that was trained."""
    real, cohorts = executor.train, []

    def spy(stream: object, asked: Sequence[Replicas], *rest: object) -> object:
        cohorts.append([seed for replicas in asked for seed in replicas.seeds])
        return real(stream, asked, *rest)

    monkeypatch.setattr(executor, "train", spy)
    return cohorts


def document(ended: Ended) -> Any:
    """The one document that a command printed, and it printed nothing else."""
    assert (ended.status, ended.err) == (0, "")
    return json.loads(ended.out)


def test_one_document_holds_every_combination(lab: Path, cli: Cli) -> None:
    made = document(cli(*RUN, "--method", "none", "--method", "offline", "--seeds", "3"))
    assert (made["unit"], made["done"], made["left"]) == ("per cent", 18, 0)
    assert made["refused"] == []
    combinations = [(r["spec"]["method"]["name"], r["spec"]["scenario"]["name"]) for r in made["results"]]
    assert combinations == [(m, s) for m in ("none", "offline") for s in ("task", "domain", "class")]
    for result in made["results"]:
        assert result["spec"]["seeds"] == [1, 2, 3]
        assert result["spec"]["training"] == {"iters": 6, "batch": 16, "precision": "fp32", "device": "cpu"}
        mlp = {"depth": 2, "width": 8, "activation": "relu"}
        assert result["spec"]["network"] == {"name": "mlp", "hyperparameters": mlp}
        adam = {"lr": 0.001, "reset": False, "betas": [0.9, 0.999], "weight_decay": 0.0}
        assert result["spec"]["optimizer"] == {"name": "adam", "hyperparameters": adam}
        assert np.shape(result["accuracy_matrix"]) == (3, 2, 2)
        assert np.shape(result["initial_accuracy"]) == (3, 2)
        assert (result["diverged_seeds"], result["published"], result["verdict"]) == ([], None, None)
        assert (result["stream"], result["judgement"]) == ("split-tiny", "nothing published")
        assert result["row"] == {"none": "None", "offline": "Offline"}[result["spec"]["method"]["name"]]


def test_means_and_standard_errors_are_those_of_the_seeds(lab: Path, cli: Cli) -> None:
    for result in document(cli(*RUN, "--seeds", "4"))["results"]:
        assert result["accuracy"] == result["metrics"]["average_accuracy"]
        for summary in result["metrics"].values():
            per_seed = summary["per_seed"]
            assert len(per_seed) == 4
            if None in per_seed:  # a metric of tests during training, of which there were none
                assert per_seed == [None] * 4
                assert summary["mean"] is None
                continue
            assert summary["mean"] == pytest.approx(np.mean(per_seed))
            assert summary["sem"] == pytest.approx(np.std(per_seed, ddof=1) / 2)
        for seed, (initial, matrix) in enumerate(
            zip(result["initial_accuracy"], result["accuracy_matrix"], strict=True)
        ):
            expected = {name: None if math.isnan(v) else v for name, v in measure(initial, matrix).items()}
            assert {name: s["per_seed"][seed] for name, s in result["metrics"].items()} == expected


def test_numbers_that_do_not_exist_are_null(lab: Path, cli: Cli) -> None:
    """One seed has no standard error, one task no forgetting; JSON has no NaN."""
    (result,) = document(cli(*with_option(RUN, "--tasks", "1"), "--scenario", "class", "--seeds", "1"))["results"]
    assert result["accuracy"]["sem"] is None
    assert result["metrics"]["forgetting"] == {"mean": None, "sem": None, "per_seed": [None]}


def test_a_second_run_trains_nothing_and_prints_the_same_bytes(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cli(*RUN, "--seeds", "2")
    document(first)

    def untouched(*_: object, **__: object) -> None:
        raise AssertionError("a run that is in the store was trained again")

    monkeypatch.setattr(executor, "train", untouched)
    assert cli(*RUN, "--seeds", "2") == first
    assert document(cli(*RUN, "--seeds", "2,1"))["results"][0]["spec"]["seeds"] == [2, 1]


def test_only_missing_seeds_are_trained(lab: Path, cli: Cli, trained: list[list[int]]) -> None:
    few = document(cli(*RUN, "--scenario", "class", "--seeds", "2-4"))["results"][0]
    many = document(cli(*RUN, "--scenario", "class", "--seeds", "6"))["results"][0]
    assert trained == [[2, 3, 4], [1, 5, 6]]
    assert many["accuracy_matrix"][1:4] == few["accuracy_matrix"]
    document(cli(*RUN, "--scenario", "all", "--seeds", "6"))
    assert trained[2:] == [[1, 2, 3, 4, 5, 6]] * 2  # the two other scenarios


@pytest.mark.parametrize(
    "other",
    [
        ["--iters", "7"],
        ["--hidden", "9"],
        ["--lr", "0.01"],
        ["--batch", "15"],
        ["--tasks", "1"],
        ["--data", "other.npz"],
        ["--method", "picky:strength=2"],
    ],
    ids=lambda words: " ".join(words),
)
@pytest.mark.usefixtures("picky")
def test_whatever_determines_a_run_is_part_of_its_key(
    lab: Path, cli: Cli, trained: list[list[int]], other: list[str]
) -> None:
    write_npz(lab / "other.npz", train_x=1 - arrays()["train_x"])
    base = [*RUN, "--scenario", "task", "--seeds", "1", "--method", "picky"]
    document(cli(*base))
    document(cli(*with_option(base, *other)))
    assert trained == [[1], [1]]


@pytest.mark.usefixtures("picky")
def test_refused_combinations_are_listed_with_their_reason(lab: Path, cli: Cli) -> None:
    made = document(cli(*RUN, "--method", "none", "--method", "picky", "--seeds", "1"))
    assert len(made["results"]) == 4
    assert [{name: value for name, value in each.items() if name != "spec"} for each in made["refused"]] == [
        {"scenario": name, "method": "picky", "reason": f"Picky must be told the task [always]; in {title} it is not."}
        for name, title in (("domain", "Domain-IL"), ("class", "Class-IL"))
    ]


@pytest.mark.usefixtures("picky")
def test_one_method_may_be_compared_with_itself_at_other_hyperparameters(lab: Path, cli: Cli) -> None:
    asked = [word for strength in (1, 2, 2) for word in ("--method", f"picky:strength={strength}")]
    made = document(cli(*RUN, "--scenario", "task", *asked, "--seeds", "1"))
    strengths = [r["spec"]["method"]["hyperparameters"]["picky"]["strength"] for r in made["results"]]
    assert strengths == [1.0, 2.0]


def test_all_methods_are_those_of_the_registry(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: entry for name, entry in METHODS.items() if name in ("none", "offline")}
    monkeypatch.setattr("threefold.methods.METHODS", known)
    made = document(cli(*RUN, "--method", "all", "--scenario", "class", "--seeds", "1"))
    assert [r["spec"]["method"]["name"] for r in made["results"]] == list(known)


def test_the_store_is_where_it_was_asked_for(lab: Path, cli: Cli) -> None:
    document(cli(*RUN, "--scenario", "class", "--seeds", "2", "--store", "mine.db"))
    assert not (lab / "threefold.db").exists()
    with Store("mine.db", readonly=True) as store:
        specs = [record.spec for record in store.all()]
    assert [(spec["stream"]["name"], spec["seed"]) for spec in specs] == [("split-tiny", 1), ("split-tiny", 2)]


def test_a_leftover_of_a_process_killed_after_storing_goes(lab: Path, cli: Cli) -> None:
    """Between storing and tidying up is a moment in which one can be killed too."""

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    first = cli(*RUN, "--scenario", "class", "--seeds", "2", "--store", "fresh.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "discard", killed)
        with pytest.raises(Killed):
            cli(*RUN, "--scenario", "class", "--seeds", "2")
    (path,) = (lab / "threefold.db.checkpoints").glob("*.pt")
    half = path.with_suffix(".0123.tmp")
    half.write_bytes(b"half of a checkpoint")
    assert cli(*RUN, "--scenario", "class", "--seeds", "2") == first
    assert leftovers(lab / "threefold.db") == []


def test_a_damaged_checkpoint_is_named_set_aside_and_not_used(lab: Path, cli: Cli) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    fresh = cli(*RUN, "--scenario", "class", "--seeds", "2", "--store", "fresh.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "records_of", killed)
        with pytest.raises(Killed):
            cli(*RUN, "--scenario", "class", "--seeds", "2")
    (path,) = (lab / "threefold.db.checkpoints").glob("*.pt")
    path.write_bytes(path.read_bytes()[:100])
    again = cli(*RUN, "--scenario", "class", "--seeds", "2")
    assert (again.status, again.out) == (0, fresh.out)
    assert again.err.count("\n") == 1
    assert again.err.startswith(f"threefold: checkpoint {path.relative_to(lab)} was damaged; it was set aside as ")
    (aside,) = leftovers(lab / "threefold.db")
    assert aside.endswith(".damaged")
    assert aside in again.err


def test_diverged_seeds_are_told_and_have_no_mean(lab: Path, cli: Cli) -> None:
    words = [*RUN[:-1], "--scenario", "class", "--seeds", "2", "--lr", "1e30"]
    (result,) = document(cli(*words, "--json"))["results"]
    assert result["diverged_seeds"] == [1, 2]
    assert result["accuracy"] == {"mean": None, "sem": None, "per_seed": [None, None]}
    shown = cli(*words)
    assert (shown.status, shown.err) == (0, "")
    assert "diverged" in shown.out
    told = "None in Class-IL: 2 of 2 seeds diverged (1, 2), so there is no mean; give a smaller learning rate."
    assert told in shown.out
