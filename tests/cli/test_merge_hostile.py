"""Rows that `merge` accepts never break a report, status, export or the live page; rejected ones write nothing."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_lab import alter
from hostile_rows import File, apart, changed, good_file, places, read_by_all, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_lab import Ended, contents

from threefold.results import Record, Store, pack, run_key

Cli = Callable[..., Ended]

ASKED = (0, "experiments", "mine")
CELL = (*ASKED, "cells", 0)
SPEC = (*CELL, "spec")
EWC = (*ASKED, "cells", 1, "spec", "method", "hyperparameters", "ewc")
CNN, OWN = ((*ASKED, "cells", place, "spec") for place in (2, 3))  # cells of another network, and of a user's
RATES = (*SPEC, "optimizer", "hyperparameters")
COHORT = (1,)
RUN = (*COHORT, "runs", 0)
TESTED = (2, "runs", 0, "curves")  # of a run that was tested during training
HALF = "\ud800"
REFUSED: dict[str, tuple[tuple[str | int, ...], Any, str]] = {  # where, what, and a piece of the sentence
    "experiments that are no table": ((0, "experiments"), 5, "its experiments are no table"),
    "an experiment that is a number": ((0, "experiments", "x"), 5, "'x': it is 5; it must be a table"),
    "an experiment without cells": ((*ASKED, "cells"), ..., "lacks the field cells"),
    "an experiment without a title": ((*ASKED, "title"), ..., "lacks the field title"),
    "an experiment without a command": ((*ASKED, "command"), ..., "lacks the field command"),
    "an experiment without a name": ((0, "experiments", ""), {}, "its name is no text of 1 to 1000"),
    "cells that are a number": ((*ASKED, "cells"), 3, "cells is 3"),
    "a kind that is none": ((*ASKED, "kind"), "chair", "kind is 'chair'"),
    "a title that is a number": ((*ASKED, "title"), 3, "title is 3"),
    "half a character in a title": ((*ASKED, "title"), HALF, "half a character"),
    "half a character in a name": ((0, "experiments", HALF), {}, "half a character"),
    "notes of numbers": ((*ASKED, "notes"), {"er": 3}, "notes.er is 3"),
    "a refusal without a reason": ((*ASKED, "refused", 0, "reason"), ..., "lacks the field refused[0].reason"),
    "a cell without seeds": ((*CELL, "seeds"), [], "cells[0].seeds is []"),
    "a seed twice": ((*CELL, "seeds"), [1, 1], "seeds names a seed twice"),
    "a seed that is text": (
        (*CELL, "seeds"),
        ["1"],
        "cells[0].seeds[0]: a seed must be a whole number from 0 on, or two, got '1'",
    ),
    "a seed that is true": (
        (*CELL, "seeds"),
        [True],
        "cells[0].seeds[0]: a seed must be a whole number from 0 on, or two, got True",
    ),
    "a seed in no order": ((*CELL, "seeds"), [[1]], "or two, got [1]"),
    "an order below zero": ((*CELL, "seeds"), [[1, -1]], "or two, got [1, -1]"),
    "a cell of another method": ((*CELL, "method"), "si", "method is 'si', but the spec has 'none'"),
    "a spec that is a list": (SPEC, [], "cells[0].spec is []"),
    "a stream that is not known": ((*SPEC, "stream", "name"), "spilt-mnist", "stream 'spilt-mnist' is not known"),
    "no tasks": ((*SPEC, "stream", "tasks"), 0, "stream.tasks is 0; it must be"),
    "tasks without end": ((*SPEC, "stream", "tasks"), 10**9, "stream.tasks is 1000000000"),
    "a scenario that is not known": ((*SPEC, "scenario", "name"), "klass", "scenario 'klass' is not known"),
    "a task that is not given": ((*ASKED, "cells", 4, "spec", "scenario", "task_id_in"), "hidden", "Task-IL only"),
    "a training with more": ((*SPEC, "training", "=1+1"), 1, "training.=1+1"),
    "a training with a rate": ((*SPEC, "training", "lr"), 0.1, "training.lr"),
    "no length": ((*SPEC, "training", "iters"), ..., "training: it must have iters or epochs, and not both"),
    "two lengths": ((*SPEC, "training", "epochs"), 3, "training: it must have iters or epochs, and not both"),
    "no epochs": ((*CNN, "training", "epochs"), 0, "training.epochs is 0"),
    "epochs of text": ((*CNN, "training", "epochs"), "2", "training.epochs is '2'"),
    "no network": ((*SPEC, "network"), ..., "lacks the field cells[0].spec.network"),
    "a network that is text": ((*SPEC, "network"), "mlp", "spec.network is 'mlp'"),
    "a network without a name": ((*SPEC, "network", "name"), "", "spec.network.name is ''"),
    "a network that is not known": ((*SPEC, "network", "name"), "mpl", "network 'mpl' is not known"),
    "a network of a user's without its code": (
        (*OWN, "network", "code"),
        ...,
        "network 'Theirs' is not known",
    ),
    "a code that is a number": ((*OWN, "network", "code"), 5, "spec.network.code is 5"),
    "a width that is missing": ((*SPEC, "network", "hyperparameters", "width"), ..., "width of mlp is missing"),
    "a network that has none of it": ((*SPEC, "network", "hyperparameters", "channels"), [4], "'channels'"),
    "a width of nothing": ((*SPEC, "network", "hyperparameters", "width"), 0, "width of mlp is '0'"),
    "no width": ((*SPEC, "network", "hyperparameters", "width"), None, "it has no width"),
    "a width of text": ((*SPEC, "network", "hyperparameters", "width"), "8", "width of mlp is '8'"),
    "a width of a fraction": ((*SPEC, "network", "hyperparameters", "width"), 8.5, "width of mlp is '8.5'"),
    "a width beyond 64 bits": ((*SPEC, "network", "hyperparameters", "width"), 2**63, "is beyond 64 bits"),
    "channels that are one number": ((*CNN, "network", "hyperparameters", "channels"), 4, "channels of cnn is '4'"),
    "channels as text": ((*CNN, "network", "hyperparameters", "channels"), "4-8", "channels of cnn is '4-8'"),
    "no channels": ((*CNN, "network", "hyperparameters", "channels"), [], "channels of cnn is '[]'"),
    "channels beyond 64 bits": ((*CNN, "network", "hyperparameters", "channels"), [2**63], "is beyond 64 bits"),
    "a norm that is none": ((*CNN, "network", "hyperparameters", "norm"), "layer", "norm of cnn is 'layer'"),
    "hyperparameters that are a list": ((*SPEC, "network", "hyperparameters"), [], "network.hyperparameters is []"),
    "no optimiser": ((*SPEC, "optimizer"), ..., "lacks the field cells[0].spec.optimizer"),
    "an optimiser that is not known": ((*SPEC, "optimizer", "name"), "adma", "optimizer 'adma' is not known"),
    "a rate that is missing": ((*RATES, "lr"), ..., "lr of adam is missing"),
    "no rate": ((*RATES, "lr"), None, "it has no learning rate"),
    "a rate of zero": ((*RATES, "lr"), 0, "lr of adam is '0'"),
    "a rate of text": ((*RATES, "lr"), "0.1", "lr of adam is '0.1'"),
    "one beta": ((*RATES, "betas"), [0.9], "betas of adam"),
    "a beta of one": ((*RATES, "betas"), [0.9, 1.0], "betas of adam is '1.0'"),
    "betas as text": ((*RATES, "betas"), "0.9-0.999", "betas of adam is '0.9-0.999'"),
    "a reset that is a number": ((*RATES, "reset"), 0, "reset of adam is 0"),
    "a decay below zero": ((*RATES, "weight_decay"), -1.0, "weight_decay of adam is '-1.0'"),
    "momentum of Adam": ((*RATES, "momentum"), 0.9, "'momentum'"),
    "momentum of one": ((*CNN, "optimizer", "hyperparameters", "momentum"), 1.0, "momentum of sgd is '1.0'"),
    "nesterov without momentum": ((*CNN, "optimizer", "hyperparameters", "momentum"), 0.0, "nesterov of sgd is true"),
    "a schedule that is text": ((*CNN, "training", "schedule"), "cosine", "training.schedule is 'cosine'"),
    "a schedule that is not known": ((*CNN, "training", "schedule", "name"), "line", "schedule 'line' is not known"),
    "a step beyond the task": ((*CNN, "training", "schedule", "hyperparameters", "at"), [2.0], "at of step is '2.0'"),
    "hyperparameters of text": ((*EWC, "strength"), "strong", "strength of ewc is 'strong'"),
    "numbers as text": ((*EWC, "strength"), "5.0", "strength of ewc is '5.0'"),
    "a hyperparameter that is missing": ((*EWC, "strength"), ..., "strength of ewc is 'None'"),
    "a hyperparameter beyond 64 bits": ((*EWC, "fisher_samples"), 2**63, "is beyond 64 bits"),
    "a hyperparameter that is no name": ((*EWC, "_fields_set"), 1, "must have the name of a field"),
    "a number of 50 digits": ((*SPEC, "training", "iters"), 10**50, "more than 40 digits"),
    "NaN in a setting": ((*RATES, "lr"), math.nan, "NaN, which is not finite"),
    "infinity in a timing": ((*COHORT, "timings", "cohort_train"), math.inf, "Infinity, which is not finite"),
    "a timing of no number": ((*COHORT, "timings", "cohort_train"), "long", "timings.cohort_train is 'long'"),
    "a timing before the beginning": ((*COHORT, "timings", "cohort_train"), -1.0, "timings.cohort_train is -1.0"),
    "a timing of ages": ((*COHORT, "timings", "cohort_train"), 1e300, "timings.cohort_train is 1e+300"),
    "NaN in the environment": ((*COHORT, "environment", "threads"), math.nan, "not finite"),
    "half a character in the environment": ((*COHORT, "environment", "git"), HALF, "half a character"),
    "a cohort of none": ((*COHORT, "environment", "cohort"), 0, "environment.cohort is 0"),
    "a cohort of text": ((*COHORT, "environment", "cohort"), "two", "environment.cohort is 'two'"),
    "an environment that is text": ((*COHORT, "environment"), "here", "environment is 'here'"),
    "a day that is none": ((*COHORT, "created"), "2026-02-30T00:00:00+00:00", "created: day is out of range"),
    "a date of words": ((*COHORT, "created"), "yesterday", "created: it must be a time such as 2026"),
    "a date of long ago": ((*COHORT, "created"), "0001-01-01T00:00:00+00:00", "created: it must be a time"),
    "a date that is a number": ((*COHORT, "created"), 2026, "created is 2026"),
    "runs that are a number": ((*COHORT, "runs"), 2, "is wrong"),
    "a run that is a number": (RUN, 2, "is wrong"),
    "a run without a seed": ((*RUN, "seed"), ..., "lacks the field spec.seed"),
    "a seed below zero": ((*RUN, "seed"), -1, "spec.seed is -1"),
    "a status that is none": ((*RUN, "status"), "fine", "status is 'fine'"),
    "an accuracy above 100": ((*RUN, "matrix", 0, 0), 101.0, "between 0 and 100"),
    "an accuracy that is true": ((*RUN, "initial", 0), True, "initial[0] is True"),
    "an accuracy of a finished run that is missing": ((*RUN, "matrix", 1, 0), None, "between 0 and 100"),
    "a matrix with a hole": ((*RUN, "matrix", 1), [1.0], "matrix must be"),
    "more tasks than the spec has": (
        RUN,
        {"seed": 1, "status": "finished", "diverged_at": None, "initial": [1.0], "matrix": [[1.0]]},
        "initial has 1 accuracies, but spec.stream names 2 tasks",
    ),
    "no curves of a run that was tested": (TESTED, ..., "it has no curves, but its training.evaluation is {"),
    "curves of nothing": (TESTED, {}, "it has no curves, but its training.evaluation is {"),
    "curves of a run that was not": ((*RUN, "curves"), {"points": pack(np.zeros((0, 3), int))}, "evaluation is None"),
    "curves that are text": (TESTED, "accuracy", "curves is 'accuracy'"),
    "curves without points": ((*TESTED, "points"), ..., "curves cannot be read: it has no points"),
    "curves without the loss": ((*TESTED, "loss"), ..., "curves holds points, accuracy, training accuracy, but"),
    "curves of other tasks": ((*TESTED, "accuracy"), pack(np.ones((9, 3))), "has the shape (9, 3), which must be"),
    "a curve of ages": ((*TESTED, "points", "shape"), [10**7, 3], "it has 30000"),
    "a curve whose bytes are none": ((*TESTED, "accuracy", "bytes"), "AAAA", "its bytes cannot be unpacked"),
    "a spec of a run that is text": ((*COHORT, "spec"), "split", "is wrong"),
    "deep nesting": ((*COHORT, "environment", "git"), json.loads("[" * 40 + "]" * 40), "nested more than 32 levels"),
    "another number of runs": ((0, "runs"), 3, "the first line names 3"),
    "a number of runs that is none": ((0, "runs"), "all", "is wrong"),
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(cli: Cli, lab: Path, *words: str) -> str:
    """The sentence that a merge ends with, and nothing was written, be there a store before or not."""
    said = ""
    for destination in ("new.db", "old.db"):
        before = contents(lab)
        ended = cli("merge", destination, *words)
        assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended
        assert contents(lab) == before
        said = ended.err
    return said


@pytest.mark.parametrize(("place", "value", "said"), REFUSED.values(), ids=REFUSED)
def test_what_no_report_could_show_is_refused_whole(
    cli: Cli, lab: Path, place: tuple[str | int, ...], value: Any, said: str
) -> None:
    with Store("old.db") as store:
        store.remember("mine", good_file()[0]["experiments"]["mine"])
    written(changed(apart(), place, value), lab / "bad.jsonl")
    sentence = refused(cli, lab, "bad.jsonl")
    assert "rows 'bad.jsonl'" in sentence
    assert said in sentence


def test_nothing_of_good_files_is_kept_when_one_is_bad(cli: Cli, lab: Path) -> None:
    Store("old.db").close()
    written(apart(), lab / "good.jsonl")
    written(changed(apart(), (0, "experiments", "x"), 5), lab / "bad.jsonl")
    refused(cli, lab, "good.jsonl", "bad.jsonl")


def test_runs_and_experiments_are_merged_at_once_or_not_at_all(
    cli: Cli, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the two left runs without their experiment."""
    Store("old.db").close()
    written(apart(), lab / "good.jsonl")
    before = contents(lab)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "remember", killed)
        assert cli("merge", "old.db", "good.jsonl").status != 0
    with Store("old.db", readonly=True) as store:
        assert list(store.all()) == []
        assert store.experiments() == {}
    assert contents(lab).keys() == before.keys()
    assert cli("merge", "old.db", "good.jsonl").out == "old.db: 14 runs added, 0 were there already.\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"environment": {"cohort": 0}}, "environment.cohort is 0"),
        ({"environment": {"git": "\ud800"}}, "half a character"),
        ({"environment": {"git": json.loads("[" * 40 + "]" * 40)}}, "nested more than 32 levels"),
        ({"created": "today"}, "created: it must be a time"),
        ({"key": "mine"}, "its key is not the key of its spec"),
        ({"kept": {"dreams": {"shape": [1], "bytes": ""}}}, "lacks the field kept.dreams.dtype"),
        ({"kept": {"dreams": {"dtype": "|u1", "shape": [2], "bytes": "eA=="}}}, "kept.dreams cannot be read"),
        ({"kept": {"dreams": {"dtype": "|O8", "shape": [2], "bytes": ""}}}, "kept.dreams.dtype is '|O8'"),
        ({"kept": {"dreams": {"dtype": "<f8", "shape": [10**13], "bytes": ""}}}, "it unpacks to 80 TB"),
    ],
    ids=str,
)
def test_other_stores_are_checked_like_files(cli: Cli, lab: Path, changes: dict[str, Any], said: str) -> None:
    cohort = apart()[1]
    spec = cohort["spec"] | {"seed": 1}
    fields = {name: cohort[name] for name in ("timings", "environment", "created")}
    run = {name: value for name, value in cohort["runs"][0].items() if name != "seed"}
    with Store("theirs.db") as store:
        store.add([Record(**({"key": run_key(spec), "spec": spec, **fields, **run} | changes))])
    Store("old.db").close()
    assert said in refused(cli, lab, "theirs.db")


def test_a_number_in_another_store_that_is_none_is_refused(cli: Cli, lab: Path) -> None:
    """SQLite's text may hold what we would not write."""
    assert cli("merge", "theirs.db", written(apart(), lab / "good.jsonl")).status == 0
    alter(lab / "theirs.db", "UPDATE runs SET record = replace(record, '1.5', 'NaN')")
    Store("old.db").close()
    assert "must be a finite number" in refused(cli, lab, "theirs.db")


def test_a_bad_experiment_in_another_store_is_refused(cli: Cli, lab: Path) -> None:
    for name in ("theirs.db", "old.db"):
        Store(name).close()
    with Store("theirs.db") as store:
        store.remember("x", {"cells": 5})
    assert "holds an experiment that cannot be merged ('x': lacks the field title)" in refused(cli, lab, "theirs.db")


@pytest.mark.parametrize("name", ["evil.py:run", "evil:run"])
def test_the_name_of_a_stream_in_a_row_or_an_experiment_runs_nothing(
    cli: Cli, lab: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """On the command line that would be a stream of the user's own."""
    (lab / "evil.py").write_text("open('ran', 'w').close()\ndef run(data, seed): ...\n")
    monkeypatch.syspath_prepend(str(lab))
    Store("old.db").close()
    for place in (SPEC, (*COHORT, "spec")):
        written(changed(apart(), (*place, "stream", "name"), name), lab / "bad.jsonl")
        assert f"stream '{name}' is not known" in refused(cli, lab, "bad.jsonl")
    asked = changed(apart(), (*SPEC, "stream", "name"), name)[0]["experiments"]["mine"]
    with Store("old.db") as store:
        store.remember("mine", asked)
    assert f"stream '{name}' is not known" in cli("status", "--store", "old.db").out
    assert not Path("ran").exists()


ODD = "\x1b]0;owned\x07[/b]<script>$x^2$\\frac{%s{0}\0\u202e=1+1'\"|`*_\n\t" + "😀" * 100


def odd_words(lines: File) -> None:
    text = ODD.replace("/", "")
    for name, asked in list(lines[0]["experiments"].items()):
        asked |= {"title": ODD, "selected": ODD, "command": ODD, "notes": {ODD: ODD}}
        asked["refused"][0]["reason"] = ODD
        lines[0]["experiments"][f"{ODD}{name}"] = lines[0]["experiments"].pop(name)
    for spec in specs(lines):
        spec["stream"] = {"name": f"split-{text}", "tasks": 2, "data": ODD}
        spec["training"] |= {"precision": ODD, "device": ODD}
        if "code" in spec["network"]:
            spec["network"] |= {"name": ODD, "code": ODD}
    for cohort in lines[1:]:
        cohort["environment"] = dict.fromkeys(("device", "git", "torch", "platform", ODD), ODD)
        cohort["timings"] = {ODD: 1.0}


def odd_numbers(lines: File) -> None:
    for spec in specs(lines):
        spec["training"] |= {"iters" if "iters" in spec["training"] else "epochs": 2**63 - 1, "batch": 2**62}
        spec["optimizer"]["hyperparameters"]["lr"] = 5e-324
        if spec["network"]["name"] == "mlp":
            spec["network"]["hyperparameters"] |= {"width": 2**63 - 1, "depth": 100}
        if spec["network"]["name"] == "cnn":
            spec["network"]["hyperparameters"]["channels"] = [2**63 - 1] * 5
        own = spec["method"]["hyperparameters"]
        own.get("ewc", {})["strength"] = 1e308
        own.get("er", {})["budget"] = 2**63 - 1
        own.get("another", {}).update(strength=None, budget=[[1]], name="x", model_fields={"a": 1})
    for asked in lines[0]["experiments"].values():
        for cell in asked["cells"]:
            cell["seeds"] = [[10**39, 10**39], [0, 10**39]] if cell["method"] == "er" else [10**39, 0]
    for cohort in lines[1:]:
        cohort["created"] = "9999-12-31T23:59:59-23:59"
        cohort["timings"] = {str(number): 3e9 for number in range(50)}
        for run, seed in zip(cohort["runs"], (10**39, 0), strict=True):
            run |= {"seed": seed} | ({"order": 10**39} if "order" in run else {})


def odd_shapes(lines: File) -> None:
    """Cells twice, held-out data, the first tasks alone, fields of a later version, runs that all diverged."""
    for asked in lines[0]["experiments"].values():
        asked["cells"] += asked["cells"][:3]
        asked["refused"] *= 3
        asked["later"] = {"a": [1]}
        for cell in asked["cells"][::3]:
            cell["validation"] = True
    for spec in specs(lines):
        spec["stream"] = {"name": "permuted-mnist", "tasks": 10, "data": "", "first": 2, "later": [1]}
        spec["scenario"] |= {"task_id_in": "hidden"} if spec["scenario"]["name"] == "task" else {}
        spec["later"] = 1
    lost = {"status": "diverged", "diverged_at": 0, "matrix": [[None, None], [None, None]]}
    for cohort in lines[1:]:
        cohort |= {"environment": {}, "timings": {}, "later": 1}
        cohort["runs"] = [run | lost for run in cohort["runs"]]


def nothing_asked(lines: File) -> None:
    for asked in lines[0]["experiments"].values():
        asked |= {"cells": [], "refused": []}


def nothing_run(lines: File) -> None:
    lines[0]["runs"] = 0
    del lines[1:]


def specs(lines: File) -> list[dict[str, Any]]:
    cells = [cell for asked in lines[0]["experiments"].values() for cell in (*asked["cells"], *asked["refused"])]
    return list({id(each["spec"]): each["spec"] for each in (*cells, *lines[1:])}.values())


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")  # fonts do not have everything
@pytest.mark.parametrize("change", [odd_words, odd_numbers, odd_shapes, nothing_asked, nothing_run])
def test_what_passes_is_shown_by_all(cli: Cli, lab: Path, change: Callable[[File], None]) -> None:
    lines = apart()
    change(lines)
    ended = cli("merge", "new.db", written(lines, lab / "theirs.jsonl"))
    assert (ended.status, ended.err) == (0, "")
    read_by_all(cli, "new.db", drawn=change is odd_words)


def test_arrays_of_every_kind_are_shown_by_all(cli: Cli, lab: Path) -> None:
    assert cli("merge", "theirs.db", written(apart(), lab / "theirs.jsonl")).status == 0
    with Store("theirs.db", readonly=True) as store:
        runs, asked = list(store.all()), store.experiments()
    shapes = [(), (0,), (2, 3, 4), (2, 0, 4), (2, 3, 5), (1, 2, 3, 4)]
    with Store("more.db") as store:
        for number, run in enumerate(runs):
            kept = np.zeros(shapes[number % len(shapes)], "f4" if number % 4 else "u1")
            store.add([Record.from_json(run.to_json() | {"kept": {"dreams": pack(kept)}})])
        for name, what in asked.items():
            store.remember(name, what)
    assert cli("merge", "new.db", "more.db").status == 0
    read_by_all(cli, "new.db")


values = st.sampled_from(
    [None, True, 0, -1, 1, 2.5, 10**39, 2**70, "", "x", ODD, "ewc", "task", "split-x", [], {}, [1], {"name": "x"}, ...]
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_change_is_refused_or_shown_by_all(cli: Cli, lab: Path, data: st.DataObject) -> None:
    lines = good_file() if data.draw(st.booleans(), "shared") else apart()
    place = data.draw(st.sampled_from(sorted(places(lines), key=str)), "place")
    written(changed(lines, place, data.draw(values, "value")), lab / "theirs.jsonl")
    for left in lab.iterdir():
        if left.name != "theirs.jsonl":
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    ended = cli("merge", "new.db", "theirs.jsonl")
    if ended.status == 0:
        read_by_all(cli, "new.db")
    else:
        assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended
        assert not Path("new.db").exists()
