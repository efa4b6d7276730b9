"""Stored accuracy during training: a run's curve does not depend on the other runs in its stack."""

import pytest
import torch

import threefold
from threefold.results import unpack

SEEDS = [1, 2, 5]
KEPT = {"points", "accuracy", "training accuracy", "loss"}


@pytest.fixture(scope="module")
def uneven():
    """Six classes of unequal size, so that a task has another number of batches for each seed."""
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(2400) % 6
    labels = labels[torch.rand(2400, generator=source) < torch.tensor([0.9, 0.5, 0.7, 0.3, 0.95, 0.6])[labels]]
    images = (torch.rand(6, 4, 4, generator=source)[labels] + torch.rand(len(labels), 4, 4, generator=source)) / 2
    half = len(labels) // 2
    data = threefold.Dataset.from_arrays(images[:half], labels[:half], images[half:], labels[half:], name="dots")
    return threefold.Split(data, 3)


def trained(stream, seeds, method):
    tests = {"evaluate_every": 5, "evaluate_samples": 50, "training_curves": True}
    how = {"epochs": 1, "hidden": 16, "batch": 16, "device": "cpu", "store": None}
    return threefold.run(stream, scenario="task", method=method, seeds=seeds, **tests, **how)


@pytest.mark.parametrize("method", ["none", "er:budget=60"])
def test_a_run_keeps_the_same_curve_whoever_trains_beside_it(uneven, method):
    beside = trained(uneven, SEEDS, method)
    assert len({tuple(record.curve.step) for record in beside.records}) == len(SEEDS), "their tasks differ in length"
    for seed, record in zip(SEEDS, beside.records, strict=True):
        (alone,) = trained(uneven, [seed], method).records
        assert set(record.curves) == KEPT
        for name, packed in alone.curves.items():
            assert unpack(record.curves[name]).tobytes() == unpack(packed).tobytes(), name
        assert record.metrics == alone.metrics


def test_a_task_ends_at_its_own_last_step_and_is_tested_there_once(uneven):
    result = trained(uneven, SEEDS, "none")
    ends_between = 0
    for seed, record in zip(SEEDS, result.records, strict=True):
        steps = [len(task.train) // 16 for task in uneven.sequence(seed)]
        wanted = [(0, 0)] + [(n, at) for n, own in enumerate(steps) for at in [*range(5, own, 5), own]]
        assert list(zip(record.curve.task, record.curve.step, strict=True)) == wanted
        assert record.curve.total[-1] == sum(steps)
        ends_between += sum(own % 5 == 0 for own in steps)
    assert ends_between, "a task ends where it would be tested anyway"
