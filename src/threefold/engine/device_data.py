"""The data on the device: one tensor of inputs, and for each replica the tables that map its tasks onto it."""

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from threefold.engine.augmentation import moved
from threefold.engine.transformed import transformed
from threefold.errors import ThreefoldError
from threefold.methods.learner import Batch
from threefold.scenarios import Outputs
from threefold.streams import Stream, Task

AT_ONCE = 2  # streams whose data stay on devices: an experiment's, and its held-out variant
_ON_DEVICES: WeakKeyDictionary[Stream, dict[torch.device, tuple[Tensor, ...]]] = WeakKeyDictionary()


def _on_device(stream: Stream, device: torch.device) -> tuple[Tensor, ...]:
    """A stream's data on a device, copied once for all cohorts until other data replace them."""
    copies = _ON_DEVICES.pop(stream, {})
    if device not in copies:
        data = stream.data
        copies_of = max(1, len(data.seeds))  # of the samples, one for each seed's features
        labels = data.train_y.repeat(copies_of), data.test_y.repeat(copies_of)
        each = (stream.inputs(data.train_x), labels[0], stream.inputs(data.test_x), labels[1])
        copies[device] = tuple(tensor.to(device) for tensor in each)
    for oldest in list(_ON_DEVICES)[: len(_ON_DEVICES) + 1 - AT_ONCE]:
        del _ON_DEVICES[oldest]
    _ON_DEVICES[stream] = copies
    return copies[device]


Tables = dict[str, Tensor]
"""How each replica sees the data, tasks first: the target unit of each of the dataset's classes ("units", −1: not in
that task), and where images are permuted, the source pixel of each input ("pixels")."""


class DeviceData:
    """Turns (indices, tasks) into batches for every replica. A batch is a gather."""

    def __init__(
        self, stream: Stream, outputs: Outputs, orders: Sequence[int], batch: int, device: torch.device
    ) -> None:
        """`orders`: the seeds that choose the replicas' tasks."""
        self.device, self.orders = device, orders
        self.sequences = [stream.learned(order) for order in orders]
        smallest = min(len(task.train) for tasks in self.sequences for task in tasks)
        if batch > smallest:
            raise ThreefoldError(f"batch must be at most {smallest}, the size of the smallest task, got {batch}.")
        train_x, self.train_y, test_x, self.test_y = _on_device(stream, device)
        self.shape = tuple(train_x.shape[1:])
        if any(task.transform for tasks in self.sequences for task in tasks):
            self.sequences, train_x, self.train_y = transformed(self.sequences, "train", train_x, self.train_y)
            self.sequences, test_x, self.test_y = transformed(self.sequences, "test", test_x, self.test_y)
        self.train_x, self.test_x = train_x.flatten(1), test_x.flatten(1)
        classes = stream.data.classes
        units = torch.stack([_targets(tasks, outputs, classes) for tasks in self.sequences]).to(device)
        self.tables: Tables = {"units": units}
        if any(task.pixels is not None for tasks in self.sequences for task in tasks):
            maps = [torch.stack([self._map(task.pixels) for task in tasks]) for tasks in self.sequences]
            self.tables["pixels"] = torch.stack(maps).to(device)
            self._zero = bool((self.tables["pixels"] == self.train_x.shape[1]).any())  # is any pixel 0?
        self._replica = torch.arange(len(orders), device=device).unsqueeze(1)

    def _map(self, pixels: Tensor | None) -> Tensor:
        """A task's pixels; constant zeros are looked up behind the last one."""
        size = self.train_x.shape[1]
        return torch.arange(size) if pixels is None else torch.where(pixels < 0, size, pixels)

    def _look_up(self, x: Tensor, pixels: Tensor) -> Tensor:
        return (pad(x, (0, 1)) if self._zero else x).gather(-1, pixels)

    def train(self, indices: Tensor, task: Tensor, moves: Tensor | None = None) -> Batch:
        """Training samples (replicas × samples) as samples of `task`: one for all, or one for each.

        `moves`: the random numbers that augment each image (`moved`).
        """
        return self._gather(self.train_x, self.train_y, indices, task, moves)

    def test(self, indices: Tensor, task: Tensor) -> Batch:
        return self._gather(self.test_x, self.test_y, indices, task)

    def _gather(
        self, inputs: Tensor, labels: Tensor, indices: Tensor, task: Tensor, moves: Tensor | None = None
    ) -> Batch:
        x, units, maps = inputs[indices], self.tables["units"], self.tables.get("pixels")
        if moves is not None:  # before pixels are permuted, as the result is no image
            x = moved(x.view(*indices.shape, *self.shape), moves).flatten(2)
        if maps is not None:
            one = task.dim() == 0
            pixels = maps.index_select(1, task.view(1)).expand_as(x) if one else maps[self._replica, task]
            x = self._look_up(x, pixels)
        task = task.expand_as(indices)
        x = x.view(*indices.shape, *self.shape)
        return Batch(x, units[self._replica, task, labels[indices]], task, indices)

    def sampler(self, tables: Tables) -> Callable[[Tensor, Tensor], Batch]:
        """The same for one replica, given its tables."""

        def samples(indices: Tensor, task: Tensor) -> Batch:
            x, task = self.train_x[indices], task.expand_as(indices)
            if "pixels" in tables:
                x = self._look_up(x, tables["pixels"][task])
            x = x.view(*indices.shape, *self.shape)
            return Batch(x, tables["units"][task, self.train_y[indices]], task, indices)

        return samples


def _targets(tasks: Sequence[Task], outputs: Outputs, classes: int) -> Tensor:
    units = torch.full((len(tasks), classes), -1)
    for number, task in enumerate(tasks):
        units[number, list(task.classes)] = torch.tensor(outputs.units_of(number))
    return units
