"""Timed: the samples in the given order, cut into stretches."""

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field, PositiveInt
from torch import Tensor

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.streams.stream import Stream, StreamOptions, by_class
from threefold.streams.task import Task
from threefold.values import hyper, listed, must_be


class TimedOptions(StreamOptions):
    """Where one stretch ends and the next begins."""

    name = "timed"
    at: Annotated[
        Annotated[tuple[PositiveInt, ...], Field(min_length=1)] | None,
        BeforeValidator(listed),
        must_be("rising numbers such as 2000-5000, from 1 on"),
    ] = hyper("numbers of the training samples with which a new task begins (2000-5000); equal stretches if not given")
    column: str | None = hyper(
        "what the data say of each sample (year: the arrays train_year and test_year); each value is a task"
    )


class Timed(Stream):
    """Each task is a stretch of the samples; a class that occurs again is the same class.

    The test samples are cut at the same shares of their number, or by the same column.
    """

    name = "timed"
    meaning = "the samples in the order given, cut by number or by a column of the data"
    default_tasks = 5
    options_type = TimedOptions

    def __init__(self, data: Dataset, tasks: int | None = None, **options: Any) -> None:
        super().__init__(data, tasks, **options)
        at, column = self.options.at, self.options.column
        if at and column:
            raise ThreefoldError(f"at is given, but column is '{column}'; give one of them.")
        self._stretches = self._by_column(column) if column else self._by_number(at, tasks or self.default_tasks)
        if tasks not in (None, len(self._stretches)):
            raise ThreefoldError(
                f"tasks is {tasks}, but {'column' if column else 'at'} cuts {data.name} into {len(self._stretches)}."
            )

    @cached_property
    def cut(self) -> int:
        return len(self._stretches)

    def sequence(self, seed: int) -> list[Task]:
        """The same for every seed."""
        tasks = []
        for train, test in self._stretches:
            classes = torch.unique(torch.cat([self.data.train_y[train], self.data.test_y[test]]))
            tasks.append(Task(tuple(classes.tolist()), train, test))
        return tasks

    def details(self) -> dict[str, Any]:
        """The column's values, which the data's fingerprint does not cover."""
        if not self.options.column:
            return super().details()
        values = b"".join(each.numpy().tobytes() for each in self.data.columns[self.options.column])
        return super().details() | {"column": sha256(values).hexdigest()}

    def _by_number(self, at: Sequence[int] | None, number: int) -> list[tuple[Tensor, Tensor]]:
        size, tests, name = len(self.data.train_y), len(self.data.test_y), self.data.name
        if at is None and number > (most := min(size, tests)):  # counted before they are cut
            raise ThreefoldError(
                f"tasks must be at most {most} for {name}, a sample each to train and to test on, got {number}."
            )
        bounds = [0, *(at or (size * task // number for task in range(1, number))), size]
        for before, bound in pairwise(bounds[:-1]):
            if not before < bound < size:
                after = f" after {before}" if before else ""
                raise ThreefoldError(
                    f"at must be rising numbers below {size}, the training samples of {name}, got {bound}{after}."
                )
        cuts = [tests * bound // size for bound in bounds]
        stretches = []
        for n in range(len(bounds) - 1):
            if cuts[n] == cuts[n + 1]:
                raise ThreefoldError(
                    f"task {n + 1} of timed must have test samples, but the {tests} of {name} leave none for it; use"
                    " fewer or longer tasks."
                )
            stretches.append((torch.arange(bounds[n], bounds[n + 1]), torch.arange(cuts[n], cuts[n + 1])))
        return stretches

    def _by_column(self, name: str) -> list[tuple[Tensor, Tensor]]:
        columns = self.data.columns
        if name not in columns:
            there = (
                f"it has {', '.join(columns)}" if columns else f"it has none; give arrays train_{name} and test_{name}"
            )
            raise ThreefoldError(f"column must be one of {self.data.name}, got '{name}'; {there}.")
        train, test = columns[name]
        if not (train.isfinite().all() and test.isfinite().all()):
            raise ThreefoldError(f"column {name} of {self.data.name} must be finite numbers, to be told apart.")
        values = torch.unique(torch.cat([train, test]))
        own, others = (by_class(torch.searchsorted(values, each), len(values)) for each in (train, test))
        for value, *both in zip(values.tolist(), own, others, strict=True):
            for kind, found in zip(("training", "test"), both, strict=True):
                if not len(found):
                    raise ThreefoldError(
                        f"column {name} of {self.data.name} must have {kind} samples for {value:.15g}, got none."
                    )
        return list(zip(own, others, strict=True))
