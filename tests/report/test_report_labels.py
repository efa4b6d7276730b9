"""Rows that would have the same name show what differs, in every format, from stored data only."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from fake_sections import a_cell, a_result, stream
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from page_reader import Page

from threefold.experiments import Asked, Cell, Request, Result, Section, sections
from threefold.methods import METHODS, Part, hyper
from threefold.methods.registry import Entry
from threefold.report import render
from threefold.report.charts import charts
from threefold.report.drawing import draw_curves
from threefold.report.labels import tell_apart
from threefold.report.tables import result_tables
from threefold.results import Store


class Mas(Part):
    """A user's method."""

    name = "mine"
    strength: float = hyper("weight of the penalty, λ", 1.0)
    mode: str = hyper("what it looks at", "all")


class Edited(Mas):
    """The same after its default was edited."""

    strength: float = hyper("weight of the penalty, λ", 3.0)


@contextmanager
def plugged_in(part: type[Part] = Mas) -> Iterator[None]:
    METHODS["mine"] = Entry("mine", "mine", "Mine", "", part)
    try:
        yield
    finally:
        del METHODS["mine"]


def stored(path: Path, section: Section) -> Section:
    """The section as a process finds it in a store, one that does not know the user's methods."""
    asked = [Asked(result.cell, tuple(section.results[0].seeds)) for result in section.results]
    with Store(path) as store:
        Request(section.name, section.title, asked, kind=section.kind, from_file=False).remember(store)
        store.add(record for result in section.results for record in result.records)
    with Store(path, readonly=True) as store:
        (found,) = sections(store)
    return found


def table(results: list[Result]) -> Section:
    return Section("mine", "Mine", "table", results, selected="as given")


def names(section: Section, kind: str) -> list[str]:
    """The rows of the table as a format names them, the formats' own marks removed."""
    rows = [row for board in result_tables(section) for _, row in board.rows]
    text = render([section], kind, plain=True)
    if kind == "csv":
        return list(dict.fromkeys(row["method"] for row in csv.DictReader(io.StringIO(text))))
    if kind == "html":
        text = "\n".join(Page(text).texts)
    text = text.replace("\\", "")
    assert all(row in text for row in rows), (kind, rows)
    return rows


def same_everywhere(section: Section) -> list[str]:
    """The rows, which every format and figure must name alike."""
    wanted = names(section, "csv")
    for kind in ("terminal", "markdown", "latex", "html"):
        assert names(section, kind) == wanted
    figure = draw_curves(result_tables(section)[0])
    drawn = " ".join(text.get_text() for text in figure.findobj(Text))
    assert all("".join(row.split()) in "".join(drawn.split()) for row in wanted)
    return wanted


def test_strengths_are_told_apart_without_the_users_plug_in(tmp_path: Path) -> None:
    with plugged_in():
        cells = [a_cell(stream(), "task", f"mine:strength={s}", iters=50) for s in (1, 5, 1e7, 0.1 + 0.2)]
        results = [a_result(cell, 50.0 + place, seeds=2) for place, cell in enumerate(cells)]
    found = stored(tmp_path / "a.db", table(results))
    assert "mine" not in METHODS
    assert same_everywhere(found) == [
        "mine (strength=1)",
        "mine (strength=5)",
        "mine (strength=1e7)",
        "mine (strength=0.30000000000000004)",
    ]
    assert [e.accuracy.mean for e in result_tables(found)[0].cells] == [r.accuracy.mean for r in results]


def test_values_that_were_not_given_are_told_where_they_differ(tmp_path: Path) -> None:
    """The user edited the method's default: both rows are `mine`, and what is stored differs."""
    results = []
    for part in (Mas, Edited):
        with plugged_in(part):
            cells = [a_cell(stream(), scenario, "mine", iters=50) for scenario in ("task", "class")]
            results += [a_result(without_code(cell), 50.0, seeds=2) for cell in cells]
    rows = same_everywhere(stored(tmp_path / "a.db", table(results)))
    assert rows == ["mine (strength=1)", "mine (strength=3)"]


def without_code(cell: Cell) -> Cell:
    """A cell as it was stored before keys had the code of a method."""
    spec = cell.spec()
    spec["method"].pop("code", None)
    return replace(cell, stored_spec=spec)


def test_two_parts_with_a_hyperparameter_of_the_same_name_are_told_apart() -> None:
    def spec(mine: float, si: float) -> dict[str, Any]:
        return {"method": {"name": "mine+si", "hyperparameters": {"mine": {"strength": mine}, "si": {"strength": si}}}}

    found = tell_apart([("mine + SI", "Task-IL", spec(*strengths)) for strengths in ((1.0, 2.0), (2.0, 1.0))])
    assert found == ["mine + SI (mine.strength=1, si.strength=2)", "mine + SI (mine.strength=2, si.strength=1)"]


def test_another_length_is_told() -> None:
    results = [a_result(a_cell(stream(), "task", "none", iters=iters), 50.0, seeds=2) for iters in (50, 100)]
    results.append(a_result(a_cell(stream(), "class", "none", iters=50), 20.0, seeds=2))
    results.append(a_result(a_cell(stream(), "task", "ewc", iters=50), 20.0, seeds=2))
    assert same_everywhere(table(results)) == ["None (iters=50)", "None (iters=100)", "EWC (iters=50)"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda spec: spec["stream"].update(tasks=2), [r"None \(tasks=5\)", r"EWC \(tasks=2\)"]),
        (lambda spec: spec["stream"].update(data="d" * 64), [r"None \(data=\w+\)", r"EWC \(data=dddddddd\)"]),
        (lambda spec: spec["stream"].update(code="c" * 64), ["None", r"EWC \(code=cccccccc\)"]),
        (lambda spec: spec.update(numerics=0), [r"None \(numerics=\d\)", r"EWC \(numerics=0\)"]),
    ],
    ids=["tasks", "data", "stream", "numerics"],
)
def test_other_tasks_and_data_are_told_also_where_the_methods_differ(change: Any, told: list[str]) -> None:
    """Else 27% on two tasks would stand beside 27% on five without a word."""
    none, ewc = (a_cell(stream(), "task", method, iters=5) for method in ("none", "ewc"))
    spec = json.loads(json.dumps(ewc.spec()))
    change(spec)
    cells = (none, replace(ewc, stored_spec=spec))
    rows = same_everywhere(table([a_result(cell, 50.0, seeds=2) for cell in cells]))
    assert all(re.fullmatch(pattern, row) for pattern, row in zip(told, rows, strict=True)), rows


def test_what_was_given_and_what_differs_stand_together() -> None:
    cells = [a_cell(stream(), "task", "ewc:strength=2", hidden=hidden, lr=0.1) for hidden in (8, 16)]
    cells.append(a_cell(stream(), "task", "ewc:strength=2+xdg", hidden=8, lr=0.1))
    cells.append(a_cell(stream(), "task", "ewc:strength=2+xdg", hidden=8, lr=0.2))
    rows = same_everywhere(table([a_result(cell, 50.0, seeds=2) for cell in cells]))
    assert rows == [
        *("EWC (strength=2, mlp:width=8, adam:lr=0.1)", "EWC (strength=2, mlp:width=16, adam:lr=0.1)"),
        "EWC (strength=2) + XdG (mlp:width=8, adam:lr=0.1)",
        "EWC (strength=2) + XdG (mlp:width=8, adam:lr=0.2)",
    ]


def test_networks_optimisers_and_schedules_are_told_by_their_names() -> None:
    def rows(*ways: dict[str, Any]) -> list[str]:
        cells = [a_cell(stream(), "task", "none", **way) for way in ways]
        return same_everywhere(table([a_result(cell, 50.0, seeds=2) for cell in cells]))

    cnn = {"network": "cnn:channels=8-16"}
    assert rows({}, cnn) == ["None (mlp:width=400)", "None (cnn:channels=8-16)"]
    assert rows(cnn, {"network": "cnn:channels=8"}) == ["None (cnn:channels=8-16)", "None (cnn:channels=8)"]
    ways = [cnn | {"optimizer": "sgd:lr=0.1"}, {"optimizer": "adamw:lr=0.1,betas=0.5-0.9"}]
    assert rows(*ways) == ["None (cnn:channels=8-16, sgd:lr=0.1)", "None (mlp:width=400, adamw:lr=0.1,betas=0.5-0.9)"]
    assert rows({}, {"schedule": "cosine"}) == ["None", "None (schedule=cosine)"]
    assert rows({"schedule": "step:at=0.5"}, {}) == ["None (schedule=step:at=0.5)", "None"]
    assert rows(cnn, cnn | {"augment": True}) == ["None", "None (augment=true)"]
    assert rows({"iters": 5}, {"epochs": 5}) == ["None (iters=5)", "None (epochs=5)"]


def test_rows_tell_how_they_were_trained_also_where_the_methods_differ() -> None:
    """Else a CNN's number would stand beside an MLP's without a word."""
    ways = {"none": "cnn:channels=8", "ewc": "mlp:width=9"}
    cells = [a_cell(stream(), "task", method, network=network, iters=5) for method, network in ways.items()]
    assert same_everywhere(table([a_result(cell, 50.0, seeds=2) for cell in cells])) == [
        "None (cnn:channels=8)",
        "EWC (mlp:width=9)",
    ]


def test_normalised_data_features_and_augmentation_are_told(tmp_path: Path) -> None:
    described = json.loads(json.dumps(a_cell(stream(), "task", "none", iters=5).described()))
    changes = {
        "None": lambda spec: None,
        "None (normalized=true)": lambda spec: spec["stream"].update(normalized=True),
        "None (features=eeeeeeee)": lambda spec: spec["stream"].update(features="e" * 64),
        "None (augment=true)": lambda spec: spec["training"].update(augment=True),
    }
    assert labels_of(described, changes) == list(changes)


def test_what_all_rows_have_and_the_paper_has_not_is_in_the_heading(tmp_path: Path) -> None:
    ways = {"network": "cnn:channels=8", "optimizer": "sgd:lr=0.1", "schedule": "cosine", "augment": True}
    cells = [a_cell(stream(), "task", method, iters=5, **ways) for method in ("none", "ewc")]
    found = stored(tmp_path / "a.db", table([a_result(cell, 50.0, seeds=2) for cell in cells]))
    assert same_everywhere(found) == ["None", "EWC"]
    heading = "split-mnist, cnn:channels=8, sgd:lr=0.1, cosine, augment: average accuracy over all tasks"
    for kind in ("terminal", "markdown", "latex", "html"):
        shown = render([found], kind, plain=True)
        shown = "\n".join(Page(shown).texts) if kind == "html" else shown
        assert heading in " ".join(shown.split())
    (row, _) = csv.DictReader(io.StringIO(render([found], "csv")))
    told = {"network": "cnn:channels=8", "optimizer": "sgd:lr=0.1", "schedule": "cosine"}
    assert {**row, **told, "augment": "True", "normalize": "False", "features": ""} == row


def test_the_rate_of_an_optimiser_is_told_from_that_of_a_part() -> None:
    def spec(rate: float, lr: float) -> dict[str, Any]:
        method = {"name": "mine", "hyperparameters": {"mine": {"lr": rate}}}
        return {"method": method, "optimizer": {"name": "sgd", "hyperparameters": {"lr": lr}}}

    found = tell_apart([("mine", "Task-IL", spec(*rates)) for rates in ((1.0, 2.0), (2.0, 1.0))])
    assert found == ["mine (lr=1, sgd:lr=2.0)", "mine (lr=2, sgd:lr=1.0)"]


def test_code_device_and_data_are_told(tmp_path: Path) -> None:
    """Only what is stored differs: a sum of the code, the device, the data."""
    with plugged_in():
        cell = a_cell(stream(), "task", "mine", iters=50)
    described = json.loads(json.dumps(cell.described()))
    changes = {
        "mine (code=aaaaaaaa)": lambda spec: spec["method"].update(code={"mine": "a" * 64}),
        "mine (code=bbbbbbbb)": lambda spec: spec["method"].update(code={"mine": "b" * 64}),
    }
    assert labels_of(described, changes) == list(changes)
    changes = {
        "mine (precision=fp32, device=cpu)": lambda spec: None,
        "mine (precision=tf32, device=cuda)": lambda spec: spec["training"].update(precision="tf32", device="cuda"),
    }
    assert labels_of(described, changes) == list(changes)
    changes = {
        "mine (data=cccccccc)": lambda spec: spec["stream"].update(data="c" * 64),
        "mine (data=dddddddd)": lambda spec: spec["stream"].update(data="d" * 64),
    }
    assert labels_of(described, changes) == list(changes)
    changes = {"mine": lambda spec: None, "mine (first=2)": lambda spec: spec["stream"].update(first=2)}
    assert labels_of(described, changes) == list(changes)


def labels_of(described: Mapping[str, Any], changes: Mapping[str, Callable[[dict[str, Any]], Any]]) -> list[str]:
    """The rows of cells that were described so, each with one change."""
    cells = []
    for change in changes.values():
        copy = json.loads(json.dumps(described))
        change(copy["spec"])
        cells.append(Cell.of_description(copy))
    section = Section("mine", "Mine", "table", [], cells=cells)
    return [row for _, row in result_tables(section)[0].rows]


def test_gates_in_the_hidden_layers_are_named_alike_everywhere() -> None:
    cell = a_cell(stream("permuted-mnist"), "task", "ewc+xdg", "hidden", iters=50)
    found = table([a_result(cell, 90.0, seeds=2)])
    assert same_everywhere(found) == ["EWC"]
    assert result_tables(found)[0].columns == ["Task-IL, task in hidden layers"]


def test_curves_over_budgets_hide_none_by_another() -> None:
    texts = [f"icarl:temperature={t},budget={b}" for t in (1, 2) for b in (10, 100)]
    cells = [a_cell(stream(), "class", text) for text in texts]
    ((_, chart),) = charts([Section("c", "C", "budgets", [a_result(cell, 50.0, seeds=2) for cell in cells])])
    (panel,) = chart.panels
    assert {line.label: list(line.x) for line in panel.lines} == {
        "iCaRL (temperature=1)": [10, 100],
        "iCaRL (temperature=2)": [10, 100],
    }


def test_a_third_hyperparameter_of_a_grid_hides_nothing() -> None:
    texts = [f"online-ewc:strength={s},decay={d}" for s in (1, 1000) for d in (0.1, 0.2, 0.3)]
    cells = [a_cell(stream(), "task", text, lr=lr) for text in texts for lr in (0.1, 0.01)]
    ((_, chart),) = charts([Section("g", "G", "grids", [a_result(cell, 60.0, seeds=2) for cell in cells])])
    assert [panel.row for panel in chart.panels] == ["Online EWC (adam:lr=0.1)", "Online EWC (adam:lr=0.01)"]
    assert sum(len(line.x) for panel in chart.panels for line in panel.lines) == len(cells)


def test_a_users_grid_is_drawn_without_the_plug_in(tmp_path: Path) -> None:
    with plugged_in():
        cells = [a_cell(stream(), "task", f"mine:strength={s}", iters=50) for s in (1, 10, 100)]
        made = Section("g", "G", "grids", [a_result(cell, 60.0, seeds=2) for cell in cells])
    ((_, chart),) = charts([stored(tmp_path / "a.db", made)])
    (panel,) = chart.panels
    assert (panel.row, panel.x_label, list(panel.lines[0].x)) == ("mine", "strength", [1, 10, 100])


leaves = st.sampled_from([None, 1, 2.5, "fp32", True, "ab" * 32])
hyperparameters = st.dictionaries(st.sampled_from(["mine", "xdg"]), st.dictionaries(st.sampled_from("ab"), leaves))
specs = st.fixed_dictionaries(
    {"stream": st.fixed_dictionaries({"tasks": st.integers(2, 3)}, optional={"first": st.just(2)})},
    optional={
        "method": st.fixed_dictionaries(
            {"name": st.sampled_from(["mine", "ewc+xdg"])}, optional={"hyperparameters": hyperparameters}
        ),
        "training": st.dictionaries(st.sampled_from(["iters", "lr"]), leaves),
    },
)
items = st.tuples(st.sampled_from(["mine", "mine (tasks=2)"]), st.sampled_from(["Task-IL", "Class-IL"]), specs)


def text(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, sort_keys=True)


@settings(deadline=None)
@given(st.lists(items, max_size=8))
def test_different_cells_of_a_place_have_different_names(items: list[tuple[str, str, dict[str, Any]]]) -> None:
    labels = tell_apart(items)
    for (one, first), (other, second) in combinations(zip(labels, items, strict=True), 2):
        same = text(first[2]) == text(second[2])
        if first[1] == second[1]:
            assert same or one != other
        if first[:2] == second[:2]:
            assert one == other or not same
    assert not any(re.search("['′]", label) for label in labels)


@settings(deadline=None)
@given(st.lists(items, max_size=8, unique_by=lambda item: item[:2]))
def test_names_that_are_no_others_stay_as_they_are(items: list[tuple[str, str, dict[str, Any]]]) -> None:
    assert tell_apart(items) == [name for name, _, _ in items]


@pytest.mark.parametrize("kind", ["csv", "html", "markdown", "terminal"])
def test_boundaries_are_told_where_not_all_have_the_same(kind: str) -> None:
    """Also of a method that is there with one of them alone: it must not be taken for one with the others'."""
    results = [a_result(a_cell(stream(), "class", method), 50.0, seeds=2) for method in ("none", "ewc")]
    blurred = stream(boundaries="blurred:width=25")
    results += [a_result(a_cell(blurred, "class", method, iters=100), 50.0, seeds=2) for method in ("none", "si")]
    wanted = {f"{method} (iters=2000)" for method in ("None", "EWC")}
    wanted |= {f"{method} (blurred:width=25, iters=100)" for method in ("None", "SI")}
    assert set(names(table(results), kind)) == wanted
    assert {row for _, row in result_tables(table(results[2:]))[0].rows} == {"None", "SI"}, "the heading says it"
    assert "blurred:width=25" in result_tables(table(results[2:]))[0].heading
