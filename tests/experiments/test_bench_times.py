"""The bench, on shapes that take no time: that it measures what it says, not how fast this machine is."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from threefold.bench import floor as floor_module
from threefold.bench import growth, steps, timing
from threefold.data import Dataset
from threefold.methods import METHODS, Method
from threefold.protocols import Permuted, Protocol, Split

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Split, Permuted):
        monkeypatch.setattr(kind, "defaults", replace(kind.defaults, hidden=8, batch=16))


def small(samples: int = 400) -> Dataset:
    x, y = np.random.default_rng(0).random((samples, 4, 4)).astype(np.float32), np.arange(samples) % 10
    return Dataset.from_arrays(x, y, x, y, name="mnist")


@pytest.fixture(params=[Split, Permuted])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    kind: type[Protocol] = request.param
    return kind(small())


@pytest.mark.parametrize("replicas", [1, 3])
def test_all_three_kinds_of_step_are_timed(protocol: Protocol, replicas: int) -> None:
    timing = steps._compare(protocol, replicas, CPU, rounds=3)
    assert (timing.protocol, timing.replicas) == (protocol.name, replicas)
    assert min(timing.cohort, timing.alone, timing.products) > 0


def test_every_method_is_timed_beside_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "stand_in", lambda samples: small())
    costs = list(steps.bench_methods("cpu", replicas=2, rounds=1))
    assert [cost.method for cost in costs] == list(METHODS)
    assert {cost.method: cost.scenario for cost in costs}["xdg"] == "Task-IL"
    assert all(cost.step > 0 and cost.none > 0 for cost in costs)


def test_medians_are_taken_in_turns_after_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, called = [0.0], []
    cold = [900] * timing.WARM_UP
    durations = {"quick": iter([*cold, 1, 2, 30]), "slow": iter([*cold, 40, 50, 60])}

    def takes(name: str) -> None:
        called.append(name)
        clock[0] += next(durations[name]) / 1e3

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    taken = timing.medians({name: lambda name=name: takes(name) for name in durations}, 3, CPU)  # type: ignore[misc]
    assert taken == pytest.approx({"quick": 2.0, "slow": 50.0})
    assert all(one != other for one, other in pairwise(called))


def test_the_bare_products_are_those_of_the_cohorts_network(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = steps._stack(protocol, Method(), "class", 3, CPU)
    shapes = []
    monkeypatch.setattr(torch, "bmm", lambda a, b: shapes.append((tuple(a.shape), tuple(b.shape))))
    steps.products(stack)()
    inputs, units = stack.setting.inputs, stack.setting.outputs.units
    layers = [(inputs, 8), (8, 8), (8, units)]
    forward = [((3, 16, i), (3, i, o)) for i, o in layers]
    weights = [((3, o, 16), (3, 16, i)) for i, o in layers]
    back = [((3, 16, o), (3, o, i)) for i, o in layers[1:]]  # no gradient is needed for the images
    assert sorted(shapes) == sorted(forward + weights + back)


@pytest.fixture
def _even_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of one operation and one byte per millisecond."""
    monkeypatch.setattr(steps, "rates", lambda device: floor_module.Rates(1.0, 1.0))
    monkeypatch.setattr(growth, "rates", lambda device: floor_module.Rates(1.0, 1.0))


@pytest.mark.usefixtures("_even_rates")
def test_the_floor_is_counted_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products: two operations for each weight and sample, three times but for the images' gradient; bytes: 28 each."""
    monkeypatch.setattr(steps, "stand_in", lambda samples: small())
    costs = {cost.method: cost.floor for cost in steps.bench_methods("cpu", replicas=2, rounds=1)}
    weights, biases, first = 16 * 8 + 8 * 8 + 8 * 10, 8 + 8 + 10, 16 * 8
    trained = 2 * (weights + biases)
    forward = 2 * 2 * 16 * weights  # replicas × multiply and add × samples × weights
    assert costs["none"].products == 3 * forward - 2 * 2 * 16 * first
    assert costs["none"].memory == 28 * trained
    assert costs["ewc"].products == costs["none"].products
    assert costs["ewc"].memory == (28 + 8) * trained  # the anchor and the precision
    assert costs["si"].memory == (28 + 12 + 4) * trained  # ω is written as well
    assert costs["lwf"].products == costs["none"].products + forward  # the teacher's pass
    assert costs["lwf"].memory == (28 + 4) * trained
    assert costs["none"].step == max(costs["none"].products, costs["none"].memory)


def test_rates_are_those_of_a_product_and_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor_module, "medians", lambda functions, rounds, device: {"product": 4.0, "copy": 2.0})
    assert floor_module.rates(CPU) == floor_module.Rates(2 * 2048**3 / 4, 8 * 2**25 / 2)


@pytest.mark.usefixtures("_even_rates")
def test_growth_takes_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "stand_in", lambda samples: small())
    grown = list(growth.grow("cpu", 1, replicas=(1, 2), hidden=(4, 8), tasks=(2, 3)))
    found = [(g.what, g.size, g.method) for g in grown]
    assert found == [
        *(("replicas", size, "none") for size in (1, 2)),
        *(("hidden units", size, "none") for size in (4, 8)),
        *(("tasks", size, method) for method in ("none", "ewc") for size in (2, 3)),
    ]
    floors = {(g.what, g.size, g.method): g.floor for g in grown}
    assert floors["replicas", 2, "none"] == 2 * floors["replicas", 1, "none"]
    assert floors["hidden units", 8, "none"] > floors["hidden units", 4, "none"]
    assert Split.defaults.hidden == 8  # of the other protocols
