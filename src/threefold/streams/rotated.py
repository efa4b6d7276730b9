"""Rotated: every task holds all classes, its images turned by an angle of its own."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.randomness import generator
from threefold.streams.stream import StreamOptions
from threefold.streams.task import Task
from threefold.streams.whole import WholeData
from threefold.values import hyper, listed, must_be

HALF_TURN = 180.0


def _degrees(given: Any) -> Any:
    return given if given == "random" else listed(given)


class RotatedOptions(StreamOptions):
    """The angles of rotation."""

    name = "rotated"
    angles: Annotated[
        Literal["random"] | Annotated[tuple[float, ...], Field(min_length=1)],
        BeforeValidator(_degrees),
        must_be("degrees such as 0-30-60, or random"),
    ] = hyper("degrees of each task (0-30-60), or random: each task's own between 0 and 180, per seed", "random")


class Rotated(WholeData):
    """Each pixel is the nearest one of the original image; pixels from outside it are 0."""

    name = "rotated"
    meaning = "every task has all classes, its images turned by an angle of its own"
    default_tasks = 5
    options_type = RotatedOptions

    def __init__(self, data: Dataset, tasks: int | None = None, **options: Any) -> None:
        super().__init__(data, tasks, **options)
        angles = self.options.angles
        if angles != "random" and tasks not in (None, len(angles)):
            raise ThreefoldError(f"tasks is {tasks}, but angles is for {len(angles)} tasks; give one of them.")
        if angles != "random":
            self._number = len(angles)
        if len(data.shape) not in (2, 3):
            shape = "×".join(map(str, data.shape))
            raise ThreefoldError(f"rotated needs images, but the samples of {data.name} have the shape {shape}.")

    def sequence(self, seed: int) -> list[Task]:
        return [self.seen_through(turned(self.inputs(self.data.test_x[:1]).shape[1:], a)) for a in self.angles(seed)]

    def angles(self, seed: int) -> Sequence[float]:
        """The degrees of each task."""
        if self.options.angles != "random":
            return self.options.angles  # type: ignore[no-any-return]
        sources = (generator(seed, "angle", task) for task in range(self._number))
        return [HALF_TURN * float(torch.rand((), generator=source)) for source in sources]


def turned(shape: Sequence[int], degrees: float) -> Tensor:
    """The source of each pixel of an image (channels × height × width) rotated counter-clockwise about its centre.

    Pixels from outside the image are −1.
    """
    channels, height, width = shape
    angle = math.radians(degrees)
    down, right = (torch.arange(size, dtype=torch.float64) - (size - 1) / 2 for size in (height, width))
    down, right = down.unsqueeze(1), right.unsqueeze(0)
    rows = (math.cos(angle) * down + math.sin(angle) * right + (height - 1) / 2).round().long()
    columns = (-math.sin(angle) * down + math.cos(angle) * right + (width - 1) / 2).round().long()
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    place = torch.where(inside, rows * width + columns, -1).flatten()
    return torch.cat([torch.where(place >= 0, place + channel * height * width, -1) for channel in range(channels)])
