"""What is sent to a worker arrives unchanged and is small; datasets are looked up on the worker first."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from two_nodes import Fragile, cell, split

from threefold import Dataset, Split
from threefold.data import FileState
from threefold.experiments import Cohort, Run


@pytest.fixture
def cohort() -> Cohort:
    small = split()
    return Cohort(tuple(Run(cell(small, method, iters=5), 1) for method in ("ewc:strength=1", "ewc:strength=2")))


@pytest.fixture(autouse=True)
def _a_new_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is unpacked yet; and instead of a cluster, its object store: what is put there is pickled."""
    from threefold.cluster import serialization

    monkeypatch.setattr(serialization, "_streams", {})
    monkeypatch.setattr(serialization, "_datasets", {})
    monkeypatch.setattr(serialization.ray, "put", pickle.dumps)
    monkeypatch.setattr(serialization.ray, "get", pickle.loads)


def test_a_cohort_comes_out_as_it_went_in(cohort: Cohort) -> None:
    from threefold.cluster.serialization import ObjectStore, unpack

    there = unpack(*ObjectStore().pack(cohort))
    assert there.name == cohort.name
    assert [run.cell.run_spec(run.seed) for run in there.runs] == [run.cell.run_spec(run.seed) for run in cohort.runs]
    assert len({id(run.cell.stream) for run in there.runs}) == 1
    ours, theirs = cohort.cell.stream.data, there.cell.stream.data
    assert theirs is not ours
    assert all(torch.equal(getattr(ours, name), getattr(theirs, name)) for name in ("train_x", "train_y", "test_x"))


def test_data_are_put_once_and_travel_apart(cohort: Cohort) -> None:
    from threefold.cluster.serialization import ObjectStore

    object_store = ObjectStore()
    large = Dataset.from_arrays(
        torch.rand(6000, 28, 28), torch.arange(6000) % 6, torch.rand(6, 28, 28), torch.arange(6)
    )
    cells = [replace(run.cell, stream=Split(large, tasks=3)) for run in cohort.runs]
    packed = [object_store.pack(Cohort((Run(each, seed),)))[0] for each in cells for seed in range(3)]
    assert max(map(len, packed)) < 10_000, "of 19 million bytes of data"
    assert (len(object_store.streams), len(object_store.datasets)) == (2, 1)


@pytest.mark.parametrize(
    ("state", "same", "used"), [("good", True, True), ("missing", True, False), ("good", False, False)]
)
def test_known_data_are_taken_from_the_workers_own_folder(
    cohort: Cohort, monkeypatch: pytest.MonkeyPatch, state: str, same: bool, used: bool
) -> None:
    from threefold.cluster import serialization

    ours = cohort.cell.stream.data
    own = ours if same else replace(ours, fingerprint="of something else")
    monkeypatch.setattr(serialization, "names", lambda: ("small",))
    monkeypatch.setattr(serialization, "check", lambda name: [FileState(Path(name), state)])
    monkeypatch.setattr(serialization, "load", lambda name: own)
    there = serialization.unpack(*serialization.ObjectStore().pack(cohort)).cell.stream.data
    assert (there is own) is used
    assert there.fingerprint == ours.fingerprint


def test_a_method_of_ones_own_travels_too() -> None:
    from threefold.cluster.serialization import ObjectStore, unpack

    there = unpack(*ObjectStore().pack(Cohort((Run(cell(split(), Fragile(), iters=5), 1),))))
    assert isinstance(there.cell.method.parts[0], Fragile)
