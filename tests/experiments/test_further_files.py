"""The three experiments that the paper has not: their files say what their sources and headings say."""

import pytest
from small_cells import cells_of, paper_request, seeds_of, small_mnist

from threefold.experiments import Cell
from threefold.results.seed import read_seed
from threefold.streams.boundaries import Blurred


@pytest.fixture(autouse=True)
def _small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)


def of(cells: list[Cell], name: str) -> dict[str, dict[str, object]]:
    """The numbers of a method, by scenario."""
    found = [cell for cell in cells if cell.method.name == name]
    return {cell.scenario.name: cell.method.hyperparameters().get(name, {}) for cell in found}


def test_the_task_free_comparison_is_that_of_the_authors_code() -> None:
    """Fades of 2 × 500 steps, 10,000 steps in all, a clock of 100, budgets in all, each method where it is theirs."""
    found = paper_request("taskfree")
    cells = cells_of(found)
    assert [cell.stream.boundaries for cell in cells] == [Blurred(width=500, every=100)] * len(cells)
    assert {(cell.training.iters, cell.training.batch, cell.stream.tasks) for cell in cells} == {(2000, 128, 5)}
    three = {"task", "domain", "class"}
    assert {name: set(of(cells, name)) for name in ("none", "offline", "si", "lwf", "er", "a-gem")} == dict.fromkeys(
        ("none", "offline", "si", "lwf", "er", "a-gem"), three
    )
    assert of(cells, "xdg") == {"task": {"share": 0.45, "gate_on": "activation"}}, "a gated unit gives nothing at all"
    assert all((one["strength"], one["damping"]) == (10, 0.1) for one in of(cells, "si").values())
    assert all(
        (one["temperature"], one["reduction"], one["t_squared"]) == (2, "sum", False)
        for one in of(cells, "lwf").values()
    )
    for name in ("er", "a-gem"):
        assert all((one["budget"], one["selection"]) == (1000, "reservoir") for one in of(cells, name).values())
    assert all(one["damping"] == 1e-7 for one in of(cells, "a-gem").values())
    assert list(of(cells, "icarl")) == ["class"]
    icarl = of(cells, "icarl")["class"]
    assert (icarl["budget"], icarl["selection"], icarl["unit_length"]) == (1000, "reservoir", True)
    assert len(cells) == 20
    assert set(seeds_of(found)) == {tuple(range(1, 21))}


def test_the_stability_gap_is_tested_at_each_of_a_hundred_steps_on_all_data() -> None:
    cells = cells_of(paper_request("stability"))
    assert {(cell.scenario.name, cell.method.name) for cell in cells} == {
        (scenario, method) for scenario in ("task", "domain") for method in ("none", "ewc", "er", "dgr", "offline")
    }
    tested = {cell.training.evaluation for cell in cells}
    assert {(e.every, e.first, e.samples) for e in tested if e} == {(100, 100, None)}
    assert {cell.training.iters for cell in cells} == {2000}


def test_a_hundred_orders_of_one_seed_stand_beside_a_hundred_seeds_in_one_order() -> None:
    pairs: dict[str, set[tuple[int, int]]] = {}
    for cell, seeds, *_ in paper_request("orders").asked:
        pairs.setdefault(cell.name, set()).update((seed.seed, seed.order) for seed in map(read_seed, seeds))
    assert len(pairs) == 6
    for name, each in pairs.items():
        assert each == {(1, n) for n in range(1, 101)} | {(n, 1) for n in range(1, 101)}, name
