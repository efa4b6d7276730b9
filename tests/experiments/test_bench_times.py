"""The bench, on shapes that take no time: that it measures what it says, not how fast this machine is."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from threefold.data import Dataset
from threefold.experiments import bench
from threefold.methods import METHODS, Method
from threefold.protocols import Permuted, Protocol, Split

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
    timing = bench._compare(protocol, replicas, CPU, rounds=3)
    assert (timing.protocol, timing.replicas) == (protocol.name, replicas)
    assert min(timing.cohort, timing.alone, timing.products) > 0


def test_every_method_is_timed_beside_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "stand_in", lambda samples: small())
    costs = list(bench.bench_methods("cpu", replicas=2, rounds=1))
    assert [cost.method for cost in costs] == list(METHODS)
    assert {cost.method: cost.scenario for cost in costs}["xdg"] == "Task-IL"
    assert all(cost.step > 0 and cost.none > 0 for cost in costs)


def test_medians_are_taken_in_turns_after_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, called = [0.0], []
    cold = [900] * bench.WARM_UP
    durations = {"quick": iter([*cold, 1, 2, 30]), "slow": iter([*cold, 40, 50, 60])}

    def takes(name: str) -> None:
        called.append(name)
        clock[0] += next(durations[name]) / 1e3

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    taken = bench.medians({name: lambda name=name: takes(name) for name in durations}, 3, CPU)  # type: ignore[misc]
    assert taken == pytest.approx({"quick": 2.0, "slow": 50.0})
    assert all(one != other for one, other in pairwise(called))


def test_the_bare_products_are_those_of_the_cohorts_network(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = bench._stack(protocol, Method(), "class", 3, CPU)
    shapes = []
    monkeypatch.setattr(torch, "bmm", lambda a, b: shapes.append((tuple(a.shape), tuple(b.shape))))
    bench.products(stack)()
    inputs, units = stack.setting.inputs, stack.setting.outputs.units
    layers = [(inputs, 8), (8, 8), (8, units)]
    forward = [((3, 16, i), (3, i, o)) for i, o in layers]
    weights = [((3, o, 16), (3, 16, i)) for i, o in layers]
    back = [((3, 16, o), (3, o, i)) for i, o in layers[1:]]  # no gradient is needed for the images
    assert sorted(shapes) == sorted(forward + weights + back)
