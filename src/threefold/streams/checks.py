"""Checks of the tasks that a user's stream returns."""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.streams.task import Task

Inputs = Callable[[Tensor], Tensor]
"""Samples as network inputs: images with a channel."""

TRIED = 2  # samples that a transform is tried with


def checked(stream: str, data: Dataset, inputs: Inputs, sequence: Callable[[int], Any], seed: int) -> list[Task]:
    """The checked tasks that `sequence` returns for a seed, or a one-sentence error about the first mistake.

    Tasks are counted from 1, as in reports.
    """
    try:
        given = sequence(seed)
    except (ThreefoldError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a user's code may raise anything
        raise ThreefoldError(f"stream {stream} gives no tasks for seed {seed} ({in_brief(error)}).") from error
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ThreefoldError(f"stream {stream} must give a list of Task, got {_kind(given)}.")
    for task in given:
        if not isinstance(task, Task):
            raise ThreefoldError(f"stream {stream} must give a list of Task, got one with {_kind(task)}.")
    return [_Checked(f"of task {n} of stream {stream}", data, inputs).task(task) for n, task in enumerate(given, 1)]


def in_brief(error: Exception) -> str:
    """An error of a user's code, in short."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


class _Checked:
    """Checks one task of a user's stream and converts it."""

    def __init__(self, where: str, data: Dataset, inputs: Inputs) -> None:
        self.where, self.data, self.inputs = where, data, inputs

    def task(self, task: Task) -> Task:
        classes = self._classes(task.classes)
        each = (("train", task.train, self.data.train_y), ("test", task.test, self.data.test_y))
        train, test = (self._samples(name, indices, labels, classes) for name, indices, labels in each)
        some = self.inputs(self.data.train_x[train[:TRIED]])
        pixels = None if task.pixels is None else self._pixels(task.pixels, some[0].numel())
        if task.transform is not None and not callable(task.transform):
            raise ThreefoldError(f"transform {self.where} must be a function, got {_kind(task.transform)}.")
        made = Task(classes, train, test, pixels, task.transform)
        if made.transform is not None:
            made.transformed(some)
        return made

    def _classes(self, given: Any) -> tuple[int, ...]:
        try:
            classes = tuple(index(label) for label in given)
        except TypeError:
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

    def _pixels(self, given: Any, size: int) -> Tensor:
        pixels = self._whole("pixels", given)
        if pixels.shape != (size,):
            shape = "×".join(map(str, pixels.shape))
            raise ThreefoldError(f"pixels {self.where} must be {size} numbers, one for each input, got {shape}.")
        low, high = int(pixels.min()), int(pixels.max())
        if low < -1 or high >= size:
            wrong = low if low < -1 else high
            raise ThreefoldError(f"pixels {self.where} must be numbers 0…{size - 1}, or -1 for none, got {wrong}.")
        return pixels

    def _whole(self, name: str, given: Any) -> Tensor:
        try:
            found = torch.as_tensor(given).cpu()
            if found.layout is not torch.strided:
                raise TypeError
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ThreefoldError(f"{name} {self.where} must be whole numbers, got {_kind(given)}.") from None
        if not found.numel():  # PyTorch makes an empty list floating-point
            return found.long()
        if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
            more = "; use torch.nonzero(…).flatten()" if found.dtype == torch.bool else ""
            raise ThreefoldError(f"{name} {self.where} must be whole numbers, got {found.dtype}{more}.")
        return found.long()


def _kind(value: object) -> str:
    """Its type and the beginning of it, in one line."""
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= 40 else f'{text[:39]}…'}"
