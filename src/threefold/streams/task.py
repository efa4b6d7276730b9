"""One task of a sequence: index sets, and how its samples are transformed."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from threefold.data import Encoder
from threefold.errors import ThreefoldError


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

    def transformed(self, inputs: Tensor) -> Tensor:
        """These samples after the task's transform."""
        assert self.transform is not None
        name = str(getattr(self.transform, "__qualname__", type(self.transform).__name__))
        made = Encoder(self.transform, "", name, what="samples of transform").encode(inputs)
        if made.shape[1:] != inputs.shape[1:]:
            shapes = ["×".join(map(str, x.shape[1:])) for x in (inputs, made)]
            raise ThreefoldError(f"samples of transform {name} must have the shape {shapes[0]}, got {shapes[1]}.")
        return made
