"""Batches against pictures and targets put together by hand."""

import gc
import weakref
from copy import copy
from importlib import import_module
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from plain_loop import picture, target
from tiny_cohorts import PROTOCOLS

from threefold.engine.material import Material
from threefold.errors import ThreefoldError
from threefold.scenarios import Outputs, find

module = import_module("threefold.engine.material")
SEEDS = [3, 1, 8]


def material(kind, scenario, batch=16):
    protocol = PROTOCOLS[kind]
    outputs = Outputs(find(scenario), protocol.tasks, protocol.classes_per_task)
    return Material(protocol, outputs, SEEDS, batch, torch.device("cpu"))


def check(batch, kind, scenario, part, indices, tasks):
    """Every sample of every replica is its image, seen through its task, with its target unit."""
    data = PROTOCOLS[kind].data
    images, labels = getattr(data, f"{part}_x"), getattr(data, f"{part}_y")
    assert batch.x.shape[:2] == batch.y.shape == batch.task.shape == indices.shape
    for replica, seed in enumerate(SEEDS):
        sequence = PROTOCOLS[kind].sequence(seed)
        for place, index in enumerate(indices[replica].tolist()):
            number = int(tasks[replica, place])
            task = sequence[number]
            expected = picture(images[index], task).astype(np.float32)
            assert np.array_equal(batch.x[replica, place].numpy(), expected)
            label = task.classes.index(int(labels[index]))
            assert int(batch.y[replica, place]) == target(scenario, number, label, len(task.classes))
            assert int(batch.task[replica, place]) == number


def choose(kind, part, tasks):
    """For each replica and place, an index of the task that stands there, and no two replicas alike."""
    rng = np.random.default_rng(0)
    rows = []
    for replica, seed in enumerate(SEEDS):
        sequence = PROTOCOLS[kind].sequence(seed)
        rows.append([rng.choice(getattr(sequence[int(t)], part).numpy()) for t in tasks[replica]])
    return torch.tensor(np.array(rows))


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_one_task_for_all_samples(kind, scenario, part):
    subject = material(kind, scenario)
    for number in range(3):
        tasks = torch.full((len(SEEDS), 12), number)
        indices = choose(kind, part, tasks)
        check(getattr(subject, part)(indices, torch.tensor(number)), kind, scenario, part, indices, tasks)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_a_task_for_each_sample(kind, scenario, part):
    subject = material(kind, scenario)
    tasks = torch.tensor([[0, 1, 2, 2, 1, 0, 1], [2, 2, 2, 0, 1, 1, 0], [1, 0, 2, 1, 0, 2, 2]])
    indices = choose(kind, part, tasks)
    check(getattr(subject, part)(indices, tasks), kind, scenario, part, indices, tasks)


def test_a_batch_may_be_as_large_as_the_smallest_task_and_no_larger():
    smallest = min(len(task.train) for seed in SEEDS for task in PROTOCOLS["split"].sequence(seed))
    material("split", "class", batch=smallest)
    with pytest.raises(ThreefoldError) as info:
        material("split", "class", batch=smallest + 1)
    assert f"batch is {smallest + 1}, " in str(info.value)
    assert f"{smallest} training samples" in str(info.value)


def test_data_are_brought_once_and_go_with_their_protocol():
    """Cohort after cohort trains on the same images; those of a protocol that is gone take no room."""
    first, second = material("permuted", "task"), material("permuted", "class")
    assert first.train_x is second.train_x
    assert first.test_x is second.test_x
    protocol = copy(PROTOCOLS["permuted"])
    outputs = Outputs(find("task"), protocol.tasks, protocol.classes_per_task)
    images = weakref.ref(Material(protocol, outputs, SEEDS, 16, torch.device("cpu")).train_x)
    assert images() is not None
    assert images() is not first.train_x
    del protocol
    gc.collect()
    assert images() is None


def test_data_of_few_protocols_are_kept(monkeypatch):
    monkeypatch.setattr(module, "_BROUGHT", WeakKeyDictionary())
    protocols = [copy(PROTOCOLS["permuted"]) for _ in range(module.AT_ONCE + 1)]
    device = torch.device("cpu")
    first, *others = [module._brought(protocol, device)[0] for protocol in protocols]
    for protocol, images in zip(protocols[1:], others, strict=True):
        assert module._brought(protocol, device)[0] is images
    assert set(module._BROUGHT) == set(protocols[1:])
    assert module._brought(protocols[0], device)[0] is not first  # brought again
    assert set(module._BROUGHT) == {protocols[-1], protocols[0]}
