"""What every stream is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.errors import ThreefoldError


@dataclass(frozen=True, eq=False)
class Task:
    """One task of one seed's sequence."""

    classes: tuple[int, ...]  # the dataset's classes, in the order of their labels within the task
    train: Tensor  # indices of its samples in the training tensor
    test: Tensor
    pixels: Tensor | None = None  # number p of this task's inputs is number pixels[p] of the sample; None: as it is


@dataclass(frozen=True)
class Defaults:
    """How the paper trains on a stream (section 4.2)."""

    iters: int
    lr: float
    hidden: int
    batch: int = 128


class Stream(ABC):
    """Cuts a dataset into `tasks` tasks, differently for each seed. Of these only the `first` may be learned."""

    name: ClassVar[str]
    meaning: ClassVar[str]
    defaults: ClassVar[Defaults]
    default_tasks: int
    default_tasks_of: ClassVar[Mapping[str, int]] = {}  # the data, by name, for which it is another number

    def __init__(self, data: Dataset, tasks: int | None = None, first: int | None = None) -> None:
        self._take(data)
        self.cut = self.default_tasks if tasks is None else tasks
        self.tasks = self.cut if first is None else min(first, self.cut)  # those that are learned
        if data.classes < 2:
            raise ThreefoldError(f"data must have at least 2 classes, got {data.name} with 1.")
        if self.tasks < 1:
            raise ThreefoldError(f"tasks must be at least 1, got {self.tasks}.")

    @classmethod
    def without_data(
        cls,
        name: str,
        fingerprint: str,
        tasks: int,
        first: int | None = None,
        is_normalized: bool = False,
        features: str = "",
    ) -> Self:
        """A stream to report on: it knows the name of its data, but cannot cut them into tasks."""
        stream = cls.__new__(cls)
        x, y = torch.empty(0, 0), torch.empty(0, 0).long()
        stream._take(Dataset(name, x, y, x, y, fingerprint, is_normalized, features))
        stream.cut, stream.tasks = tasks, tasks if first is None else first
        return stream

    def _take(self, data: Dataset) -> None:
        self.data = data
        if data.name in self.default_tasks_of:
            self.default_tasks = self.default_tasks_of[data.name]

    @property
    def title(self) -> str:
        """The stream and its data, for example split-mnist."""
        return f"{self.name}-{self.data.name}"

    @property
    @abstractmethod
    def classes_per_task(self) -> int: ...

    @abstractmethod
    def sequence(self, seed: int) -> list[Task]:
        """The tasks that this seed learns, in order."""

    @property
    def samples(self) -> int:
        """How many training samples a task has, about."""
        return len(self.data.train_y) // self.cut

    def smallest_task(self, seed: int) -> int:
        """How many training samples the smallest of a seed's tasks has."""
        return min(len(task.train) for task in self.sequence(seed))

    def inputs(self, images: Tensor) -> Tensor:
        """The samples as network inputs, images with a channel: the tensor that tasks index into."""
        return images.unsqueeze(1) if images.dim() == 3 else images


def by_class(labels: Tensor, classes: int) -> list[Tensor]:
    """The indices of each class's samples."""
    return [torch.nonzero(labels == c).flatten() for c in range(classes)]
