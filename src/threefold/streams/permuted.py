"""Permuted: every task holds all classes, seen through its own permutation of the pixels."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from threefold.data import Dataset
from threefold.randomness import generator
from threefold.streams.stream import Defaults, Stream, Task

PADDING = 2  # on each side: 28×28 becomes the paper's 32×32


class Permuted(Stream):
    """Images are zero-padded, then permuted anew for each task, the first included (section 4.1, notes)."""

    name = "permuted"
    meaning = "every task has all classes, its pixels permuted in its own way per seed"
    defaults = Defaults(iters=5000, lr=1e-4, hidden=1000)
    default_tasks = 10

    def __init__(self, data: Dataset, tasks: int | None = None, first: int | None = None) -> None:
        super().__init__(data, tasks, first)
        self._train = torch.arange(len(data.train_y))
        self._test = torch.arange(len(data.test_y))

    @property
    def classes_per_task(self) -> int:
        return self.data.classes

    def inputs(self, images: Tensor) -> Tensor:
        """Images (N, height, width) are padded; inputs of any other shape have no border to pad."""
        return super().inputs(pad(images, (PADDING,) * 4) if images.dim() == 3 else images)

    def sequence(self, seed: int) -> list[Task]:
        pixels = self.inputs(self.data.test_x[:1]).numel()
        classes = tuple(range(self.data.classes))
        return [
            Task(
                classes, self._train, self._test, torch.randperm(pixels, generator=generator(seed, "permutation", task))
            )
            for task in range(self.tasks)
        ]

    @property
    def samples(self) -> int:
        return len(self._train)

    def smallest_task(self, seed: int) -> int:
        """Every task has all samples, so no permutation needs to be drawn to know it."""
        return len(self._train) if type(self).sequence is Permuted.sequence else super().smallest_task(seed)
