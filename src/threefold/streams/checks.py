"""What a user's stream must give."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.streams.task import Task


def checked(stream: str, data: Dataset, inputs: int, sequence: Callable[[int], Any], seed: int) -> list[Task]:
    """The tasks that `sequence` gives for a seed, each of them made sure of, or one sentence about the first mistake.

    `inputs`: how many numbers a sample has.
    """
    try:
        given = sequence(seed)
    except (ThreefoldError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a user's code may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ThreefoldError(f"stream {stream} gives no tasks for seed {seed} ({why}).") from error
    if not isinstance(given, Sequence) or not given or not all(isinstance(task, Task) for task in given):
        raise ThreefoldError(f"stream {stream} must give a list of Task, got {_kind(given)}.")
    return [_Checked(f"of task {n} of stream {stream}", data, inputs).task(task) for n, task in enumerate(given)]


class _Checked:
    """One task of a user's stream, as it was given and as it must be."""

    def __init__(self, where: str, data: Dataset, inputs: int) -> None:
        self.where, self.data, self.inputs = where, data, inputs

    def task(self, task: Task) -> Task:
        classes = self._classes(task.classes)
        each = (("train", task.train, self.data.train_y), ("test", task.test, self.data.test_y))
        train, test = (self._samples(name, indices, labels, classes) for name, indices, labels in each)
        if task.transform is not None and not callable(task.transform):
            raise ThreefoldError(f"transform {self.where} must be a function, got {_kind(task.transform)}.")
        pixels = None if task.pixels is None else self._pixels(task.pixels)
        return Task(classes, train, test, pixels, task.transform)

    def _classes(self, given: Any) -> tuple[int, ...]:
        try:
            classes = tuple(int(label) for label in given)
        except (TypeError, ValueError):
            raise ThreefoldError(f"classes {self.where} must be labels, got {_kind(given)}.") from None
        if not classes or len(set(classes)) < len(classes):
            raise ThreefoldError(f"classes {self.where} must be different labels, at least one, got {classes}.")
        if wrong := [label for label in classes if not 0 <= label < self.data.classes]:
            raise ThreefoldError(f"classes {self.where} must be labels 0…{self.data.classes - 1}, got {wrong[0]}.")
        return classes

    def _samples(self, name: str, given: Any, labels: Tensor, classes: Sequence[int]) -> Tensor:
        indices = self._whole(name, given)
        if indices.dim() != 1 or not len(indices):
            raise ThreefoldError(
                f"{name} {self.where} must be a list of samples, got the shape {tuple(indices.shape)}."
            )
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= len(labels):
            wrong = low if low < 0 else high
            raise ThreefoldError(f"{name} {self.where} must be samples 0…{len(labels) - 1}, got {wrong}.")
        if strangers := set(labels[indices].tolist()) - set(classes):
            raise ThreefoldError(
                f"{name} {self.where} has samples of class {min(strangers)}, which is none of its classes."
            )
        return indices

    def _pixels(self, given: Any) -> Tensor:
        pixels, size = self._whole("pixels", given), self.inputs
        if pixels.shape != (size,) or int(pixels.min()) < -1 or int(pixels.max()) >= size:
            raise ThreefoldError(f"pixels {self.where} must be {size} numbers from -1 to {size - 1}.")
        return pixels

    def _whole(self, name: str, given: Any) -> Tensor:
        try:
            found = torch.as_tensor(given)
        except (TypeError, ValueError, RuntimeError):
            raise ThreefoldError(f"{name} {self.where} must be whole numbers, got {_kind(given)}.") from None
        if found.is_floating_point() or found.dtype == torch.bool:
            raise ThreefoldError(f"{name} {self.where} must be whole numbers, got {found.dtype}.")
        return found.long().cpu()


def _kind(value: object) -> str:
    return f"{type(value).__name__} {value!r:.40}"
