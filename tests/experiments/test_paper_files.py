"""The paper's six experiments: the files in the package say what the paper and the notes on it say."""

from collections import Counter

import pytest
import small_cells
from small_cells import cells_of, planned, seeds_of, small_mnist

from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Request, Run, Settings
from threefold.experiments.spec import PAPER, paper_experiment
from threefold.methods import parse
from threefold.results.published import published_cells
from threefold.scenarios import SCENARIOS

STEPS = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
TENTHS = {k / 10 for k in range(1, 11)}
OTHERS = {"none", "offline", "xdg", "ewc", "online-ewc", "si", "lwf", "dgr", "dgr-distill"}

# of the notes: (split | permuted) × (task, domain, class)
NOTES = {
    ("ewc", "strength"): {"split": (1e7, 1e6, 1e8), "permuted": (500, 500, 1)},
    ("online-ewc", "strength"): {"split": (1e8, 1e8, 1e9), "permuted": (500, 1000, 5)},
    ("online-ewc", "decay"): {"split": (0.8, 0.7, 0.8), "permuted": (0.8, 0.9, 1)},
    ("si", "strength"): {"split": (50, 500, 0.5), "permuted": (5, 5, 0.1)},
    ("xdg", "share"): {"split": (0.95,), "permuted": (0.55,)},
}


@pytest.fixture(autouse=True)
def _small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)


REQUESTS: dict[str, Request] = {}


def paper_request(name: str, **options: object) -> Request:
    """Planned once for all tests of this file, which do not change it."""
    asked = f"{name} {sorted(options.items())}"
    if asked not in REQUESTS:
        REQUESTS[asked] = small_cells.paper_request(name, **options)
    return REQUESTS[asked]


def values(found: Request, method: str, hyperparameter: str, stream: str = "split") -> dict[str, set[float]]:
    """The values of a hyperparameter, by scenario."""
    by: dict[str, set[float]] = {}
    for cell in cells_of(found):
        for part in cell.method.parts:
            if part.name == method and cell.stream.name == stream:
                by.setdefault(cell.scenario.name, set()).add(getattr(part, hyperparameter))
    return by


@pytest.mark.parametrize(
    ("name", "cells", "refused", "cohorts"),
    [
        ("table4", 26, 4, 26 - 5),  # six cells have one generator
        ("table5", 26, 4, 26 - 5),
        ("tableB1", 14, 0, 14 - 3),
        # networks of stored data: of training and both, of none and execution
        ("figureC1", 2 * (3 * 3 * 9 + 9 + 25), 4, 2 * (3 + 3 + 1 + 25 - 3 - 5)),
        ("figureD1", 20 + 3 * (14 + 140 + 17), 0, 10),
        ("figureD2", 10 + 3 * (8 + 80 + 8), 0, 10),
    ],
)
def test_each_has_its_cells(name: str, cells: int, refused: int, cohorts: int) -> None:
    found = paper_request(name)
    assert (len(cells_of(found)), len(found.refused)) == (cells, refused)
    assert len({Run(cell, 1).key for cell in cells_of(found)}) == cells, "no cell twice"
    runs = [Run(asked.cell, seed) for asked in found.asked if not asked.validation for seed in asked.seeds]
    assert len(planned(runs)) == cohorts
    assert found.selected == "oracle"
    assert found.command == f"threefold reproduce {name} --device cpu"


@pytest.mark.parametrize("name", PAPER)
def test_each_has_its_seeds(name: str) -> None:
    """Twenty; five where permuted MNIST has a curve over budgets; three for a point of a grid, one where it has two
    dimensions on permuted MNIST."""
    found = paper_request(name)
    for cell, seeds, *_ in found.asked:
        permuted = cell.stream.name == "permuted"
        wanted = {"figureC1": 5 if permuted else 20, "figureD1": 3, "figureD2": 3}.get(name, 20)
        if name == "figureD2" and cell.method.name == "online-ewc":
            wanted = 1
        assert seeds == tuple(range(1, wanted + 1)), cell.name
    for options in ({"seeds": "7"}, {"quick": True}):
        assert len(seeds_of(paper_request(name, **options))) == 1, "what is asked for explicitly counts for all"


def test_the_lines_of_figure_c1_are_runs_of_the_tables() -> None:
    """So whoever has the tables trains nothing but the curves, and generative replay in Task-IL: the code of 2019,
    which the figure is by, replays for every task, that of 2018, which the tables are by, for one."""
    tables = {
        Run(cell, seed).key
        for name in ("table4", "table5")
        for cell in cells_of(paper_request(name))
        for seed in (1, 5)
    }
    for cell in cells_of(paper_request("figureC1")):
        keys = {Run(cell, seed).key for seed in (1, 5)}
        name = cell.method.name
        as_in_the_tables = name == "icarl" and cell.method.hyperparameters()["icarl"]["budget"] == 2000
        otherwise = cell.scenario.name == "task" and name in ("dgr", "dgr-distill")
        assert (keys <= tables) == ((name in OTHERS and not otherwise) or as_in_the_tables)


def test_these_are_all() -> None:
    assert [paper_experiment(name).name for name in PAPER] == list(PAPER)
    with pytest.raises(ThreefoldError, match="experiment 'table6' is not known; did you mean 'table"):
        paper_experiment("table6")


@pytest.mark.parametrize("name", ["table4", "table5"])
def test_a_table_has_every_number_that_it_was_published_with(name: str) -> None:
    found = paper_request(name)
    published = {cell.published() for cell in cells_of(found)}
    assert published == {cell for cell in published_cells() if cell.table == name}
    assert all(cell.comparable for cell in cells_of(found))
    assert {(cell.scenario.name, cell.method.name) for cell, _ in found.refused} == {
        ("domain", "xdg"),
        ("class", "xdg"),
        ("task", "icarl"),
        ("domain", "icarl"),
    }


def test_table_b1_has_both_columns() -> None:
    found = paper_request("tableB1")
    by = {(cell.method.name, cell.task_id_in): cell.published() for cell in cells_of(found)}
    assert {cell for cell in by.values() if cell and cell.table == "tableB1"} == {
        cell for cell in published_cells() if cell.table == "tableB1"
    }
    assert Counter(cell.task_id_in for cell in cells_of(found)) == {"output": 7, "hidden": 7}
    assert all(cell for cell in by.values()), "the first column is Table 5's"
    assert {cell.scenario.name for cell in cells_of(found)} == {"task"}
    assert {cell.stream.title for cell in cells_of(found)} == {"permuted-mnist"}


@pytest.mark.parametrize(("name", "stream"), [("table4", "split"), ("table5", "permuted")])
def test_hyperparameters_are_those_of_the_notes(name: str, stream: str) -> None:
    found = paper_request(name)
    for (method, hyperparameter), selected in NOTES.items():
        wanted = {
            scenario: {value} for scenario, value in zip(("task", "domain", "class"), selected[stream], strict=False)
        }
        assert values(found, method, hyperparameter, stream) == wanted
    assert values(found, "icarl", "budget", stream) == {"class": {2000}}
    assert values(found, "icarl", "temperature", stream) == {"class": {2}}
    assert {reduction for some in values(found, "lwf", "reduction", stream).values() for reduction in some} == {"mean"}


EVERY, ONE = {"reduction": "mean", "replayed_for": "every"}, {"reduction": "mean", "replayed_for": "one"}
SEPTEMBER = {
    ("lwf", "task"): EVERY,  # in other scenarios the division makes no difference, and stays the text's
    ("lwf", "domain"): ONE,
    ("lwf", "class"): ONE,
    **{("dgr-distill", scenario): ONE for scenario in ("task", "domain", "class")},
    **{("dgr", scenario): {"replayed_for": "one"} for scenario in ("task", "domain", "class")},
    ("xdg", "task"): {"gate_on": "input"},
    ("icarl", "class"): {"temperature": 2},
}
APRIL = SEPTEMBER | {("dgr", "task"): {"replayed_for": "every"}, ("dgr-distill", "task"): EVERY}
RULE = {"table4": SEPTEMBER, "table5": SEPTEMBER, "figureC1": APRIL}


@pytest.mark.parametrize("name", PAPER)
def test_each_is_read_by_one_rule(name: str) -> None:
    """By the notes: Tables 4 and 5 as the authors' code of 2018, stored data and the task in hidden layers as that of
    April 2019. Whatever is not the text's is told with its value, once."""
    found, seen = paper_request(name), set()
    for cell in cells_of(found):
        for part in cell.method.parts:
            rule = RULE.get(name, SEPTEMBER)
            if name == "tableB1":
                rule = APRIL if cell.task_id_in == "hidden" else SEPTEMBER
            wanted = rule.get((part.name, cell.scenario.name), {})
            own = part.model_dump()
            assert {option: own[option] for option in wanted} == wanted
            seen |= {part.name} & {"lwf", "dgr", "dgr-distill", "xdg", "icarl"}
            departs = {o: v for o, v in wanted.items() if v != type(part).model_fields[o].default}
            assert departs.keys() <= part.model_fields_set
            for option, value in departs.items():
                texts = [r["text"] for r in found.rules if r["options"].get(part.name, {}).get(option) == value]
                assert texts, "said, by the rule of its column"
                assert all(f"({option}={value})" in text and " code" in text for text in texts), "and where it is from"
    assert seen == {"figureD1": {"xdg"}, "figureD2": {"xdg"}}.get(
        name, {"lwf", "dgr", "dgr-distill", "xdg"} | ({"icarl"} if name != "tableB1" else set())
    )
    assert not found.notes, "nothing is said twice"


def test_no_cell_is_trained_twice_for_an_option_that_cannot_matter() -> None:
    """Where the task is not given, all experiments have the same cell of a method that stores nothing."""
    for stream in ("split", "permuted"):
        keys: dict[tuple[str, str], set[str]] = {}
        for name in ("table4", "table5", "figureC1"):
            for cell in cells_of(paper_request(name)):
                if cell.stream.name == stream and cell.scenario.name != "task" and cell.method.name in OTHERS:
                    keys.setdefault((cell.scenario.name, cell.method.name), set()).add(Run(cell, 1).key)
        assert all(len(some) == 1 for some in keys.values())
        assert len(keys) == 2 * (len(OTHERS) - 1), "XdG needs the task"


JUDGED = {
    "si": ["damping=50"],
    "ewc": ["fisher_samples=1", "labels=true", "strength=3"],
    "online-ewc": ["decay=0.3"],
    "icarl": ["temperature=1000", "selection=random", "budget=50"],
    "lwf": ["temperature=100"],
    "dgr-distill": ["temperature=50"],
}
READ_OTHERWISE = {
    "icarl": ["temperature=1", "temperature=2", "unit_length=false"],
    "lwf": ["reduction=mean", "replayed_for=every", "reduction=mean,replayed_for=every"],
    "dgr-distill": ["reduction=mean"],
    "dgr": ["replayed_for=every"],
}


@pytest.mark.parametrize(("method", "options"), JUDGED.items())
def test_other_hyperparameters_than_the_papers_are_not_judged(method: str, options: list[str]) -> None:
    split = cells_of(paper_request("table4"))[0].stream
    default = Cell.of(split, SCENARIOS["class"], parse(method), Settings.checked(device="cpu"))
    assert default.comparable
    for option in options:
        cell = Cell.of(split, SCENARIOS["class"], parse(f"{method}:{option}"), Settings.checked(device="cpu"))
        assert cell.published()
        assert not cell.comparable, option
    for option in READ_OTHERWISE.get(method, []):
        cell = Cell.of(split, SCENARIOS["class"], parse(f"{method}:{option}"), Settings.checked(device="cpu"))
        assert cell.comparable, option


@pytest.mark.parametrize(("stream", "factor"), [("split", 1), ("permuted", 10)])
def test_figure_c1_has_the_papers_budgets(stream: str, factor: int) -> None:
    found, budgets = paper_request("figureC1"), {factor * step for step in STEPS}
    assert values(found, "er", "budget", stream) == dict.fromkeys(("task", "domain", "class"), budgets)
    assert values(found, "icarl", "budget", stream) == {"class": budgets}
    uses = {"training", "execution", "both"}
    assert values(found, "er", "use", stream) == dict.fromkeys(("task", "domain", "class"), uses)
    others = {cell.method.name for cell in cells_of(found) if cell.stream.name == stream} - {"er", "icarl"}
    assert others == OTHERS


def decades(first: int, last: int) -> set[float]:
    return {float(f"1e{power}") for power in range(first, last + 1)}


def test_figure_d1_has_the_notes_grids() -> None:
    found = paper_request("figureD1")
    every = ("task", "domain", "class")
    assert {cell.stream.title for cell in cells_of(found)} == {"split-mnist"}
    assert values(found, "xdg", "share") == {"task": {round(0.05 * k, 2) for k in range(20)}}
    assert values(found, "ewc", "strength") == dict.fromkeys(every, decades(0, 13))
    assert values(found, "online-ewc", "strength") == dict.fromkeys(every, decades(0, 13))
    assert values(found, "online-ewc", "decay") == dict.fromkeys(every, TENTHS)
    fives = {float(f"5e{power}") for power in range(-3, 5)}
    assert values(found, "si", "strength") == dict.fromkeys(every, decades(-3, 5) | fives)


def test_figure_d2_has_the_notes_grids() -> None:
    found = paper_request("figureD2")
    every = ("task", "domain", "class")
    assert {cell.stream.title for cell in cells_of(found)} == {"permuted-mnist"}
    assert values(found, "xdg", "share", "permuted") == {"task": {k / 10 for k in range(10)}}
    assert values(found, "ewc", "strength", "permuted") == dict.fromkeys(every, decades(0, 7))
    assert values(found, "online-ewc", "strength", "permuted") == dict.fromkeys(every, decades(0, 7))
    assert values(found, "online-ewc", "decay", "permuted") == dict.fromkeys(every, TENTHS)
    assert values(found, "si", "strength", "permuted") == dict.fromkeys(every, decades(-2, 5))


def test_they_are_trained_as_in_the_paper() -> None:
    for name in PAPER:
        for cell in cells_of(paper_request(name)):
            split = cell.stream.name == "split"
            wanted = (2000, 128, 400, 0.001) if split else (5000, 128, 1000, 0.0001)
            assert (cell.training.iters, cell.training.batch, cell.hidden, cell.lr) == wanted
            assert cell.stream.tasks == (5 if split else 10)


SHOWN = ("none", "ewc", "si", "lwf", "dgr", "dgr-distill", "icarl")
QUICK = {"table4": {("split-mnist", "class", method) for method in SHOWN}}  # long enough for the table's pattern


def test_quick_by_name_has_what_is_named() -> None:
    found = paper_request("table4", quick=True, only=["xdg", "task"])
    assert [cell.method.name for cell in cells_of(found)] == ["xdg"]


def test_a_rule_for_none_of_the_cells_is_not_told() -> None:
    told = [rule["text"].partition(",")[0] for rule in paper_request("table4", quick=True).rules]
    assert [len(paper_request("table4").rules), len(told)] == [3, 2]
    assert not any(text.startswith("In Task-IL") for text in told)


@pytest.mark.parametrize("name", PAPER)
def test_quick_has_every_method_in_every_scenario_with_the_ends_of_every_grid(name: str) -> None:
    quick, whole = paper_request(name, quick=True), paper_request(name)

    def places(found: Request) -> set[tuple[str, str, str]]:
        return {(cell.stream.title, cell.scenario.name, cell.method.name) for cell in cells_of(found)}

    kept = QUICK.get(name, places(whole))
    assert places(quick) == {place for place in places(whole) if place in kept}
    assert len(quick.asked) <= len(whole.asked)
    assert max(cell.training.iters for cell in cells_of(quick)) <= (400 if name in QUICK else 100)
    assert len(seeds_of(quick)[0]) <= 2
    assert quick.name == f"{name} quick", "it does not stand in for the real one"
    for stream in ("split", "permuted"):
        for method, hyperparameter in (
            ("er", "budget"),
            ("xdg", "share"),
            ("ewc", "strength"),
            ("online-ewc", "decay"),
        ):
            if name in QUICK:
                continue
            ends = [
                {scenario: (min(v), max(v)) for scenario, v in values(found, method, hyperparameter, stream).items()}
                for found in (quick, whole)
            ]
            assert ends[0] == ends[1]
