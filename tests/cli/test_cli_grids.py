"""Grids over every setting, on the command line and in files."""

import json
import shlex
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_lab import Ended

import threefold
from threefold.experiments import Section, sections, train_requests
from threefold.experiments.command import run_command
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.settings import ways
from threefold.experiments.spec import load_experiment
from threefold.report.charts import charts
from threefold.report.tables import result_tables
from threefold.results import Store

Cli = Callable[..., Ended]
RUN = ["run", "split", "--data", "tiny.npz", "--batch", "16", "--device", "cpu", "--seeds", "1", "--json"]


def document(ended: Ended) -> Any:
    assert (ended.status, ended.err) == (0, "")
    return json.loads(ended.out)


def test_repeated_settings_are_trained_in_every_combination(lab: Path, cli: Cli) -> None:
    grid = {"--hidden": ["4", "8"], "--iters": ["2", "3"], "--lr": ["0.1", "0.01"]}
    words = [word for option, values in grid.items() for value in values for word in (option, value)]
    made = document(cli(*RUN, "--tasks", "2", "--scenario", "class", *words))
    found = []
    for each in made["results"]:
        spec = each["spec"]
        width, lr = spec["network"]["hyperparameters"]["width"], spec["optimizer"]["hyperparameters"]["lr"]
        found.append((width, spec["training"]["iters"], lr))
        assert each["row"] == f"None (mlp:width={width}, adam:lr={lr}, iters={spec['training']['iters']})"
    assert sorted(found) == sorted(product([4, 8], [2, 3], [0.1, 0.01]))
    assert made["title"] == "split-tiny, 2 iterations and 3 iterations"
    (alone,) = document(
        cli(*RUN, "--tasks", "2", "--scenario", "class", *("--hidden", "8", "--iters", "3", "--lr", "0.1"))
    )["results"]
    (same,) = [each for each in made["results"] if each["spec"] == alone["spec"]]
    assert same["accuracy_matrix"] == alone["accuracy_matrix"], "a grid changes no number"
    with Store("threefold.db", readonly=True) as store:
        assert len(list(store.all())) == 8, "and nothing is trained twice"


def test_optimisers_tasks_boundaries_and_active_units(lab: Path, cli: Cli) -> None:
    words = ["--network", "mlp:width=4", "--iters", "2"]
    words += ["--optimizer", "sgd:lr=0.1", "--optimizer", "adam:lr=0.1", "--scenario", "class", "--scenario", "task"]
    words += ["--tasks", "1", "--tasks", "2", "--boundaries", "sharp", "--boundaries", "blurred:width=1"]
    made = document(cli(*RUN, *words, "--active", "seen", "--active", "all"))["results"]
    active = [each["spec"]["scenario"].get("active", "seen") for each in made]
    assert (active.count("all"), active.count("seen")) == (8, 16), "in Task-IL both are the same, and trained once"
    assert len({(each["row"], each["column"]) for each in made}) == len(made) == 24


def test_the_command_of_a_grid_names_all_of_it(lab: Path, cli: Cli) -> None:
    words = [
        "--tasks",
        "2",
        "--hidden",
        "4",
        "--hidden",
        "8",
        "--optimizer",
        "sgd:lr=0.1",
        "--optimizer",
        "adam:lr=0.1",
    ]
    words += ["--iters", "2", "--method", "none", "--scenario", "class", "--active", "seen", "--active", "all"]
    first = cli(*RUN, *words)
    with Store("threefold.db", readonly=True) as store:
        (section,) = sections(store)
    command = run_command(section.cells, [1], device="cpu")
    assert "--hidden 4 --hidden 8 --optimizer sgd:lr=0.1 --optimizer adam:lr=0.1 " in command
    again = shlex.split(command.replace("run split-tiny", "run split --data tiny.npz"))[1:]
    assert document(cli(*again, "--json"))["results"] == document(first)["results"]


@pytest.mark.parametrize("name", ["lr", "iters", "network", "tasks", "boundaries"])
def test_in_python_there_is_one_result(lab: Path, name: str) -> None:
    with pytest.raises(threefold.ThreefoldError, match=f"{name} must be one value, as there is one result, got "):
        threefold.run("split-mnist", scenario="class", **{name: [1, 2]})  # type: ignore[arg-type]


FILE = """
kind = "grids"
stream = "split"
data = "tiny.npz"
tasks = 2
seeds = 1
scenarios = ["class"]
[validation]
share = 0.2
tasks = 1
[training]
batch = 16
iters = 4
lr = [0.001, 0.01, 0.1, 1]
network = ["mlp:width=4", "mlp:width=8"]
optimizer = ["adam", "sgd"]
[[methods]]
method = "none"
"""


@pytest.fixture
def grid(lab: Path) -> Section:
    Path("grid.toml").write_text(FILE)
    request = experiment_request(load_experiment("grid.toml"), Options(device="cpu"), "experiment grid.toml")
    train_requests([request], "a.db")
    with Store("a.db", readonly=True) as store:
        (section,) = sections(store)
    return section


def test_a_grid_of_settings_is_drawn_and_tabled_and_chosen_from(grid: Section) -> None:
    assert (len(grid.results), len(grid.validation)) == (16, 16)
    ((_, chart),) = charts([grid])
    assert {panel.row: panel.x_label for panel in chart.panels} == dict.fromkeys(
        ["None (adam)", "None (sgd)"], "learning rate"
    )
    for panel in chart.panels:
        assert {line.label: list(line.x) for line in panel.lines} == {
            f"width = {width}": [0.001, 0.01, 0.1, 1] for width in (4, 8)
        }
    for chosen, kind in zip(chart.selected, ("adam", "sgd"), strict=True):
        means = {}
        for result in grid.validation:
            spec = result.cell.spec()
            if spec["optimizer"]["name"] == kind:
                lr, width = spec["optimizer"]["hyperparameters"]["lr"], spec["network"]["hyperparameters"]["width"]
                means[f"lr = {lr:g}, width = {width}"] = result.accuracy.mean
        assert len(means) == 8
        assert chosen.honest
        assert means[chosen.honest.text] == max(means.values())
    (table,) = result_tables(grid)
    assert [row for _, row in table.rows] == [
        f"None (mlp:width={width}, {kind}:lr={float(lr)})"
        for lr, width, kind in product([0.001, 0.01, 0.1, 1], [4, 8], ["adam", "sgd"])
    ]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("lr = [0.1, -1]", "training.lr[1] must be more than 0, got -1"),
        ("lr = []", "training.lr must be one at least, got []"),
        ("lr = 0", "training.lr must be more than 0, got 0"),
        ('network = ["mlp", "mpl"]', "training.network[1] 'mpl' is not known; did you mean 'mlp'?"),
        ('network = "mpl"', "training.network 'mpl' is not known; did you mean 'mlp'?"),
        ('active = ["seen", "al"]', "training.active[1] must be 'seen' or 'all', got 'al'"),
        (
            "lr = [1, 2]\noptimizer = ['sgd', 'adam:lr=2']",
            "lr is 1.0, but optimizer is 'adam:lr=2.0'; give one of them",
        ),
        ("batch = [1, 2.5]", "training.batch[1] must be a whole number, got 2.5"),
        ("hiden = [1, 2]", "field 'training.hiden' is not known; did you mean 'hidden'?"),
    ],
)
def test_a_mistake_in_a_list_is_named_with_its_place(tmp_path: Path, wrong: str, told: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f"stream = 'split'\nmethods = [{{ method = 'none' }}]\n[training]\n{wrong}\n")
    with pytest.raises(threefold.ThreefoldError) as error:
        load_experiment(path)
    assert told in str(error.value)


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=3), min_size=1, max_size=4))
def test_ways_are_all_combinations_each_once(lists: list[list[int]]) -> None:
    made = [tuple(way.values()) for way in ways({str(place): values for place, values in enumerate(lists)})]
    assert made == list(product(*lists))


def test_a_rehearsal_thins_lists_of_numbers_alone(lab: Path) -> None:
    Path("grid.toml").write_text(FILE)
    rehearsed = experiment_request(load_experiment("grid.toml"), Options(device="cpu", quick=True), "experiment x")
    specs = [asked.cell.spec() for asked in rehearsed.asked if not asked.validation]
    assert {spec["optimizer"]["hyperparameters"]["lr"] for spec in specs} == {0.001, 0.1, 1}
    assert {(s["network"]["hyperparameters"]["width"], s["optimizer"]["name"]) for s in specs} == {
        *product((4, 8), ("adam", "sgd"))
    }
