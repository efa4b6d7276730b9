"""Streams whose tasks all have all of the data, transformed differently."""

from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.streams.stream import Stream
from threefold.streams.task import Task


class WholeData(Stream):
    """Every task has all samples of all classes; a class in two tasks counts as two, since it looks different."""

    same_classes = False
    recurring = None
    default_tasks: ClassVar[int]

    def __init__(self, data: Dataset, tasks: int | None = None, **options: Any) -> None:
        super().__init__(data, tasks, **options)
        self._number = self.default_tasks if tasks is None else tasks
        self._train = torch.arange(len(data.train_y))
        self._test = torch.arange(len(data.test_y))

    @cached_property
    def cut(self) -> int:
        return self._number

    @cached_property
    def classes_per_task(self) -> int:
        return self.data.classes

    def seen_through(self, pixels: Tensor) -> Task:
        """A task whose inputs are these pixels."""
        return Task(tuple(range(self.data.classes)), self._train, self._test, pixels)

    @property
    def samples(self) -> int:
        return len(self._train)

    def smallest_task(self, seed: int) -> int:
        """Known without computing any pixels."""
        return len(self._train)
