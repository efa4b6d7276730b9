"""Split: the classes are dealt out over the tasks."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.randomness import generator
from threefold.streams.stream import Defaults, Stream, Task, by_class


class Split(Stream):
    """Each task holds an equal share of the classes, assigned at random per seed (section 4.1, notes)."""

    name = "split"
    meaning = "the classes are dealt out over the tasks, at random per seed"
    defaults = Defaults(iters=2000, lr=1e-3, hidden=400)
    default_tasks = 5
    default_tasks_of: ClassVar[Mapping[str, int]] = {"cifar-100": 10}

    def __init__(self, data: Dataset, tasks: int | None = None, first: int | None = None) -> None:
        super().__init__(data, tasks, first)
        if data.classes % self.cut:
            fit = [n for n in range(1, data.classes + 1) if data.classes % n == 0]
            raise ThreefoldError(
                f"tasks must divide the {data.classes} classes of {data.name}, got {self.cut};"
                f" use one of {', '.join(map(str, fit))}."
            )
        self._train = by_class(data.train_y, data.classes)
        self._test = by_class(data.test_y, data.classes)

    @property
    def classes_per_task(self) -> int:
        return self.data.classes // self.cut

    def sequence(self, seed: int) -> list[Task]:
        return [
            Task(deal, torch.cat([self._train[c] for c in deal]), torch.cat([self._test[c] for c in deal]))
            for deal in self._deals(seed)
        ]

    def smallest_task(self, seed: int) -> int:
        """Counted, not gathered: an experiment asks for thousands of seeds."""
        if type(self).sequence is not Split.sequence:
            return super().smallest_task(seed)
        return min(sum(len(self._train[c]) for c in deal) for deal in self._deals(seed))

    def _deals(self, seed: int) -> list[tuple[int, ...]]:
        """The classes of each task."""
        order = torch.randperm(self.data.classes, generator=generator(seed, "classes")).tolist()
        n = self.classes_per_task
        return [tuple(order[t * n : (t + 1) * n]) for t in range(self.tasks)]
