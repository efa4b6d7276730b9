"""An experiment's file: what is wrong with it is told at once, a list is a grid, and options cut it down."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tiny_lab import Ended

from threefold.errors import ThreefoldError
from threefold.experiments import Run
from threefold.experiments.ask import Asked, Options, ask, sections
from threefold.experiments.cell import written
from threefold.experiments.cohort import plan
from threefold.experiments.spec import load_experiment
from threefold.results import Store

TOP = """
protocol = "split"
data = "small.npz"
tasks = 2
seeds = 3
[training]
iters = 6
hidden = 8
batch = 16
"""
METHODS = (
    TOP
    + """
[[methods]]
method = "none"
[[methods]]
method = "ewc"
with = { strength = [1, 10, 100, 1000, 10000] }
note = "A note."
[[methods]]
method = "lwf"
with = { reduction = ["sum", "mean"], temperature = [1, 2, 3] }
[[methods]]
method = "xdg"
[[methods]]
method = "ewc+xdg"
scenarios = ["task"]
task_id_in = "hidden"
with = { strength = [1, 2], share = 0.5 }
"""
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).random((80, 4, 4)).astype(np.float32), np.arange(80) % 4
    np.savez("small.npz", train_x=x, train_y=y, test_x=x, test_y=y)


NONE = "protocol = 'split-mnist'\nmethods = [{ method = 'none' }]"


def write(text: str, name: str = "mine.toml") -> str:
    Path(name).write_text(text)
    return name


def asked(text: str = METHODS, name: str = "mine.toml", **options: object) -> Asked:
    write(text, name)
    return ask(load_experiment(name), Options(device="cpu", **options), f"experiment {name}")  # type: ignore[arg-type]


def names(found: Asked) -> list[str]:
    return [f"{cell.scenario.name} {written(cell.method)}" for cell in found.cells]


def mistakes(text: str) -> str:
    with pytest.raises(ThreefoldError) as caught:
        load_experiment(write(text))
    sentence = str(caught.value)
    assert sentence.startswith("experiment 'mine.toml' ")
    assert "\n" not in sentence
    assert sentence[-1] in ".?"
    return sentence


def test_five_mistakes_are_named_at_once_each_with_its_place() -> None:
    sentence = mistakes("""
        protocol = "spilt-mnist"
        seeds = "7-3"
        scenarios = ["task", "clas"]
        [training]
        iters = 0
        [[methods]]
        method = "ewc"
        with = { strenght = 3 }
    """)
    assert "has 5 mistakes: " in sentence
    for mistake in (
        "protocol 'spilt-mnist' is not known; did you mean 'split-mnist'?",
        "seeds is '7-3', whose range runs backwards; right would be a count",
        "scenarios[1]: scenario 'clas' is not known; did you mean 'class'?",
        "training.iters is 0; right would be 1 or more",
        "methods[0]: hyperparameter of ewc 'strenght' is not known; did you mean 'strength'?",
    ):
        assert f" {mistake}" in sentence, sentence
        assert sentence.count(mistake.split(" is ")[0] + " is ") == 1, sentence


def test_places_in_several_parts_are_told_apart() -> None:
    sentence = mistakes("""
        [[parts]]
        protocol = "split-mnist"
        methods = [{ method = "none" }]
        [[parts]]
        protocol = "split-mnist"
        methods = [{ method = "none" }, { method = "nine" }]
    """)
    assert sentence.endswith("has a mistake: parts[1].methods[1]: method 'nine' is not known; did you mean 'none'?")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("protocol = ", "is not TOML: Invalid value (at end of document)."),
        ("[[methods]]\nmethod = 'none'", 'has a mistake: protocol is missing; right would be protocol = "split-mnist"'),
        ("protocol = 'split-mnist'", "has a mistake: methods is missing; right would be [[methods]] tables"),
        ("", "has 2 mistakes: protocol is missing; right would be"),
        ("title = 'x'", "; methods is missing; right would be [[methods]] tables"),
        ("protocol = 'split-mnist'\nmethods = []", "methods is []; right would be [[methods]] tables"),
        ("protocol = 'split-mnist'\n[methods]\nmethod = 'ewc'", "; right would be [[methods]] tables, one at least"),
        ("protocol = 'split-mnist'\nmethods = [{ with = { x = 1 } }]", "methods[0].method is missing; right would be"),
        ("protocol = 'split-mnist'\nmethods = [{ method = 'none' }]\nscenarios = []", "scenarios"),
        (f"titel = 'x'\n{NONE}", "has a mistake: field 'titel' is not known; did you mean 'title'?"),
        (f"{NONE}\n[trainig]\niters = 5", "has a mistake: field 'trainig' is not known; did you mean 'training'?"),
        (f"itres = 5\n{NONE}", "field 'itres' is not known; did you mean 'training.iters'?"),
        (f"{NONE}\n[training]\nitres = 3", "field 'training.itres' is not known; did you mean 'iters'?"),
        (f"xyzzy = 5\n{NONE}", "field 'xyzzy' is not known; known: data, kind, methods,"),
        (
            "protocol = 'split-mnist'\nmethods = [{ method = 'none', hyper = 3 }]",
            "field 'methods[0].hyper' is not known; known: method, note, scenarios, seeds, task_id_in, with",
        ),
        (
            "protocol = 'split-mnist'\nmethods = [{ method = 'ewc', strength = 3 }]",
            "field 'methods[0].strength' is not known; did you mean 'with.strength'?",
        ),
        (
            "protocol = 'split'\n[[parts]]\nprotocol = 'split'\nmethods = [{ method = 'none' }]",
            "field 'protocol' stands beside the [[parts]]; right would be inside each of them",
        ),
        (
            "protocol = 'split-mnist'\nmethods = [{ method = 'none', with = { x = 1 } }]",
            "methods[0]: method 'none' has no hyperparameters, but 'x' was given.",
        ),
        ("protocol = 'splt'\nmethods = [{ method = 'none' }]", "protocol 'splt' is not known; did you mean 'split'?"),
        ("protocol = 'split'\nmethods = [{ method = 'erc' }]", "method 'erc' is not known; did you mean 'er'?"),
        (f"seeds = '1-x'\n{NONE}", "has a mistake: seeds is '1-x'; right would be a count"),
        (f"seeds = [1, 1]\n{NONE}", "seeds is '[1, 1]', which names 1 twice;"),
        (f"seeds = [1, 2.5]\n{NONE}", "seeds is '[1, 2.5]', which holds something else than whole numbers;"),
        (f"seeds = []\n{NONE}", "seeds is '[]', which names no seed;"),
        (
            "protocol = 'split'\nmethods = [{ method = 'ewc', with = { strength = [[1]] } }]",
            "has a mistake: methods[0].with.strength is [[1]]; right would be a finite number",
        ),
        (
            "protocol = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = -1 } }]",
            "strength of ewc is '-1",
        ),
        (
            "protocol = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = [1, 'x'] } }]",
            "strength of ewc is 'x'",
        ),
        ("protocol = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = nan } }]", "strength"),
        ("protocol = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = [] } }]", "strength"),
        ("protocol = 'split-mnist'\nmethods = [{ method = 'xdg', task_id_in = 'head' }]", "methods[0].task_id_in"),
        (
            "protocol = 'split-mnist'\nkind = 'tabel'\nmethods = [{ method = 'none' }]",
            "kind is 'tabel'; right would be 'table',",
        ),
        (
            "protocol = 'split-mnist'\nname = '../x'\nmethods = [{ method = 'none' }]",
            "name is '../x'; right would be letters",
        ),
        ("protocol = 'split-mnist'\nseeds = -1\nmethods = [{ method = 'none' }]", "seeds is '-1'"),
        ("protocol = 'split-mnist'\nmethods = [{ method = 'none', seeds = '7-3' }]", "methods[0].seeds is '7-3'"),
        ("[[parts]]\nprotocol = 'split-mnist'\nseeds = 0\nmethods = [{ method = 'none' }]", "parts[0].seeds is '0',"),
        ("protocol = 'split-mnist'\nmethods = 5", "methods is 5"),
        ("protocol = 'split-mnist'\nmethods = [{ method = 'none' }]\n[training]\nlr = inf", "training.lr"),
        ("protocol = 'split-mnist'\nmethods = [{ method = 'none' }]\n[quick]\npoints = 1", "quick.points is 1"),
        ("parts = 3", "parts is 3"),
    ],
)
def test_a_mistake_is_named(text: str, named: str) -> None:
    assert named in mistakes(text)


def test_a_file_that_cannot_be_read() -> None:
    for name, why in (("absent.toml", "No such file"), (".", "Is a directory")):
        with pytest.raises(
            ThreefoldError, match=rf"experiment '{name}' cannot be read .*{why}.*; right would be a TOML file\."
        ):
            load_experiment(name)
    Path("latin.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(ThreefoldError, match=r"experiment 'latin\.toml' cannot be read"):
        load_experiment("latin.toml")


def test_a_list_is_a_grid() -> None:
    found = asked()
    assert [name for name in names(found) if name.startswith("task ewc:strength")][:5] == [
        f"task ewc:strength={value}" for value in (1.0, 10.0, 100.0, 1000.0, 10000.0)
    ]
    lwf = [name for name in names(found) if name.startswith("class lwf")]
    assert len(lwf) == 6, "every combination"
    assert len(found.cells) == 3 + 15 + 18 + 1 + 2
    assert [cell.scenario.name for cell, _ in found.refused] == ["domain", "class"]
    assert found.seeds == (1, 2, 3)
    assert set(found.notes) == {f"ewc:strength={value}" for value in (1.0, 10.0, 100.0, 1000.0, 10000.0)}
    combined = [cell for cell in found.cells if cell.method.name == "ewc+xdg"]
    assert {cell.task_id_in for cell in combined} == {"hidden"}


def test_numbers_and_seeds_share_a_cohort_and_words_do_not() -> None:
    found = asked()
    cohorts = plan(Run(cell, seed) for cell in found.cells for seed in found.seeds)
    sizes: dict[str, list[int]] = {}
    for cohort in cohorts:
        sizes.setdefault(cohort.cell.method.name, []).append(len(cohort.runs))
        assert len({run.cell.method.name for run in cohort.runs}) == 1
        assert {run.cell.scenario.name for run in cohort.runs} in ({"domain"}, {"task"}, {"task", "class"})
    assert sizes == {"none": [3, 6], "ewc": [15, 30], "lwf": [9, 9, 18, 18], "xdg": [3], "ewc+xdg": [6]}
    lwf = [cohort for cohort in cohorts if cohort.cell.method.name == "lwf"]
    for cohort in lwf:
        assert len({run.cell.method.parts[0].reduction for run in cohort.runs}) == 1  # type: ignore[attr-defined]
    keys = [run.key for cohort in cohorts for run in cohort.runs]
    assert len(keys) == len(set(keys)) == 3 * len(found.cells)


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
    found = asked(only=only)
    assert len(found.cells) == cells
    assert set(names(found)) <= set(names(asked()))


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        (["ewk"], "only 'ewk' is not known; did you mean 'ewc'?"),
        (["clas"], "only 'clas' is not known; did you mean 'class'?"),
        (["ewc", ""], "only '' is not known"),
        (["icral"], "only 'icral' is not known; known: class, domain, ewc, ewc+xdg, lwf, none, task, xdg."),
        (
            ["icarl"],
            "only is 'icarl', which mine does not hold; right would be of its methods (none, ewc, lwf, xdg, ewc+xdg)"
            " and of its scenarios (task, domain, class).",
        ),
        (["ewc", "si+xdg"], "only is 'si+xdg', which mine does not hold; right would be of its methods (none, ewc,"),
        (["xdg", "class"], "mine leaves nothing to train: XdG chooses its gates by the task"),
        (
            ["ewc+xdg", "class"],
            "mine leaves nothing to train: it has none of 'ewc+xdg,class' together; right would be of its methods",
        ),
    ],
)
def test_only_what_is_not_there(only: Sequence[str], sentence: str) -> None:
    with pytest.raises(ThreefoldError) as caught:
        asked(only=only)
    assert sentence in str(caught.value)


SEVERAL = """
    seeds = 4
    [training]
    iters = 6
    hidden = 8
    batch = 16
    [[parts]]
    protocol = "split"
    data = "small.npz"
    tasks = 2
    methods = [{ method = "none" }]
    [[parts]]
    protocol = "permuted"
    data = "small.npz"
    tasks = 3
    seeds = "2-3"
    scenarios = ["domain"]
    methods = [{ method = "none" }, { method = "ewc", with = { strength = 1 }, seeds = 1 }]
    """


def test_a_part_and_a_method_may_have_seeds_of_their_own() -> None:
    found = asked(SEVERAL)
    seeds = {(cell.protocol.name, cell.method.name): found.seeds_of(cell) for cell in found.cells}
    assert seeds == {("split", "none"): (1, 2, 3, 4), ("permuted", "none"): (2, 3), ("permuted", "ewc"): (1,)}
    assert {several: len(cells) for several, cells in found.by_seeds().items()} == {(1, 2, 3, 4): 3, (2, 3): 1, (1,): 1}
    assert list(asked(SEVERAL, seeds="5,9").by_seeds()) == [(5, 9)]
    assert list(asked(SEVERAL, quick=True).by_seeds()) == [(1, 2), (1,)], "a rehearsal is not longer"


@pytest.mark.parametrize(
    ("given", "seeds"), [("[1, 2, 5]", (1, 2, 5)), ("[9, 3]", (9, 3)), ("[5]", (5,)), ("[1]", (1,))]
)
def test_seeds_may_be_a_list(given: str, seeds: tuple[int, ...]) -> None:
    assert asked(METHODS.replace("seeds = 3", f"seeds = {given}")).seeds == seeds


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
    found = asked(text, quick=True)
    assert [name for name in names(found) if name.startswith("class ewc")] == [
        f"class ewc:strength={value}" for value in (1.0, 100.0, 10000.0)
    ]
    assert {cell.training.iters for cell in found.cells} == {4}
    assert found.seeds == (1,)
    two = asked(text.replace("points = 3", "points = 2"), quick=True)
    assert [name for name in names(two) if name.startswith("class ewc")] == [
        f"class ewc:strength={value}" for value in (1.0, 10000.0)
    ]
    assert asked(text, quick=True, seeds="2", iters=9).seeds == (1, 2), "what is asked for explicitly counts"
    assert {cell.training.iters for cell in asked(text, quick=True, iters=9).cells} == {9}


def test_quick_is_never_longer_than_the_file() -> None:
    text = METHODS.replace("seeds = 3", "seeds = 1") + "[quick]\niters = 40\nhidden = 50\ntasks = 9\nseeds = 5\n"
    found, whole = asked(text, quick=True), asked(text)
    assert {(cell.training.iters, cell.training.hidden, cell.protocol.tasks) for cell in found.cells} == {(6, 8, 2)}
    assert found.seeds == whole.seeds == (1,)
    own = asked(text.replace("seeds = 1", 'seeds = "3-9"').replace("seeds = 5", "seeds = 2"), quick=True)
    assert own.seeds == (1, 2)


def test_quick_is_never_longer_than_the_paper_where_the_file_is_silent() -> None:
    text = """
        [quick]
        iters = 3000
        hidden = 700
        [[parts]]
        protocol = "split"
        data = "small.npz"
        tasks = 2
        methods = [{ method = "none" }]
        [[parts]]
        protocol = "permuted"
        data = "small.npz"
        methods = [{ method = "none" }]
    """
    trained = {
        (cell.protocol.name, cell.training.iters, cell.training.hidden) for cell in asked(text, quick=True).cells
    }
    assert trained == {("split", 2000, 400), ("permuted", 3000, 700)}


def test_one_file_may_hold_several_protocols() -> None:
    other = SEVERAL.replace(
        '{ method = "ewc", with = { strength = 1 }, seeds = 1 }', '{ method = "xdg", scenarios = ["task"] }'
    )
    found = asked(other)
    assert [(cell.protocol.title, cell.protocol.tasks, cell.scenario.name) for cell in found.cells] == [
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
    first = asked(name="my file.toml", **options)
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
    again = asked(name="my file.toml", **read)
    assert [Run(cell, 1).key for cell in again.cells] == [Run(cell, 1).key for cell in first.cells]
    assert again.seeds == first.seeds
    assert (section.name, section.left) == (first.name, len(first.cells) * len(first.seeds))


def test_what_is_remembered_can_be_read_without_the_data() -> None:
    found = asked()
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
