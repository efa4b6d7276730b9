"""Permuted: every task holds all classes, seen through its own permutation of the pixels."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from threefold.randomness import generator
from threefold.streams.stream import Defaults
from threefold.streams.task import Task
from threefold.streams.whole import WholeData

PADDING = 2  # on each side: 28×28 becomes the paper's 32×32


class Permuted(WholeData):
    """Images are zero-padded, then permuted anew for each task, the first included (section 4.1, notes)."""

    name = "permuted"
    meaning = "every task has all classes, its pixels permuted in its own way per seed"
    defaults = Defaults(iters=5000, lr=1e-4, hidden=1000)
    default_tasks = 10

    def inputs(self, images: Tensor) -> Tensor:
        """Images (N, height, width) are padded; inputs of any other shape have no border to pad."""
        return super().inputs(pad(images, (PADDING,) * 4) if images.dim() == 3 else images)

    def sequence(self, seed: int) -> list[Task]:
        size = self.inputs(self.data.test_x[:1]).numel()
        return [
            self.seen_through(torch.randperm(size, generator=generator(seed, "permutation", task)))
            for task in range(self._number)
        ]
