"""Split: the classes are distributed over the tasks."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.randomness import generator
from threefold.streams.stream import Defaults, Stream, StreamOptions, by_class, in_short
from threefold.streams.task import Task
from threefold.values import hyper, listed, must_be

AtLeastOne = Field(min_length=1)
Sizes = Annotated[tuple[PositiveInt, ...], AtLeastOne]
Labels = Annotated[tuple[Annotated[tuple[NonNegativeInt, ...], AtLeastOne], ...], AtLeastOne]


def _in_tasks(given: Any) -> Any:
    """`5-3-2` is three sizes, `0-1/2-3-4` two lists of labels, `0-1-2/` one."""
    if isinstance(given, str) and "/" in given:
        return [listed(task) for task in given.removesuffix("/").split("/")]
    return listed(given)


def _of_labels(given: Any) -> Any:
    return given if given in ("random", "fixed") else listed(given)


class SplitOptions(StreamOptions):
    """How the classes are distributed."""

    name = "split"
    classes: Annotated[
        Sizes | Labels | None,
        BeforeValidator(_in_tasks),
        must_be("numbers of classes such as 5-3-2, or labels such as 0-1/2-3-4"),
    ] = hyper("number of classes of each task (5-3-2), or their labels (0-1/2-3-4); equal shares if not given")
    first: int | None = hyper("number of classes of the first task; the others have equal shares of the rest", ge=1)
    order: Annotated[
        Literal["random", "fixed"] | tuple[NonNegativeInt, ...],
        BeforeValidator(_of_labels),
        must_be("random, fixed, or all labels such as 3-0-2-1"),
    ] = hyper("of the classes: random per seed, fixed (0, 1, 2, …), or all labels (3-0-2-1)", "random")
    left: Literal["refuse", "last"] = hyper("classes left over are refused, or go to the last task", "refuse")


class Split(Stream):
    """Each task holds some of the classes: an equal share, assigned at random per seed (section 4.1, notes)."""

    name = "split"
    meaning = "the classes are dealt out over the tasks, at random per seed"
    defaults = Defaults(iters=2000, lr=1e-3, hidden=400)
    default_tasks = 5
    usual_tasks_of: ClassVar[Mapping[str, int]] = {"cifar-100": 10}  # by the name of the data
    options_type = SplitOptions
    recurring = None

    def __init__(self, data: Dataset, tasks: int | None = None, **options: Any) -> None:
        super().__init__(data, tasks, **options)
        self._sizes, self._order = _Plan(data, self.options, tasks, self._usual).made()
        self._train = by_class(data.train_y, data.classes)
        self._test = by_class(data.test_y, data.classes)

    @property
    def _usual(self) -> int:
        return self.usual_tasks_of.get(self.data.name, self.default_tasks)

    @cached_property
    def cut(self) -> int:
        return len(self._sizes)

    @cached_property
    def classes_per_task(self) -> int | tuple[int, ...]:
        return in_short(self._sizes)

    def sequence(self, seed: int) -> list[Task]:
        return [
            Task(deal, torch.cat([self._train[c] for c in deal]), torch.cat([self._test[c] for c in deal]))
            for deal in self._deals(seed)
        ]

    def smallest_task(self, seed: int) -> int:
        """Counted without building index sets, as an experiment needs it for thousands of seeds."""
        return min(sum(len(self._train[c]) for c in deal) for deal in self._deals(seed)[: self.tasks])

    def _deals(self, seed: int) -> list[tuple[int, ...]]:
        """The classes of each task."""
        order = self._order
        if order is None:
            order = torch.randperm(self.data.classes, generator=generator(seed, "classes")).tolist()
        deals, start = [], 0
        for size in self._sizes:
            deals.append(tuple(order[start : start + size]))
            start += size
        return deals


class _Plan:
    """The numbers of classes of the tasks, and the order of all classes (None: random), from the options."""

    def __init__(self, data: Dataset, options: SplitOptions, tasks: int | None, usual: int) -> None:
        self.data, self.options, self.tasks, self.usual = data, options, tasks, usual

    def made(self) -> tuple[list[int], Sequence[int] | None]:
        given = self.options.classes
        if given is None:
            return self._completed(self._shares()), self._order()
        self._same_number(len(given))
        if self.options.first:
            raise ThreefoldError(f"first is {self.options.first}, but classes says it for each task; give one of them.")
        if isinstance(given[0], int):
            return self._completed(list(given)), self._order()
        return self._named([list(labels) for labels in given])

    def _shares(self) -> list[int]:
        """Equal shares, except for a larger first task."""
        classes, first = self.data.classes, self.options.first
        tasks = self.usual if self.tasks is None else self.tasks
        if first is None:
            if tasks > classes or (classes % tasks and self.options.left == "refuse"):
                raise self._uneven(f"divide the {classes} classes", tasks, _divisors(classes), tasks < classes)
            return [classes // tasks] * tasks
        others, rest = tasks - 1, classes - first
        if others == 0 and rest > 0:
            raise ThreefoldError(f"tasks must be at least 2 where first is {first} of {classes} classes, got {tasks}.")
        if rest < others:
            raise ThreefoldError(
                f"first must be at most {classes - others}, which leaves a class for each other task, got {first}."
            )
        if others and rest % others and self.options.left == "refuse":
            fit = [1 + number for number in _divisors(rest)]
            raise self._uneven(f"leave equal shares of the {rest} classes after the first {first}", tasks, fit)
        return [first, *[rest // others if others else 0] * others]

    def _uneven(self, must: str, tasks: int, fit: Sequence[int], last: bool = True) -> ThreefoldError:
        """The error for a number of tasks that does not divide the classes; `last`: may the last task have the rest?"""
        more = ", or left=last to give what is left over to the last task" if last else ""
        numbers = ", ".join(map(str, fit))
        return ThreefoldError(f"tasks must {must} of {self.data.name}, got {tasks}; use one of {numbers}{more}.")

    def _completed(self, sizes: list[int]) -> list[int]:
        """The sizes, including classes that are left over."""
        left = self.data.classes - sum(sizes)
        if left < 0 or (left and self.options.left == "refuse"):
            more = f", or use left=last to give the other {left} to the last task" if left > 0 else ""
            raise ThreefoldError(
                f"classes must be {self.data.classes} in all, as many as {self.data.name} has, got {sum(sizes)};"
                f" change the numbers{more}."
            )
        return [*sizes[:-1], sizes[-1] + left]

    def _named(self, tasks: list[list[int]]) -> tuple[list[int], list[int]]:
        """Tasks of these labels."""
        if self.options.order != "random":
            raise ThreefoldError(f"order is '{self.options.order}', but classes names the labels; give one of them.")
        self._labels("classes", [label for task in tasks for label in task])
        left = sorted(set(range(self.data.classes)) - {label for task in tasks for label in task})
        if left and self.options.left == "refuse":
            raise ThreefoldError(
                f"classes leaves out {', '.join(map(str, left))} of the {self.data.classes} classes of"
                f" {self.data.name}; name them, or use left=last to give them to the last task."
            )
        tasks[-1] += left
        return [len(task) for task in tasks], [label for task in tasks for label in task]

    def _order(self) -> Sequence[int] | None:
        order = self.options.order
        if isinstance(order, str):
            return None if order == "random" else range(self.data.classes)
        self._labels("order", order)
        if len(order) < self.data.classes:
            raise ThreefoldError(
                f"order must have all {self.data.classes} classes of {self.data.name}, got {len(order)}."
            )
        return order

    def _labels(self, what: str, labels: Sequence[int]) -> None:
        """Check that each is a label, and none occurs twice."""
        for place, label in enumerate(labels):
            if label >= self.data.classes:
                raise ThreefoldError(f"{what} must be labels 0…{self.data.classes - 1}, got {label}.")
            if label in labels[:place]:
                raise ThreefoldError(f"{what} must name each label once, got {label} twice.")

    def _same_number(self, tasks: int) -> None:
        if self.tasks not in (None, tasks):
            raise ThreefoldError(f"tasks is {self.tasks}, but classes is for {tasks} tasks; give one of them.")


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
