"""One task of a sequence: index sets, and how its samples are seen."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """One task of one seed's sequence."""

    classes: tuple[int, ...]  # the dataset's classes, in the order of their labels within the task
    train: Tensor  # indices of its samples in the training tensor
    test: Tensor
    pixels: Tensor | None = None
    """number p of this task's inputs is number pixels[p] of the sample, or 0 where that is −1; None: as it is"""
    transform: Callable[[Tensor], Tensor] | None = None
    """what becomes of its samples, a batch of them at a time; it is applied once, before training"""
