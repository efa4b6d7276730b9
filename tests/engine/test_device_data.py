"""Batches against images and targets assembled by hand."""

import gc
import weakref
from copy import copy
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from plain_network import picture, target
from tiny_cohorts import SCENARIOS, STREAMS, cohort, of
from torch.func import vmap

from threefold.engine import device_data
from threefold.engine.device_data import DeviceData
from threefold.errors import ThreefoldError
from threefold.methods import Part
from threefold.scenarios import Outputs, find

SEEDS, CPU = [3, 1, 8], torch.device("cpu")
TASKS = torch.tensor([[0, 1, 2, 2, 1, 0, 1], [2, 2, 2, 0, 1, 1, 0], [1, 0, 2, 1, 0, 2, 2]])
SHAPES = {"split": (1, 4, 4), "permuted": (1, 8, 8)}
WHERE = pytest.mark.parametrize(("kind", "scenario"), [(k, s) for k in STREAMS for s in SCENARIOS])


def data_of(stream, scenario, batch=16):
    outputs = Outputs(find(scenario), stream.tasks, stream.classes_per_task)
    return DeviceData(stream, outputs, SEEDS, batch, CPU)


def check(batch, kind, scenario, part, indices, tasks):
    """Every sample of every replica is its image, seen through its task, with its target unit."""
    data = STREAMS[kind].data
    images, labels = getattr(data, f"{part}_x"), getattr(data, f"{part}_y")
    assert batch.y.shape == batch.task.shape == indices.shape
    assert batch.x.shape == (*indices.shape, *SHAPES[kind])
    assert torch.equal(batch.indices, indices)
    for replica, seed in enumerate(SEEDS):
        sequence = STREAMS[kind].sequence(seed)
        for place, index in enumerate(indices[replica].tolist()):
            number = int(tasks[replica, place])
            task = sequence[number]
            assert torch.equal(batch.x[replica, place].flatten(), picture(images[index], task).float())
            label = task.classes.index(int(labels[index]))
            assert int(batch.y[replica, place]) == target(scenario, number, label, len(task.classes))
            assert int(batch.task[replica, place]) == number


def choose(kind, part, tasks):
    """For each replica and place, an index of the task that stands there, and no two replicas alike."""
    rng = np.random.default_rng(0)
    rows = []
    for replica, seed in enumerate(SEEDS):
        sequence = STREAMS[kind].sequence(seed)
        rows.append([rng.choice(getattr(sequence[int(t)], part).numpy()) for t in tasks[replica]])
    return torch.tensor(np.array(rows))


@pytest.mark.parametrize("part", ["train", "test"])
@WHERE
def test_a_batch_is_the_pictures_and_targets_of_its_samples(kind, scenario, part):
    """With one task for all samples, and with one for each."""
    subject = data_of(STREAMS[kind], scenario)
    for tasks, given in [(torch.full((3, 12), n), torch.tensor(n)) for n in range(3)] + [(TASKS, TASKS)]:
        indices = choose(kind, part, tasks)
        check(getattr(subject, part)(indices, given), kind, scenario, part, indices, tasks)


@WHERE
def test_what_one_replica_looks_up_is_what_all_look_up(kind, scenario):
    subject = data_of(STREAMS[kind], scenario)
    for given in (torch.tensor(1), TASKS):
        indices = choose(kind, "train", given.expand(3, 7))
        wanted = subject.train(indices, given)
        for replica in range(3):
            task = given if given.dim() == 0 else given[replica]
            found = subject.sampler(of(subject.tables, replica))(indices[replica], task)
            assert all(torch.equal(mine, its[replica]) for mine, its in zip(found, wanted, strict=True))
        mapped = vmap(lambda t, i, n: subject.sampler(t)(i, n), in_dims=(0, 0, None if given.dim() == 0 else 0))
        for mine, its in zip(mapped(subject.tables, indices, given), wanted, strict=True):
            assert torch.equal(mine, its)


@WHERE
def test_a_part_finds_samples_by_their_indices(kind, scenario):
    """A loss on the batch looked up again is the loss on the batch; outside training there is nothing to look up."""

    class Again(Part):
        name = "again"

        def loss(self, learner, batch):
            found = learner.samples(batch.indices, batch.task)
            assert all(mine.shape == its.shape for mine, its in zip(found, batch, strict=True))
            logits = torch.where(learner.now.active[batch.task], learner.logits(found.x, found.task), -torch.inf)
            return torch.nn.functional.cross_entropy(logits, found.y)

    class Plain(Again):
        def loss(self, learner, batch):
            logits = torch.where(learner.now.active[batch.task], learner.logits(batch.x, batch.task), -torch.inf)
            return torch.nn.functional.cross_entropy(logits, batch.y)

    again, plain = (cohort(kind, scenario, SEEDS, method=part()) for part in (Again, Plain))
    assert torch.equal(again.matrix, plain.matrix)

    class Late(Part):
        name = "late"

        def scores(self, learner, x, task):
            return learner.samples(torch.tensor([0]), task).x

    with pytest.raises(AssertionError, match="during training only"):
        cohort(kind, scenario, SEEDS, method=Late())


def test_a_batch_may_be_as_large_as_the_smallest_task_and_no_larger():
    smallest = min(len(task.train) for seed in SEEDS for task in STREAMS["split"].sequence(seed))
    data_of(STREAMS["split"], "class", batch=smallest)
    with pytest.raises(ThreefoldError, match=f"batch must be at most {smallest}, .* smallest task, got {smallest + 1}"):
        data_of(STREAMS["split"], "class", batch=smallest + 1)


def test_data_are_copied_once_and_go_with_their_stream():
    """Cohort after cohort trains on the same images; those of a stream that is gone take no room."""
    first, second = (data_of(STREAMS["permuted"], scenario) for scenario in ("task", "class"))
    assert first.train_x.data_ptr() == second.train_x.data_ptr()
    assert first.test_x.data_ptr() == second.test_x.data_ptr()
    stream = copy(STREAMS["permuted"])
    own = data_of(stream, "task").train_x
    images = weakref.ref(device_data._on_device(stream, CPU)[0])
    assert images().data_ptr() == own.data_ptr() != first.train_x.data_ptr()
    del stream, own
    gc.collect()
    assert images() is None


def test_data_of_few_streams_are_kept(monkeypatch):
    monkeypatch.setattr(device_data, "_ON_DEVICES", WeakKeyDictionary())
    streams = [copy(STREAMS["permuted"]) for _ in range(device_data.AT_ONCE + 1)]
    first, *others = [device_data._on_device(stream, CPU)[0] for stream in streams]
    for stream, images in zip(streams[1:], others, strict=True):
        assert device_data._on_device(stream, CPU)[0] is images
    assert set(device_data._ON_DEVICES) == set(streams[1:])
    assert device_data._on_device(streams[0], CPU)[0] is not first  # copied again
    assert set(device_data._ON_DEVICES) == {streams[-1], streams[0]}
