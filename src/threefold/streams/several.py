"""Several: one dataset after the other."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from threefold.data import Dataset, joined
from threefold.errors import ThreefoldError
from threefold.streams.stream import Stream, by_class, in_short
from threefold.streams.task import Task


class Several(Stream):
    """Task k is the whole of dataset k: `several-mnist+fashion-mnist`. Its samples are padded to one shape."""

    name = "several"
    meaning = "one dataset after the other: several-mnist+fashion-mnist"
    recurring = None

    def __init__(self, data: Dataset | Sequence[Dataset], tasks: int | None = None, **options: Any) -> None:
        data = data if isinstance(data, Dataset) else joined(data)
        if len(data.parts) < 2:
            raise ThreefoldError(
                f"data of several must be two datasets or more, such as mnist+fashion-mnist, got {data.name}."
            )
        if tasks not in (None, len(data.parts)):
            raise ThreefoldError(f"tasks is {tasks}, but {data.name} is {len(data.parts)} datasets, a task each.")
        super().__init__(data, tasks, **options)
        self._train = by_class(data.train_y, data.classes)
        self._test = by_class(data.test_y, data.classes)

    @cached_property
    def cut(self) -> int:
        return len(self.data.parts)

    @cached_property
    def classes_per_task(self) -> int | tuple[int, ...]:
        return in_short(self.data.parts)

    def sequence(self, seed: int) -> list[Task]:
        tasks, first = [], 0
        for classes in self.data.parts:
            own = range(first, first + classes)
            tasks.append(
                Task(tuple(own), torch.cat([self._train[c] for c in own]), torch.cat([self._test[c] for c in own]))
            )
            first += classes
        return tasks
