"""Accuracy during training, as stored with a run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from threefold.results.packed import unpack

Array = NDArray[np.float64]
POINTS, NUMBERS = 100_000, 10_000_000  # limits for a run: reports hold many runs' curves at once
STEPS = 10**12  # of a task


@dataclass(frozen=True, eq=False)
class Curve:
    """Measurements at points during training. Accuracies are in per cent; NaN: not measured there.

    A task's last point is after its consolidation. The first point of all is before any training.
    """

    task: NDArray[np.int64]  # the task in training at each point
    step: NDArray[np.int64]  # of that task, counted from 1; 0: before its first
    seen: NDArray[np.int64]  # how many tasks have appeared so far
    accuracy: Array  # points × tasks
    training_accuracy: Array | None = None  # points × tasks, on training samples
    loss: Array | None = None  # the mean since the last point

    @classmethod
    def of(cls, packed: Mapping[str, Any], tasks: int) -> Self:
        """The curve in `Record.curves`; ValueError if it is not valid."""
        numbers = sum(prod(value["shape"]) for value in packed.values())
        if numbers > NUMBERS:  # before anything is unpacked
            raise ValueError(f"it has {numbers} numbers, more than {NUMBERS}")
        found = {name: unpack(value) for name, value in packed.items()}
        points, size = found.get("points"), len(next(iter(found.values()), ()))
        if points is None or points.shape != (size, 3) or points.dtype.kind != "i" or "accuracy" not in found:
            raise ValueError("it has no points, or no accuracy at them")
        if size > POINTS:
            raise ValueError(f"it has {size} points, more than {POINTS}")
        for name, array in found.items():
            wanted = {"points": (size, 3), "loss": (size,)}.get(name, (size, tasks))
            if array.shape != wanted:
                raise ValueError(f"{name} has the shape {array.shape}, which must be {wanted}")
            if name != "points" and array.dtype.kind != "f":
                raise ValueError(f"{name} has values of type {array.dtype}, which must be floating-point numbers")
            if "accuracy" in name and not bool(((array >= 0) & (array <= 100) | np.isnan(array)).all()):
                raise ValueError(f"{name} has values that are no per cent")
        points = points.astype(np.int64)
        _check_order(points, tasks)
        values = {name.replace(" ", "_"): array.astype(float) for name, array in found.items() if name != "points"}
        known = {name: values[name] for name in ("accuracy", "training_accuracy", "loss") if name in values}
        return cls(points[:, 0], points[:, 1], points[:, 2], **known)

    @property
    def has_ends(self) -> bool:
        """Do its tasks end, one after another?"""
        return bool((self.seen == self.task + 1).all())

    def complete(self) -> Self:
        """Without points that have no measurement: a run may take fewer steps than others of its stack."""
        return self._where(~np.isnan(self.accuracy).any(axis=1))

    def until(self, row: int) -> Self:
        """The points up to the one where this many rows of the accuracy matrix were measured."""
        if self.has_ends:
            return self._where(self.task < row)
        share = self.total * self.accuracy.shape[1]
        return self._where(share <= row * self.total.max(initial=0))

    def _where(self, there: Any) -> Self:
        return replace(self, **{name: values[there] for name, values in vars(self).items() if values is not None})

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many steps each task took."""
        lengths = np.zeros(int(self.task.max(initial=0)) + 1, dtype=np.int64)
        np.maximum.at(lengths, self.task, self.step)
        return lengths

    @property
    def total(self) -> NDArray[np.int64]:
        """The steps taken up to each point over all tasks."""
        return (np.concatenate([[0], self.lengths.cumsum()[:-1]])[self.task] + self.step).astype(np.int64)


def _check_order(points: NDArray[np.int64], tasks: int) -> None:
    task, step, seen = points.T
    later, same = np.diff(task), np.diff(step)
    in_order = ((later > 0) | ((later == 0) & (same > 0))).all()
    if points.size and (points.min() < 0 or task.max() >= tasks or not in_order):
        raise ValueError("points are not in order, or none of these tasks'")
    if points.size and step.max() > STEPS:
        raise ValueError(f"points have a step beyond {STEPS}")
    if points.size and not 1 <= seen.min() <= seen.max() <= tasks:
        raise ValueError("points have seen no task, or more than there are")
