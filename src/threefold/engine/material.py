"""A cohort's data on the device: one tensor of inputs, and for each replica where its tasks lie in it."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from threefold.errors import ThreefoldError
from threefold.methods.part import Batch
from threefold.protocols import Protocol, Task
from threefold.scenarios import Outputs

AT_ONCE = 2  # protocols whose data are kept on devices: an experiment's, and the one that holds some of it out
_BROUGHT: WeakKeyDictionary[Protocol, dict[torch.device, tuple[Tensor, ...]]] = WeakKeyDictionary()


def _brought(protocol: Protocol, device: torch.device) -> tuple[Tensor, ...]:
    """A protocol's data on a device: brought there once, cohort after cohort, until others take their place."""
    places = _BROUGHT.pop(protocol, {})
    if device not in places:
        data = protocol.data
        each = (protocol.inputs(data.train_x), data.train_y, protocol.inputs(data.test_x), data.test_y)
        places[device] = tuple(tensor.to(device) for tensor in each)
    for oldest in list(_BROUGHT)[: len(_BROUGHT) + 1 - AT_ONCE]:
        del _BROUGHT[oldest]
    _BROUGHT[protocol] = places
    return places[device]


class Material:
    """Turns (indices, tasks) into batches for every replica. A batch is a gather."""

    def __init__(
        self,
        protocol: Protocol,
        outputs: Outputs,
        seeds: Sequence[int],
        batch: int,
        device: torch.device,
    ) -> None:
        data = protocol.data
        self.outputs, self.device = outputs, device
        self.sequences = [protocol.sequence(seed) for seed in seeds]
        smallest = min(len(task.train) for tasks in self.sequences for task in tasks)
        if batch > smallest:
            raise ThreefoldError(
                f"batch is {batch}, but the smallest task has {smallest} training samples; at most that would be right."
            )
        self.train_x, self.train_y, self.test_x, self.test_y = _brought(protocol, device)
        self._units = torch.stack([self._targets(tasks, data.classes) for tasks in self.sequences]).to(device)
        maps = [[task.pixels for task in tasks] for tasks in self.sequences]
        self._pixels = (
            None if maps[0][0] is None else torch.stack([torch.stack(row) for row in maps]).to(device)  # type: ignore[arg-type]
        )
        self._replica = torch.arange(len(seeds), device=device).unsqueeze(1)

    def _targets(self, tasks: Sequence[Task], classes: int) -> Tensor:
        """The target unit of each of the dataset's classes in each task (−1: not in that task)."""
        units = torch.full((len(tasks), classes), -1)
        for number, task in enumerate(tasks):
            units[number, list(task.classes)] = self.outputs.unit(number, torch.arange(len(task.classes)))
        return units

    def train(self, indices: Tensor, task: Tensor) -> Batch:
        """Training samples (replicas × samples) as samples of `task`: one for all, or one each."""
        return self._gather(self.train_x, self.train_y, indices, task)

    def test(self, indices: Tensor, task: Tensor) -> Batch:
        return self._gather(self.test_x, self.test_y, indices, task)

    def _gather(self, inputs: Tensor, labels: Tensor, indices: Tensor, task: Tensor) -> Batch:
        x = inputs[indices]
        if self._pixels is not None:
            if task.dim() == 0:
                pixels = self._pixels.index_select(1, task.view(1)).expand_as(x)
            else:
                pixels = self._pixels[self._replica, task]
            x = x.gather(2, pixels)
        task = task.expand_as(indices)
        return Batch(x, self._units[self._replica, task, labels[indices]], task)
