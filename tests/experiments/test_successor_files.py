"""The files of the paper's successor say what its authors trained, and their cells are judged by its numbers alone."""

from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest
from experiment_files import write
from small_cells import cells_of, paper_request, small_mnist

from threefold.data import Dataset, Encoder
from threefold.experiments import Cell, Request
from threefold.experiments import experiment_request as requests
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.spec import STORED, SUCCESSORS, load_experiment, paper_experiment
from threefold.networks import CNNNetwork, EncodedVAE, Weights, spec
from threefold.report.formatting import theirs
from threefold.results import SUCCESSOR, Outcome, Published, Summary, lookup, published_cells, run_key, verdict

# of its Tables 2 and 3, read off by hand: a cell in six
SOME = {
    ("split-mnist", "task", "none"): (84.32, 0.99),
    ("split-mnist", "class", "lwf"): (21.89, 0.32),
    ("split-mnist", "domain", "a-gem"): (87.67, 1.33),
    ("split-mnist", "class", "bi-r"): (94.41, nan),
    ("split-cifar-100", "task", "xdg"): (69.86, 0.34),
    ("split-cifar-100", "domain", "er"): (39.00, 0.34),
    ("split-cifar-100", "class", "offline"): (49.78, 0.21),
    ("split-cifar-100", "class", "icarl"): (37.83, 0.21),
    ("split-cifar-100", "task", "si"): (74.84, 0.39),
}
# (task, domain, class), by grid searches of its authors
CHOSEN = {
    ("ewc", "strength"): {"nmi-table2": (1e5, 1e10, 1e9), "nmi-table3": (1000, 1000, 100)},
    ("si", "strength"): {"nmi-table2": (10, 50000, 5000), "nmi-table3": (100, 500, 5)},
    ("bi-r", "gating"): {"nmi-table2": (0, 0.1, 0.1), "nmi-table3": (0, 0.5, 0.7)},
    ("fromp", "strength"): {"nmi-table2": (0.01, 10, 1000), "nmi-table3": ()},
    ("xdg", "share"): {"nmi-table2": (0.9,), "nmi-table3": (0.85,)},
}
ALIKE = {
    "ewc": {"labels": "expected", "fisher_samples": None},
    "lwf": {"weighting": "added", "t_squared": False, "replayed_for": "every", "temperature": 2, "reduction": "sum"},
    "bi-r": {"feedback": True, "conditional": True, "distil": True, "temperature": 2},
    "er": {"budget": 100, "per_class": True, "selection": "random", "sampling": "whole", "use": "training"},
    "a-gem": {"budget": 100, "per_class": True, "selection": "random", "sampling": "whole", "damping": 1e-7},
    "icarl": {"budget": 100, "per_class": True, "selection": "herding", "temperature": 2, "unit_length": True},
    "fromp": {"budget": 100, "prior": 1e-3, "clip": 1},
    "si": {"damping": 0.1},
    "xdg": {"gate_on": "input"},
    "dgr": {"replayed_for": "one"},
}


# FROMP's τ on split MNIST by budget of each class (1, 10, 100, 1000), by a grid search of its authors
TAU = {"task": [1e5, 1e-3, 0.01, 10], "domain": [1e-3, 1e5, 10, 0.1], "class": [1e5, 1e4, 1e3, 1]}


def cifar(*_: object, **__: object) -> Dataset:
    source = np.random.default_rng(0)
    x, y = source.random((3000, 3, 4, 4)).astype(np.float32), np.arange(3000) % 100
    return Dataset.from_arrays(x, y, x[:200], y[:200], name="cifar-100")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(monkeypatch)


@pytest.fixture
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Request:
    """What a file asks for; of split CIFAR-100 with features of noise."""
    name: str = request.param
    if name in ("nmi-table3", "nmi-budgets-cifar"):
        monkeypatch.setattr(requests, "load", cifar)
        flat = Encoder(lambda x: x.flatten(1), "0" * 64, "nmi-cifar-10.pt:each", True)
        each = dict.fromkeys(range(1, 11), flat)
        monkeypatch.setattr(requests, "encoder", lambda *_: replace(flat, each=each))
        monkeypatch.setattr(spec, "load_weights", lambda file: Weights("1" * 64, file))
        monkeypatch.setattr(Weights, "fitting", lambda *_: set())
    return paper_request(name)


WHICH = pytest.mark.parametrize("asked", SUCCESSORS, indirect=True)


@WHICH
def test_every_cell_is_trained_as_there_and_judged_by_its_number(asked: Request) -> None:
    stream = {"nmi-table2": "split-mnist", "nmi-table3": "split-cifar-100"}[asked.name]
    training = {"nmi-table2": (2000, 128, 400, 0.001, 5), "nmi-table3": (5000, 256, 2000, 0.0001, 10)}[asked.name]
    for cell in cells_of(asked):
        described = cell.spec()
        found = (cell.training.iters, cell.training.batch, cell.setting.hidden, cell.lr, cell.stream.tasks)
        assert found == training
        assert described["scenario"].get("active") == (
            "all" if cell.scenario.name == "class" and cell.method.name != "icarl" else None
        )
        on_features = asked.name == "nmi-table3" and cell.method.name != "dgr"
        assert ("features" in described["stream"]) == on_features
        network = cell.training.network
        assert isinstance(network, CNNNetwork) == (asked.name == "nmi-table3" and not on_features)
        if isinstance(network, CNNNetwork):  # as the features' networks are, and with their weights
            assert (network.channels, network.hidden) == ((16, 32, 64, 128, 256), (2000, 2000))
            assert (network.norm, network.last, network.frozen) == ("batch", "linear", True)
            assert network.init is not None
            assert network.init.file == "nmi-cifar-10.pt"
            generator = cell.method.parts[0].networks(cell.setting)["generator"]
            assert isinstance(generator, EncodedVAE)
        assert cell.comparable
        found = cell.published()
        assert found == lookup(stream, cell.scenario.name, cell.method.name, paper=SUCCESSOR)
    seeds = {seed for each in asked.asked for seed in each.seeds}
    assert seeds == set(range(1, 21 if asked.name == "nmi-table2" else 11))
    have = {(cell.scenario.name, cell.method.name) for cell in cells_of(asked)}
    theirs = {(c.scenario, c.method) for c in published_cells(SUCCESSOR) if c.table == asked.name}
    assert theirs <= have


@WHICH
def test_hyperparameters(asked: Request) -> None:
    for (method, name), by in CHOSEN.items():
        found = [getattr(c.method.parts[0], name) for c in cells_of(asked) if c.method.name == method]
        assert tuple(found) == by[asked.name], (method, name)
    for cell in cells_of(asked):
        for part in cell.method.parts:
            for name, value in ALIKE.get(part.name, {}).items():
                assert getattr(part, name) == value, (part.name, name)


@pytest.mark.parametrize("asked", STORED, indirect=True)
def test_curves_over_budgets_are_of_the_tables_methods(asked: Request) -> None:
    """Each as it is in the table but for its budget: where that is 100, it is the table's own run."""
    largest = {"nmi-budgets-mnist": 1000, "nmi-budgets-cifar": 500}[asked.name]
    by: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for cell in cells_of(asked):
        for part in cell.method.parts:
            if part.name == "offline":
                continue
            for name, value in ALIKE[part.name].items():
                assert name == "budget" or getattr(part, name) == value, (part.name, name)
            point = getattr(part, "budget"), getattr(part, "strength", 0.0)  # noqa: B009
            by.setdefault((part.name, cell.scenario.name), []).append(point)
    fromp = {scenario: by.pop(("fromp", scenario)) for scenario in ("task", "domain", "class")}
    assert by.keys() == {("icarl", "class"), *((m, s) for m in ("er", "a-gem") for s in fromp)}
    assert all([budget for budget, _ in points] == [1, 10, 100, largest] for points in by.values())
    for scenario, points in fromp.items():
        if asked.name == "nmi-budgets-mnist":
            assert points == list(zip([1, 10, 100, 1000], TAU[scenario], strict=True))
        else:
            assert points == [(1, 1), (10, 1)]
    table = paper_request({"nmi-budgets-mnist": "nmi-table2", "nmi-budgets-cifar": "nmi-table3"}[asked.name])
    theirs = {run_key(cell.run_spec(1)) for cell in cells_of(table)}
    shared = [cell for cell in cells_of(asked) if run_key(cell.run_spec(1)) in theirs]
    assert len(shared) == 6 + 7 + (3 if asked.name == "nmi-budgets-mnist" else 0)
    assert {seed for each in asked.asked for seed in each.seeds} == {1, 2, 3, 4, 5}


def test_54_numbers_are_published() -> None:
    cells = published_cells(SUCCESSOR)
    assert len(cells) == len({(c.stream, c.scenario, c.method) for c in cells}) == 54
    assert [sum(c.table == table for c in cells) for table in SUCCESSORS] == [23, 31]
    assert {c.n for c in cells if c.stream == "split-mnist"} == {20}
    assert {c.n for c in cells if c.stream == "split-cifar-100"} == {10}
    for where, (mean, sem) in SOME.items():
        found = lookup(*where, paper=SUCCESSOR)
        assert found is not None
        assert (found.mean, isnan(found.sem)) == (mean, isnan(sem))
        assert isnan(sem) or found.sem == sem
    assert sum(isnan(c.sem) for c in cells) == 6
    assert lookup("split-mnist", "task", "none") != lookup("split-mnist", "task", "none", paper=SUCCESSOR)


def test_a_mean_without_sem_is_judged_with_ours_and_says_so() -> None:
    ours = Summary(95.0, 0.2, 20, ())
    for mean, outcome in ((95.8, Outcome.AGREES), (95.9, Outcome.DIFFERS)):  # 3 √(0.2² + 0.2²) is 0.849
        found = verdict(ours, Published("nmi-table2", "split-mnist", "class", "er", None, mean, nan, 20, SUCCESSOR))
        assert found.outcome is outcome
        assert found.allowed == pytest.approx(3 * (2 * 0.2**2) ** 0.5)
        assert found.words == f"{outcome} (mean published without SEM, ours stands for it)"
    known = verdict(ours, Published("nmi-table2", "split-mnist", "class", "er", None, 95.8, 0.1, 20, SUCCESSOR))
    assert known.words == known.outcome
    assert theirs(lookup("split-mnist", "class", "er", paper=SUCCESSOR)) == "88.79 (no SEM)"


def test_a_run_may_stand_in_both_papers_tables() -> None:
    """With each paper's number beside it."""
    first, second = (
        next(c for c in cells_of(paper_request(name)) if (c.method.name, c.scenario.name) == ("none", "task"))
        for name in ("table4", "nmi-table2")
    )
    assert run_key(first.run_spec(1)) == run_key(second.run_spec(1))
    assert [cell.published().mean for cell in (first, second)] == [87.19, 84.32]  # type: ignore[union-attr]
    for cell in (first, second):
        again = Cell.of_description(cell.described())
        assert (again.paper, again.published()) == (cell.paper, cell.published())
    assert "paper" not in first.described()


def test_what_is_shortened_is_not_judged() -> None:
    for options in ({"quick": True}, {"iters": 1999}):
        found = cells_of(paper_request("nmi-table2", **options))
        assert not any(cell.comparable for cell in found)


def test_no_file_of_ones_own_can_claim_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "name = 'nmi-table2'\nstream = 'split-mnist'\nmethods = [{ method = 'none' }]\ntraining = { active = 'all' }"
    found = experiment_request(load_experiment(write(text)), Options(device="cpu"), "experiment mine.toml")
    assert {cell.paper for cell in cells_of(found)} == {"2019"}
    assert paper_experiment("nmi-table2").paper == SUCCESSOR
