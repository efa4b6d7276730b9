"""Samples of a run's data as its network saw them."""

from typing import NamedTuple

import torch
from torch import Tensor

from threefold.engine.device_data import DeviceData
from threefold.experiments.cell import Cell
from threefold.results import Ordered, Seed


class Examples(NamedTuple):
    """Samples with their classes, as they are shown in their tasks (permuted, rotated)."""

    images: Tensor
    """samples × the shape of one"""
    labels: Tensor
    """their classes, in the data's numbers"""
    tasks: Tensor
    """the task of each, counted from 1"""
    indices: Tensor
    """their places in the data"""


def test_examples(cell: Cell, seed: Seed, task: int) -> Examples:
    """All test samples of a task, counted from 1."""
    order, data = _data(cell, seed)
    indices = data.sequences[0][task - 1].test
    shown = data.test(indices.unsqueeze(0), torch.tensor(task - 1))
    own = cell.stream.learned(order)[task - 1].test
    return Examples(shown.x[0], data.test_y[indices], torch.full_like(indices, task), own)


def stored_examples(cell: Cell, seed: Seed, tasks: Tensor, places: Tensor) -> Examples:
    """Training samples by their tasks, counted from 0, and their places among the samples of these."""
    order, data = _data(cell, seed)

    def of(sequence: list[Tensor]) -> Tensor:
        found = [sequence[task][place] for task, place in zip(tasks.tolist(), places.tolist(), strict=True)]
        return torch.stack(found) if found else tasks

    indices = of([each.train for each in data.sequences[0]])
    shown = data.train(indices.unsqueeze(0), tasks.unsqueeze(0))
    own = of([each.train for each in cell.stream.learned(order)])
    return Examples(shown.x[0], data.train_y[indices], tasks + 1, own)


def _data(cell: Cell, seed: Seed) -> tuple[int, DeviceData]:
    """The seed of a run's tasks, and its data."""
    order = seed.order if isinstance(seed, Ordered) else seed
    training, outputs = cell.training, cell.setting.outputs
    return order, DeviceData(cell.stream, outputs, [order], training.batch, torch.device("cpu"))
