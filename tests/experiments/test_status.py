"""What is done, what is left, and by which command: for grids with held-out runs, and after several commands."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from small_cells import paper_request, small_mnist

from threefold.cli.summary import shortened
from threefold.experiments import Asked, Request, sections, train_requests
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.spec import Experiment
from threefold.experiments.status import Status, time_left
from threefold.report.provenance import provenance
from threefold.results import Store

GRID = {
    "name": "grid",
    "kind": "grids",
    "stream": "split-mnist",
    "seeds": "3",
    "training": {"iters": 2, "hidden": 8, "batch": 16},
    "validation": {"share": 0.2, "tasks": 2},
    "methods": [{"method": "ewc", "scenarios": ["task"], "with": {"strength": [0.1, 1e3]}}],
}


@pytest.fixture(autouse=True)
def _small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)


def told(path: Path) -> str:
    with Store(path, readonly=True) as store:
        return next(Status.of(store).lines())


def test_held_out_runs_count_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "grid.db"
    whole = experiment_request(Experiment.model_validate(GRID), Options(device="cpu"), "experiment grid.toml")

    def train(*asked: Asked) -> None:
        train_requests([replace(whole, asked=asked, whole=whole)], path)

    with Store(path) as store:
        whole.remember(store)
    assert "grid: 0 of 12 runs done, 12 left, time not known yet" in told(path)
    train(*(asked for asked in whole.asked if asked.validation))
    assert "grid: 6 of 12 runs done, 6 left, about" in told(path)
    train(*(asked._replace(seeds=(1, 2)) for asked in whole.asked if not asked.validation))
    assert "grid: 10 of 12 runs done, 2 left, about" in told(path)
    with Store(path, readonly=True) as store:
        (section,) = sections(store)
        each = [record.seconds for result in section.results for record in result.records]
        expected = 2 * sum(each) / len(each)  # the two that are left are whole ones, not short ones on held-out data
        assert time_left(store, section) == timedelta(seconds=max(1, round(expected)))
    train(*whole.asked)
    assert told(path) == "grid: 12 of 12 runs done"
    with Store(path, readonly=True) as store:
        assert sum(batch.runs for batch in provenance(sections(store))) == 12


def table(**options: object) -> Request:
    return paper_request("table4", **options)


def after(path: Path, *asked: Request) -> dict[str, object]:
    with Store(path) as store:
        for each in asked:
            each.remember(store)
        (found,) = store.experiments().values()
    return found


def test_a_later_command_for_a_part_takes_nothing_away(tmp_path: Path) -> None:
    whole = table(seeds="20")
    found = after(tmp_path / "a.db", whole, table(only=["ewc"], seeds="5"))
    assert found["notes"] == whole.notes
    assert found["command"] == whole.command
    assert found == after(tmp_path / "b.db", table(only=["ewc"], seeds="5"), whole) | {"cells": found["cells"]}


def test_commands_of_which_none_trains_all_are_told_one_after_the_other(tmp_path: Path) -> None:
    first, second = table(only=["ewc"], seeds="1-3"), table(only=["lwf", "ewc"], seeds="2-5")
    alone, other = (f"threefold reproduce table4 --seeds {seeds} --device cpu" for seeds in ("1-3", "2-5"))
    commands = f"{alone} && {other}"
    assert after(tmp_path / "a.db", first, second, first)["command"] == commands
    store = f"--store {tmp_path}/a.db"
    assert told(tmp_path / "a.db").endswith(f": {alone} {store} && {other} {store}")
    assert after(tmp_path / "a.db", table())["command"] == table().command


def test_two_commands_at_once_remember_both(tmp_path: Path) -> None:
    asked = [table(only=["ewc", "domain"], seeds=f"{seed}-{seed}") for seed in range(1, 9)]
    Store(tmp_path / "a.db").close()
    ready = threading.Barrier(len(asked))

    def remember(one: Request) -> None:
        with Store(tmp_path / "a.db") as store:
            ready.wait(30)
            one.remember(store)

    with ThreadPoolExecutor(len(asked)) as pool:
        list(pool.map(remember, asked))
    with Store(tmp_path / "a.db", readonly=True) as store:
        (found,) = store.experiments().values()
    assert {tuple(cell["seeds"]) for cell in found["cells"]} == {tuple(range(1, 9))}
    assert len(found["cells"]) == len(table().asked)
    assert set(found["command"].split(" && ")) == {each.whole.command for each in asked if each.whole}


def test_all_of_several_commands_is_in_full(tmp_path: Path) -> None:
    methods = [{"method": method, "scenarios": ["task"]} for method in ("ewc", "si")]
    experiment = Experiment.model_validate(
        {key: value for key, value in GRID.items() if key not in ("kind", "validation")} | {"methods": methods}
    )
    with Store(tmp_path / "a.db") as store:
        for only, seeds in ((["ewc"], "1"), (["si"], "2-2")):
            asked = experiment_request(
                experiment, Options(seeds, device="cpu", only=only, iters=1), "experiment grid.toml"
            )
            asked.remember(store)
        (section,) = sections(store)
    full = f"threefold experiment grid.toml --device cpu --store {tmp_path}/a.db"
    assert shortened(section, tmp_path / "a.db") == (
        f"This was shortened: 1 of 2 iterations per task, 2 of 3 seeds. In full: {full}"
    )
