"""The bench, on shapes that take no time: that it measures what it says, not how fast this machine is."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from threefold.data import Dataset
from threefold.experiments import bench
from threefold.protocols import Permuted, Protocol, Split


@pytest.fixture(params=[Split, Permuted])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Protocol:
    kind = request.param
    monkeypatch.setattr(kind, "defaults", replace(kind.defaults, hidden=8, batch=16))
    source = np.random.default_rng(0)
    x, y = source.random((80, 4, 4)).astype(np.float32), np.arange(80) % 4
    return kind(Dataset.from_arrays(x, y, x, y, name="small"), tasks=2)


@pytest.mark.parametrize("replicas", [1, 3])
def test_all_three_kinds_of_step_are_timed(protocol: Protocol, replicas: int) -> None:
    timing = bench._compare(protocol, replicas, torch.device("cpu"), rounds=3)
    assert (timing.protocol, timing.replicas) == (protocol.name, replicas)
    assert min(timing.cohort, timing.alone, timing.products) > 0


def test_medians_are_taken_in_turns_after_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, called = [0.0], []
    durations = {"quick": iter([9, 9, 1, 2, 30]), "slow": iter([9, 9, 40, 50, 60])}

    def takes(name: str) -> None:
        called.append(name)
        clock[0] += next(durations[name]) / 1e3

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    taken = bench.medians({name: lambda name=name: takes(name) for name in durations}, 3, torch.device("cpu"))
    assert taken == pytest.approx({"quick": 2.0, "slow": 50.0})
    assert all(one != other for one, other in pairwise(called))


def test_the_bare_products_are_those_of_the_cohorts_network(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threefold.methods import Method

    stack = bench.stack_of(protocol, Method(), "class", 3, torch.device("cpu"))
    shapes = []
    monkeypatch.setattr(torch, "bmm", lambda a, b: shapes.append((tuple(a.shape), tuple(b.shape))))
    bench.products(stack)()
    inputs, units = stack.setting.inputs, stack.setting.outputs.units
    forward = [((3, 16, i), (3, i, o)) for i, o in ((inputs, 8), (8, 8), (8, units))]
    weights = [((3, o, 16), (3, 16, i)) for i, o in ((inputs, 8), (8, 8), (8, units))]
    back = [((3, 16, o), (3, o, i)) for i, o in ((8, 8), (8, units))]
    assert sorted(shapes) == sorted(forward + weights + back)
