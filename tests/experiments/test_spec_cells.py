"""The cells of an experiment's file: a list is a grid, and options select from it."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from experiment_files import METHODS, TOP, names, requested, small_data, write
from small_cells import cells_of, runs, seeds_of
from tiny_lab import Ended

from threefold.errors import ThreefoldError
from threefold.experiments import Run, sections
from threefold.experiments.cohort import plan
from threefold.report.labels import places
from threefold.results import Store, merge


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_data(tmp_path, monkeypatch)


def test_a_list_is_a_grid() -> None:
    found = requested()
    assert [name for name in names(found) if name.startswith("task ewc:strength")][:5] == [
        f"task ewc:strength={value}" for value in (1.0, 10.0, 100.0, 1000.0, 10000.0)
    ]
    lwf = [name for name in names(found) if name.startswith("class lwf")]
    assert len(lwf) == 6, "every combination"
    assert len(cells_of(found)) == 3 + 15 + 18 + 1 + 2
    assert [cell.scenario.name for cell, _ in found.refused] == ["domain", "class"]
    assert seeds_of(found) == [(1, 2, 3)]
    assert set(found.notes) == {f"ewc:strength={value}" for value in (1.0, 10.0, 100.0, 1000.0, 10000.0)}
    combined = [cell for cell in cells_of(found) if cell.method.name == "ewc+xdg"]
    assert {cell.task_id_in for cell in combined} == {"hidden"}


def test_numbers_and_seeds_share_a_cohort_and_words_do_not() -> None:
    found = requested()
    cohorts = plan(runs(cells_of(found)))
    sizes: dict[str, list[int]] = {}
    for cohort in cohorts:
        sizes.setdefault(cohort.cell.method.name, []).append(len(cohort.runs))
        assert len({run.cell.method.name for run in cohort.runs}) == 1
        assert len({run.cell.scenario.name for run in cohort.runs}) == 1
    assert sizes == {"none": [3] * 3, "ewc": [15] * 3, "lwf": [9] * 6, "xdg": [3], "ewc+xdg": [6]}
    lwf = [cohort for cohort in cohorts if cohort.cell.method.name == "lwf"]
    for cohort in lwf:
        assert len({run.cell.method.parts[0].reduction for run in cohort.runs}) == 1  # type: ignore[attr-defined]
    keys = [run.key for cohort in cohorts for run in cohort.runs]
    assert len(keys) == len(set(keys)) == 3 * len(cells_of(found))


@pytest.mark.parametrize(
    ("only", "cells"),
    [
        (["ewc", "class"], 5),
        (["ewc"], 15),
        (["class"], 1 + 5 + 6),
        (["none", "ewc", "task", "domain"], 12),
        (["ewc+xdg"], 2),
    ],
)
def test_only(only: Sequence[str], cells: int) -> None:
    found = requested(only=only)
    assert len(cells_of(found)) == cells
    assert set(names(found)) <= set(names(requested()))


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        (["ewk"], "only 'ewk' is not known; did you mean 'ewc'?"),
        (["clas"], "only 'clas' is not known; did you mean 'class'?"),
        (["ewc", ""], "only '' is not known"),
        (["icral"], "only 'icral' is not known; known: class, domain, ewc, ewc+xdg, lwf, none, task, xdg."),
        (
            ["icarl"],
            "only is 'icarl', which mine does not hold; use its methods (none, ewc, lwf, xdg, ewc+xdg) and its"
            " scenarios (task, domain, class).",
        ),
        (["ewc", "si+xdg"], "only is 'si+xdg', which mine does not hold; use its methods (none, ewc,"),
        (["xdg", "class"], "mine leaves nothing to train: XdG chooses its gates by the task"),
        (
            ["ewc+xdg", "class"],
            "mine leaves nothing to train: it has none of 'ewc+xdg,class' together; use its methods",
        ),
    ],
)
def test_only_what_is_not_there(only: Sequence[str], sentence: str) -> None:
    with pytest.raises(ThreefoldError) as caught:
        requested(only=only)
    assert sentence in str(caught.value)


SEVERAL = """
    seeds = 4
    [training]
    iters = 6
    hidden = 8
    batch = 16
    [[parts]]
    stream = "split"
    data = "small.npz"
    tasks = 2
    methods = [{ method = "none" }]
    [[parts]]
    stream = "permuted"
    data = "small.npz"
    tasks = 3
    seeds = "2-3"
    scenarios = ["domain"]
    methods = [{ method = "none" }, { method = "ewc", with = { strength = 1 }, seeds = 1 }]
    """


def test_a_part_and_a_method_may_have_seeds_of_their_own() -> None:
    found = requested(SEVERAL)
    seeds = {(asked.cell.stream.name, asked.cell.method.name): asked.seeds for asked in found.asked}
    assert seeds == {("split", "none"): (1, 2, 3, 4), ("permuted", "none"): (2, 3), ("permuted", "ewc"): (1,)}
    assert [len(asked.seeds) for asked in found.asked] == [4, 4, 4, 2, 1]
    assert seeds_of(requested(SEVERAL, seeds="5,9")) == [(5, 9)]
    assert seeds_of(requested(SEVERAL, quick=True)) == [(1, 2), (1,)], "a rehearsal is not longer"


@pytest.mark.parametrize(
    ("given", "seeds"), [("[1, 2, 5]", (1, 2, 5)), ("[9, 3]", (9, 3)), ("[5]", (5,)), ("[1]", (1,))]
)
def test_seeds_may_be_a_list(given: str, seeds: tuple[int, ...]) -> None:
    assert seeds_of(requested(METHODS.replace("seeds = 3", f"seeds = {given}"))) == [seeds]


def test_each_is_trained_with_its_own_seeds(cli: Callable[..., Ended]) -> None:
    write(SEVERAL)
    assert cli("experiment", "mine.toml", "--device", "cpu", "--store", "s.db").status == 0
    with Store("s.db", readonly=True) as store:
        (section,) = sections(store)
    assert section.left == 0
    assert sum(len(result.records) for result in section.results) == 3 * 4 + 2 + 1
    assert [result.seeds for result in section.results if result.cell.method.name == "ewc"] == [[1]]


def test_quick_thins_grids_and_keeps_their_ends() -> None:
    text = METHODS + "[quick]\niters = 4\nseeds = 1\npoints = 3\n"
    found = requested(text, quick=True)
    assert [name for name in names(found) if name.startswith("class ewc")] == [
        f"class ewc:strength={value}" for value in (1.0, 100.0, 10000.0)
    ]
    assert {cell.training.iters for cell in cells_of(found)} == {4}
    assert seeds_of(found) == [(1,)]
    two = requested(text.replace("points = 3", "points = 2"), quick=True)
    assert [name for name in names(two) if name.startswith("class ewc")] == [
        f"class ewc:strength={value}" for value in (1.0, 10000.0)
    ]
    assert seeds_of(requested(text, quick=True, seeds="2", iters=9)) == [(1, 2)], "what is asked for explicitly counts"
    assert {cell.training.iters for cell in cells_of(requested(text, quick=True, iters=9))} == {9}


def test_quick_is_never_longer_than_the_file() -> None:
    text = METHODS.replace("seeds = 3", "seeds = 1") + "[quick]\niters = 40\nhidden = 50\ntasks = 9\nseeds = 5\n"
    found, whole = requested(text, quick=True), requested(text)
    assert {(cell.training.iters, cell.hidden, cell.stream.tasks) for cell in cells_of(found)} == {(6, 8, 2)}
    assert seeds_of(found) == seeds_of(whole) == [(1,)]
    own = requested(text.replace("seeds = 1", 'seeds = "3-9"').replace("seeds = 5", "seeds = 2"), quick=True)
    assert seeds_of(own) == [(1, 2)]


def test_quick_is_never_longer_than_the_paper_where_the_file_is_silent() -> None:
    text = """
        [quick]
        iters = 3000
        hidden = 700
        [[parts]]
        stream = "split"
        data = "small.npz"
        tasks = 2
        methods = [{ method = "none" }]
        [[parts]]
        stream = "permuted"
        data = "small.npz"
        methods = [{ method = "none" }]
    """
    trained = {(cell.stream.name, cell.training.iters, cell.hidden) for cell in cells_of(requested(text, quick=True))}
    assert trained == {("split", 2000, 400), ("permuted", 3000, 700)}


def test_one_file_may_hold_several_streams() -> None:
    other = SEVERAL.replace(
        '{ method = "ewc", with = { strength = 1 }, seeds = 1 }', '{ method = "xdg", scenarios = ["task"] }'
    )
    found = requested(other)
    assert [(cell.stream.title, cell.stream.tasks, cell.scenario.name) for cell in cells_of(found)] == [
        ("split-small", 2, "task"),
        ("split-small", 2, "domain"),
        ("split-small", 2, "class"),
        ("permuted-small", 3, "domain"),
        ("permuted-small", 3, "task"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"quick": True},
        {"seeds": "2-4", "iters": 5},
        {"only": ["ewc", "class", "task"], "quick": True},
    ],
    ids=str,
)
def test_the_command_in_the_report_makes_the_same_cells_again(options: dict[str, object]) -> None:
    first = requested(name="my file.toml", **options)
    with Store("a.db") as store:
        first.remember(store)
        (section,) = sections(store)
    words = shlex.split(section.command)
    assert words[:3] == ["threefold", "experiment", "my file.toml"]
    given = iter(words[3:])
    read: dict[str, object] = {}
    for word in given:
        if word == "--quick":
            read["quick"] = True
        elif word == "--only":
            read["only"] = next(given).split(",")
        elif word == "--device":
            read["device"] = next(given)
        else:
            read[word.removeprefix("--")] = int(value) if (value := next(given)).isdigit() else value
    assert read.pop("device") == "cpu", "on a machine with a GPU the same command would train other cells"
    again, whole = requested(name="my file.toml", **read), first.whole or first
    assert [Run(cell, 1).key for cell in cells_of(again)] == [Run(cell, 1).key for cell in cells_of(whole)]
    assert seeds_of(again) == seeds_of(first)
    assert (section.name, section.left) == (first.name, len(cells_of(whole)) * len(seeds_of(first)[0]))


def test_what_is_remembered_can_be_read_without_the_data() -> None:
    found = requested()
    Path("small.npz").unlink()
    Path("mine.toml").unlink()
    with Store("a.db") as store:
        found.remember(store)
        (section,) = sections(store)
    assert section.results == []
    assert [(cell.name, reason) for cell, reason in section.refused] == [
        (cell.name, reason) for cell, reason in found.refused
    ]
    assert dict(section.notes) == dict(found.notes)


RULES = """
[[rules]]
text = "By the code of 1999 (reduction=mean)."
with = { lwf = { reduction = "mean" }, xdg = { gate_on = "input" } }
[[rules]]
text = "In Task-IL (replayed_for=every)."
scenarios = ["task"]
task_id_in = "output"
with = { lwf = { replayed_for = "every" } }
[[methods]]
method = "lwf"
[[methods]]
method = "lwf"
with = { reduction = "sum" }
[[methods]]
method = "lwf+xdg"
scenarios = ["task"]
task_id_in = "hidden"
with = { share = 0.5 }
"""


def test_rules_fill_in_what_a_method_was_not_given() -> None:
    found = requested(TOP + RULES)
    assert names(found) == [
        "task lwf:replayed_for=every,reduction=mean",
        "domain lwf:reduction=mean",
        "class lwf:reduction=mean",
        "task lwf:replayed_for=every,reduction=sum",  # its own reduction, and the rule of the rest
        "domain lwf:reduction=sum",
        "class lwf:reduction=sum",
        "task lwf:reduction=mean+xdg:share=0.5,gate_on=input",
    ]
    plain = [Run(cell, 1).key for cell in cells_of(requested(TOP + '[[methods]]\nmethod = "lwf"\n'))]
    own = [Run(cell, 1).key for cell in cells_of(found)]
    assert own[4:6] == plain[1:], "what is the text's by a rule is the run that it was"


def test_rules_are_remembered_and_merged() -> None:
    with Store("a.db") as store, Store("b.db") as other:
        requested(TOP + RULES).remember(store)
        requested(TOP + RULES.replace("1999", "2001"), seeds="9").remember(other)
    merge("a.db", ["b.db"])
    with Store("a.db", readonly=True) as store:
        (section,) = sections(store)
    assert [rule["text"][:22] for rule in section.rules] == [
        "By the code of 1999 (r",
        "In Task-IL (replayed_f",
        "By the code of 2001 (r",
    ]
    assert section.rules[1]["options"] == {"lwf": {"replayed_for": "every"}}


def test_a_rehearsal_may_keep_some_methods_and_scenarios() -> None:
    text = METHODS + '[quick]\niters = 2\nonly = ["class", "none", "lwf"]\n'
    quick = requested(text, quick=True)
    assert {name.partition(":")[0] for name in names(quick)} == {"class none", "class lwf"}
    with Store("a.db") as store:
        quick.remember(store)
        (section,) = sections(store)
    assert list(section.shortened)[-2:] == ["2 of 5 methods", "1 of 3 scenarios"]
    assert names(requested(text)) == names(requested()), "the whole is whole"


def test_networks_and_optimisers_of_a_file_name_its_rows_and_cohorts() -> None:
    ways = 'iters = 6\nbatch = 16\nnetwork = ["mlp:width=8", "cnn:channels=8-16"]\noptimizer = ["adam", "sgd:lr=0.1"]'
    file = TOP.partition("iters")[0] + ways + '\n[[methods]]\nmethod = "none"\nscenarios = ["class"]\n'
    cells = cells_of(requested(file))
    assert [cell.name.removeprefix("split-small Class-IL none") for cell in cells] == [
        "",  # of the paper's kind
        " sgd:lr=0.1",
        " cnn:channels=8-16",
        " cnn:channels=8-16 sgd:lr=0.1",
    ]
    assert [row for row, _ in places(cells).values()] == [
        "None (mlp:width=8, adam:lr=0.001)",
        "None (mlp:width=8, sgd:lr=0.1)",
        "None (cnn:channels=8-16, adam:lr=0.001)",
        "None (cnn:channels=8-16, sgd:lr=0.1)",
    ]
