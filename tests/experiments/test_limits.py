"""Impossible sizes are refused before anything is allocated, and huge plans before they are made."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from experiment_files import METHODS, TOP, requested, small_data, write
from hypothesis import given
from hypothesis import strategies as st
from small_cells import cells_of
from torch import nn
from torch.utils._pytree import tree_leaves

import threefold
from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Settings, Stopped, limits, train_requests
from threefold.experiments.cohort import capacity
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.limits import LARGEST, Sizes, check_runs, in_bytes
from threefold.experiments.spec import load_experiment
from threefold.methods import Method, Part, hyper, parse
from threefold.methods.part import Setting
from threefold.networks import MLP, MLPNetwork, find_network
from threefold.scenarios import SCENARIOS, Outputs
from threefold.streams import Permuted, Split

sizes = st.integers(1, 40)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_data(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def data(lab: Path) -> Dataset:
    return threefold.load("small.npz")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many bytes are free, on a machine so small that all sizes count."""

    def call(size: int) -> None:
        monkeypatch.setattr(limits, "SMALL", 0)
        monkeypatch.setattr(limits, "free_on", lambda device: size)

    return call


@given(
    *(st.sampled_from(list(SCENARIOS.values())), st.integers(1, 4)),
    *(sizes, sizes, sizes, st.integers(1, 9), st.integers(2, 5)),
)
def test_what_a_network_needs_is_what_its_tensors_take(
    scenario: Any, depth: int, inputs: int, hidden: int, batch: int, tasks: int, classes: int
) -> None:
    outputs = Outputs(scenario, tasks, classes)
    net = MLP(inputs, hidden, outputs.units, depth)
    passing = []
    for module in net.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, given, made: passing.append(made))
    x = torch.zeros(batch, inputs)
    net(x)
    trained = [p for p in net.parameters() for _ in ("itself", "gradient", "first moment", "second moment")]
    tables = [outputs.table(tasks), outputs.table(tasks - 1), torch.zeros(tasks, tasks, dtype=torch.float64)]
    expected = sum(tensor.nbytes for tensor in (*trained, x, *passing, *tables))
    assert Sizes.of(Setting(outputs, (inputs,), batch, MLPNetwork(width=hidden, depth=depth))).bytes == expected


@pytest.mark.parametrize("batch", [1, 9])
@pytest.mark.parametrize("network", ["cnn:channels=4", "cnn:channels=4-64,norm=batch", "resnet18:width=2"])
def test_of_other_networks_never_more_is_counted_than_their_tensors_take(network: str, batch: int) -> None:
    """What could be trained must not be refused; what they need beyond is counted when they are built."""
    outputs = Outputs(SCENARIOS["class"], 5, 2)
    setting = Setting(outputs, (3, 8, 8), batch, find_network(network))
    weights = 16 * sum(p.numel() for p in setting.classifier().parameters())
    tables = [outputs.table(5), outputs.table(4), torch.zeros(5, 5, dtype=torch.float64)]
    passing = 4 * batch * (setting.inputs + setting.structure.activations)
    assert Sizes.of(setting).bytes <= weights + passing + sum(table.nbytes for table in tables)


def refused(data: Dataset, kind: Any = Permuted, tasks: int = 2, method: Any = "none", **settings: Any) -> str:
    with pytest.raises(ThreefoldError) as told:
        cell_of(data, kind, tasks, method, **settings)
    return str(told.value)


def cell_of(data: Dataset, kind: Any = Permuted, tasks: int = 2, method: Any = "none", **settings: Any) -> Cell:
    chosen = Settings.checked(device="cpu", **settings)
    return Cell.of(kind(data, tasks), SCENARIOS["class"], parse(method), chosen)


@pytest.mark.parametrize(("name", "value"), [("hidden", 10**6), ("batch", 10**7), ("tasks", 10**4)])
def test_the_advice_is_the_largest_that_fits(data: Dataset, free: Callable[[int], None], name: str, value: int) -> None:
    free(10**8)
    small = {"hidden": 8, "batch": 4}
    said = refused(data, **small | {name: value})
    found = re.fullmatch(
        rf"{name} must be at most (\d+) here, got {value}: one network would need about [\d.,]+ [kMGTP]B of memory, and"
        r" 100 MB are free\.",
        said,
    )
    assert found, said
    most = int(found[1])
    cell_of(data, **small | {name: most})
    assert f"got {most + 1}:" in refused(data, **small | {name: most + 1})


def test_nothing_is_built_to_find_out(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: object) -> None:
        raise AssertionError("a network was built")

    monkeypatch.setattr(nn.Linear, "__init__", built)
    for method in ("none", "ewc:strength=1", "dgr", "xdg:share=0.5"):
        assert "hidden must be at most" in refused(data, method=method, hidden=5 * 10**9)
    assert "tasks must be at most" in refused(data, tasks=10**7)


def test_networks_beside_the_classifier_count(data: Dataset, free: Callable[[int], None]) -> None:
    free(50 * 10**6)
    cell_of(data, hidden=1000)
    classifier = 64 * 1000 + 1000**2 + 1000 * 8 + 2 * 1000 + 8
    encoder, latent = 64 * 1000 + 1000**2 + 2 * 1000, 2 * (1000 * 100 + 100)
    decoder = 100 * 1000 + 1000**2 + 2 * 1000 + 1000 * 64 + 64
    need = 16 * (classifier + encoder + latent + decoder)
    assert need // 10**6 == 56
    assert "dgr would need about 56 MB of memory for the networks of one run, and 50 MB are free" in refused(
        data, method="dgr", hidden=1000
    )


class Wide(Part):
    """A part with a network of any width."""

    name = "wide"
    latent: int = hyper("units in the middle", 4, ge=1, per_replica=False)

    def networks(self, setting: Setting) -> dict[str, nn.Module]:
        return {"wide": nn.Sequential(nn.Linear(self.latent, self.latent), nn.Linear(self.latent, self.latent))}


@pytest.mark.parametrize("latent", [10**7, 10**12])
def test_a_network_of_the_users_may_be_too_wide(data: Dataset, latent: int) -> None:
    with pytest.raises(ThreefoldError, match=rf"wide:latent={latent} .*; use smaller numbers\.$"):
        threefold.run(Split(data, 2), scenario="class", method=Wide(latent=latent), seeds=1, store=None, device="cpu")


@pytest.mark.parametrize(
    ("given", "why"), [(lambda: 1 / 0, "ZeroDivisionError: division by zero"), (lambda: 0.5, "TypeError: 'float'")]
)
def test_a_size_that_fails_is_named(data: Dataset, given: Callable[[], int], why: str) -> None:
    class Sized(Part):
        name = "sized"

        def size(self, setting: Setting) -> int:
            return given()

    with pytest.raises(ThreefoldError, match=rf"^size of sized must give a whole number \({why}.*\)\.$"):
        Cell.of(Split(data, 2), SCENARIOS["class"], Method(Sized()), Settings.checked(device="cpu"))


REMEMBERED = [  # and what comes to pass in `start`: GEM's rows are a step's, so they are counted by hand
    ("class", "der:budget={}"),
    ("class", "der-pp:budget={}"),
    ("task", "separate:width={}"),
    ("class", "generative-classifier:hidden={}"),
    ("class", "generative-classifier:latent={}"),
    ("class", "generative-classifier:samples={}"),
]


@pytest.mark.parametrize(("scenario", "method"), [*REMEMBERED, ("class", "gem:budget={}")])
def test_what_a_method_would_remember_is_refused_unallocated(data: Dataset, scenario: str, method: str) -> None:
    with pytest.raises(ThreefoldError, match=r"(would need about|has networks larger than).*; use smaller numbers\.$"):
        Cell.of(Split(data, 2), SCENARIOS[scenario], parse(method.format(LARGEST)), Settings.checked(device="cpu"))


@pytest.mark.parametrize(("scenario", "method"), REMEMBERED)
def test_never_more_is_counted_than_is_remembered(data: Dataset, scenario: str, method: str) -> None:
    cell = Cell.of(Split(data, 2), SCENARIOS[scenario], parse(method.format(1000)), Settings.checked(device="cpu"))
    (part,) = cell.method.parts
    tensors = tree_leaves(part.start(cell.setting, 1, {}))
    assert 0.9 < 4 * cell.remembered / sum(tensor.nbytes for tensor in tensors) <= 1


def test_gem_looks_at_as_many_rows_as_may_be_stored(data: Dataset) -> None:
    for tasks, numbers in ((1, 0), (2, 1000 * 16)):
        assert (
            Cell.of(
                Split(data, tasks), SCENARIOS["class"], parse("gem:budget=1000"), Settings.checked(device="cpu")
            ).remembered
            == numbers
        )


def test_no_vae_has_a_million_layers() -> None:
    with pytest.raises(ThreefoldError, match="layers of generative-classifier is '1000000': input should be less"):
        parse("generative-classifier:layers=1000000")


def test_memory_elsewhere_is_not_this_machines(data: Dataset, free: Callable[[int], None]) -> None:
    free(10)
    settings = Settings.checked(device="cpu", hidden=1000)
    with pytest.raises(ThreefoldError, match="10 bytes are free"):
        Cell.of(Split(data, 2), SCENARIOS["class"], Method(), settings)
    Cell.of(Split(data, 2), SCENARIOS["class"], Method(), settings.elsewhere(cuda=False))
    beyond = Settings.checked(device="cpu", hidden=5 * 10**9).elsewhere(cuda=False)
    with pytest.raises(ThreefoldError, match="no machine has 70 TB"):
        Cell.of(Split(data, 2), SCENARIOS["class"], Method(), beyond)


def test_many_iterations_and_large_budgets_are_no_matter_of_memory(data: Dataset) -> None:
    assert cell_of(data, iters=99_999_999_999).training.iters == 99_999_999_999
    given = {"store": None, "device": "cpu", "iters": 2, "hidden": 8, "batch": 16}
    largest, enough = (
        threefold.run(Split(data, 2), scenario="class", method=f"er:budget={budget}", seeds=1, **given).matrix  # type: ignore[arg-type]
        for budget in (LARGEST, 2 * len(data.train_y))
    )
    assert (largest == enough).all(), "both store every sample"


def test_a_stack_has_room_for_its_tables(data: Dataset) -> None:
    few, many = cell_of(data, tasks=2, hidden=8), cell_of(data, tasks=2000, hidden=8)
    assert capacity(many, lambda device: 10**9) <= 10**9 // (8 * 2000**2) < capacity(few, lambda device: 10**9)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (9_940, "9.9 kB"), (21_474_836_480, "21 GB")),
        *((7 * 10**12, "7.0 TB"), (4 * 10**20, "400 EB"), (10**27, "1,000 YB")),
    ],
)
def test_bytes_in_words(number: int, text: str) -> None:
    assert in_bytes(number) == text


# plans


def test_a_large_plan_is_counted_and_must_be_confirmed() -> None:
    check_runs(10_000, 10_000, confirmed=False)
    with pytest.raises(ThreefoldError, match=r"^this would be 10,001 runs, more than 10,000; use --yes to train"):
        check_runs(1, 10_001, confirmed=False)
    check_runs(1, 10_001, confirmed=True)
    with pytest.raises(ThreefoldError, match=r"^this would be 1,000,000,000 runs, and the plan alone would need about"):
        check_runs(10**9, 10**9, confirmed=True)


GRID = TOP + "[[methods]]\nmethod = 'ewc'\nwith = {{ strength = {0}, fisher_samples = {0}, labels = {1} }}\n"


@pytest.mark.parametrize(("points", "named"), [(30, "this would be 10,800 runs"), (10**4, "the plan alone would need")])
def test_a_grid_is_counted_before_it_is_built(lab: Path, points: int, named: str) -> None:
    """10⁸ points in a file of a few thousand numbers."""
    file = write(GRID.format(list(range(1, points + 1)), ["true", "sampled", "true", "sampled"]))
    experiment = load_experiment(file)
    begun = time.process_time()
    with pytest.raises(ThreefoldError, match=named):
        experiment_request(experiment, Options(device="cpu", only=["task"]), "experiment mine.toml")
    assert time.process_time() - begun < 1
    assert not (lab / "threefold.db").exists()


def test_networks_and_optimizers_are_counted_before_they_are_paired(lab: Path) -> None:
    """10⁸ ways to train in a file of 100,000 words."""
    networks = [f"mlp:depth={depth % 9 + 1}" for depth in range(10_000)]
    text = TOP.replace("hidden = 8", f"network = {networks}\noptimizer = {['adam'] * 10_000}")
    begun = time.process_time()
    with pytest.raises(ThreefoldError, match="this would be 900,000,000 runs, and the plan alone"):
        requested(text + "[[methods]]\nmethod = 'none'")
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("wrong", ["network", "optimizer"])
def test_every_network_and_optimizer_is_still_checked(lab: Path, wrong: str) -> None:
    """Each of them may not go with what else is given."""
    given = {"network": ["'cnn'", "'mlp:width=8'"], "optimizer": ["'adam'", "'sgd:lr=0.1'"]}[wrong]
    text = TOP.replace("hidden = 8", f"{'hidden = 8' if wrong == 'network' else 'lr = 0.1'}\n{wrong} = [{{}}]")
    plain = {"network": "'mlp'", "optimizer": "'sgd'"}[wrong]
    for values in ((given[1], plain), (plain, given[1])):
        with pytest.raises(ThreefoldError, match=f"but {wrong} is {given[1]}"):
            requested(text.format(", ".join(values)) + "[[methods]]\nmethod = 'none'")


def test_many_methods_with_many_seeds_are_counted_at_once(lab: Path) -> None:
    methods = "[[methods]]\nmethod = 'none'\n" * 5000
    begun = time.process_time()
    with pytest.raises(ThreefoldError, match="this would be 150,000,000 runs"):
        requested(TOP.replace("seeds = 3", "seeds = 10000") + methods)
    assert time.process_time() - begun < 10


def test_every_value_of_a_grid_is_still_checked(lab: Path) -> None:
    for place in range(4):
        values = [1, 2, 3, 4]
        values[place] = -1
        with pytest.raises(ThreefoldError, match="hyperparameter strength of ewc is '-1'"):
            load_experiment(write(GRID.format(values, ["true"])))


def test_confirmed_it_is_planned(lab: Path) -> None:
    file = write(GRID.format([1, 2], ["true"]).replace("seeds = 3", "seeds = 2000"))
    with pytest.raises(ThreefoldError, match="this would be 24,000 runs"):
        experiment_request(load_experiment(file), Options(device="cpu"), f"experiment {file}")
    found = experiment_request(load_experiment(file), Options(device="cpu", yes=True), f"experiment {file}")
    assert len(cells_of(found)) == 12
    assert found.command == "threefold experiment mine.toml --yes --device cpu"


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("hidden = 8", "hidden = 5_000_000_000", "hidden must be at most"),
        ("batch = 16", "batch = 500_000_000_000", "batch must be at most"),
        ("tasks = 2", "tasks = 1_000_000", "tasks must be at most"),
        ("iters = 6", "iters = 1_000_000_000_000_000", "iters must be at most"),
    ],
)
def test_a_file_is_checked_as_the_command_line_is(lab: Path, before: str, after: str, named: str) -> None:
    text = TOP.replace('"split"', '"permuted"').replace(before, after) + "[[methods]]\nmethod = 'dgr'\n"
    with pytest.raises(ThreefoldError, match=named):
        requested(text)


@pytest.mark.parametrize("validation", ["", "[validation]\nshare = 0.2\ntasks = 1\n"])
@pytest.mark.parametrize(
    "options", [{}, {"quick": True}, {"only": ["lwf", "task"]}, {"seeds": "7"}, {"only": ["class"]}]
)
def test_what_is_counted_is_what_is_planned(
    lab: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], validation: str
) -> None:
    counted = []
    monkeypatch.setattr(
        "threefold.experiments.experiment_request.check_runs", lambda *given, confirmed: counted.append(given)
    )
    text = METHODS.replace("with = { reduction", 'seeds = "4"\nwith = { reduction') + validation
    found = requested(text, **options)
    whole, twice = found.whole or found, 2 if validation else 1
    assert counted[0][0] == len(whole.asked) + len(whole.refused) * twice
    runs = sum(len(asked.seeds) for asked in found.asked)
    assert runs <= counted[0][1] <= runs + len(found.refused) * twice * 7


class Backwards(Split):
    """A stream of the user's: tasks in the other order, and fewer samples."""

    def sequence(self, seed: int) -> list[Any]:
        tasks = super().sequence(seed)[::-1]
        return [type(task)(task.classes, task.train[:-3], task.test) for task in tasks]


class Less(Permuted):
    def sequence(self, seed: int) -> list[Any]:
        return [type(task)(task.classes, task.train[:-3], task.test, task.pixels) for task in super().sequence(seed)]


@pytest.mark.parametrize("kind", [Split, Permuted, Backwards, Less])
def test_the_smallest_task_is_that_of_the_sequence(data: Dataset, kind: type[Split]) -> None:
    uneven = Dataset.from_arrays(data.train_x[7:], data.train_y[7:], data.test_x, data.test_y)
    stream = kind(uneven, 2)
    for seed in range(9):
        assert stream.smallest_task(seed) == min(len(task.train) for task in stream.sequence(seed))


def test_ten_thousand_runs_are_planned_in_seconds(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    monkeypatch.setattr(MLP, "__init__", _noting(MLP.__init__, built))
    monkeypatch.setattr(Split, "sequence", _noting(Split.sequence, built))
    values = [round(1 + 0.001 * n, 3) for n in range(5000)]
    file = write(
        TOP.replace("seeds = 3", "seeds = 2") + f"[[methods]]\nmethod = 'ewc'\nwith = {{ strength = {values} }}"
    )
    begun = time.process_time()
    found = experiment_request(load_experiment(file), Options(device="cpu", only=["class"]), f"experiment {file}")
    assert sum(len(asked.seeds) for asked in found.asked) == 10_000
    with pytest.raises(Stopped):  # before the first cohort
        train_requests([found], "a.db", stop=lambda: True)
    assert time.process_time() - begun < 10
    assert len(built) <= 2, "cells of one grid are alike, and no sequence is needed for a plan"


def _noting(function: Any, calls: list[Any]) -> Any:
    def noted(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return function(*given, **named)

    return noted
