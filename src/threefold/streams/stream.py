"""What every stream is."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.errors import ThreefoldError, unknown
from threefold.streams.boundaries import BOUNDARIES, SHARP, Boundaries
from threefold.streams.checks import checked
from threefold.streams.task import Task
from threefold.values import Value, known


@dataclass(frozen=True)
class Defaults:
    """How the paper trains on a stream (section 4.2)."""

    iters: int
    lr: float
    hidden: int
    batch: int = 128


class Options(Value):
    """What can be chosen about a stream beside its number of tasks; here nothing."""

    name = "stream"


class Stream(ABC):
    """Cuts a dataset into a sequence of tasks, differently for each seed.

    One of your own needs `sequence` alone. Its numbers of tasks and classes must be the same for all seeds.
    """

    name: ClassVar[str]
    meaning: ClassVar[str] = ""
    defaults: ClassVar[Defaults] = Defaults(iters=2000, lr=1e-3, hidden=400)
    default_tasks: ClassVar[int | None] = None
    options_type: ClassVar[type[Options]] = Options
    same_classes: ClassVar[bool] = True
    """Is a class of the data that comes in several tasks one class? Then it has one unit in Domain-IL and Class-IL."""

    of_the_user: ClassVar[bool] = False  # are its tasks to be checked?
    text: str | None = None  # what the command line finds a stream of the user's by: `my_streams.py:Name`
    only: int | None = None  # how many of the tasks are learned, the first ones; None: all
    boundaries: Boundaries = SHARP

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "name"):
            cls.name = cls.__name__
        if "sequence" in vars(cls) and not cls.__module__.startswith("threefold."):
            cls.of_the_user = True
            for name in COUNTED:  # what a class of ours knows without its tasks need not be true of others
                setattr(cls, name, vars(cls).get(name, vars(Stream)[name]))

    def __init__(self, data: Dataset, tasks: int | None = None, **options: Any) -> None:
        if data.classes < 2:
            raise ThreefoldError(f"data must have at least 2 classes, got {data.name} with 1.")
        if tasks is not None and tasks < 1:
            raise ThreefoldError(f"tasks must be at least 1, got {tasks}.")
        self.data = data
        self.check_options(options)
        self.options: Any = self.options_type(**options)

    @classmethod
    def check_options(cls, given: Collection[str]) -> None:
        """Are these options that it has?"""
        fields = cls.options_type.model_fields
        for name in given:
            if not fields:
                raise ThreefoldError(f"stream {cls.name} has no options, but '{name}' was given.")
            if name not in fields:
                raise unknown(f"option of {cls.name}", name, fields)

    @abstractmethod
    def sequence(self, seed: int) -> Sequence[Task]:
        """The tasks of this seed, in order."""

    def every(self, seed: int) -> list[Task]:
        """All tasks of this seed; those of a user's code are checked, and of one form for all seeds."""
        if not self.of_the_user:
            return list(self.sequence(seed))
        inputs = self.inputs(self.data.test_x[:1]).numel()
        tasks = checked(self.name, self.data, inputs, self.sequence, seed)
        if self.__dict__.setdefault("_sums", {}).setdefault(seed, now := sum_of(tasks)) != now:
            raise ThreefoldError(
                f"stream {self.name} must give the same tasks for seed {seed} each time, and does not; draw with a"
                " torch.Generator whose seed follows from it."
            )
        form = form_of(tasks) if self.same_classes else [len(task.classes) for task in tasks]
        if form != (first := self.__dict__.setdefault("_form", form)):
            raise ThreefoldError(
                f"stream {self.name} must have tasks of the same numbers of classes for each seed, got {form} for seed"
                f" {seed} after {first}."
            )
        return tasks

    def learned(self, seed: int) -> list[Task]:
        """Those of them that are learned."""
        return self.every(seed)[: self.tasks]

    @cached_property
    def cut(self) -> int:
        """Into how many tasks the data are cut."""
        return len(self.every(1))

    @property
    def tasks(self) -> int:
        """How many of them are learned."""
        return self.cut if self.only is None else min(self.only, self.cut)

    @cached_property
    def classes_per_task(self) -> int | tuple[int, ...]:
        """How many classes each task has, the same for all seeds."""
        return in_short([len(task.classes) for task in self.every(1)])

    @cached_property
    def recurring(self) -> tuple[tuple[int, ...], ...] | None:
        """Where a class comes in several tasks: of each task the numbers of its classes, in the order they come in."""
        form = form_of(self.every(1)) if self.same_classes else ()
        several = len({number for numbers in form for number in numbers}) < sum(map(len, form))
        return form if several else None

    def smallest_task(self, seed: int) -> int:
        """How many training samples the smallest of them has."""
        return min(len(task.train) for task in self.learned(seed))

    @property
    def samples(self) -> int:
        """How many training samples a task has, about."""
        return len(self.data.train_y) // self.cut

    def inputs(self, images: Tensor) -> Tensor:
        """The samples as network inputs, images with a channel: the tensor that tasks index into."""
        return images.unsqueeze(1) if images.dim() == 3 else images

    @property
    def title(self) -> str:
        """The stream and its data, for example split-mnist."""
        return f"{self.name}-{self.data.name}"

    @property
    def written(self) -> str:
        """As the command line writes it, without what is usual: `split-mnist:classes=5-3-2`."""
        return self.text or self.title + self.options.written().removeprefix(self.options.name)

    @property
    def usual_tasks(self) -> int | None:
        """How many tasks there are if no number is given."""
        return self.default_tasks

    def details(self) -> dict[str, Any]:
        """What of it, beside its name, its data, its number of tasks and its code, determines a run."""
        usual = self.options_type().model_dump(mode="json")
        chosen = {name: v for name, v in self.options.model_dump(mode="json").items() if v != usual[name]}
        options: dict[str, Any] = {"options": chosen} if chosen else {}
        return options | ({} if self.boundaries == SHARP else {"boundaries": self.boundaries.described()})

    def held(self) -> dict[str, Any]:
        """What an instance of a user's class holds besides: it may determine its tasks."""
        ours = {"data", "options", "text", "only", "boundaries", "_form", "_sums", "__dict__", "__weakref__", *COUNTED}
        slots = {name: getattr(self, name) for name in slots_of(type(self)) if hasattr(self, name)}
        return {name: value for name, value in (slots | vars(self)).items() if name not in ours}

    def check_own(self) -> None:
        """Are what every stream has under its name still things that we know?"""
        known(BOUNDARIES, "boundaries", self.boundaries)
        if not isinstance(options := getattr(self, "options", None), Options):
            raise ThreefoldError(f"options of stream {self.name} must be those of Stream, got {str(options)[:60]}.")


COUNTED = ("cut", "classes_per_task", "recurring", "samples", "smallest_task")


def form_of(tasks: Sequence[Task]) -> tuple[tuple[int, ...], ...]:
    """The classes of each task, numbered as they first come."""
    numbers: dict[int, int] = {}
    return tuple(tuple(numbers.setdefault(label, len(numbers)) for label in task.classes) for task in tasks)


def sum_of(tasks: Sequence[Task]) -> bytes:
    """What tasks are known by but their transforms, whose code is what they are known by."""
    total = sha256()
    for task in tasks:
        for values in (torch.tensor(task.classes), task.train, task.test, task.pixels):
            total.update(b"none" if values is None else f"{len(values)} ".encode() + values.numpy().tobytes())
    return total.digest()


def slots_of(kind: type) -> set[str]:
    """The names of what instances hold outside of their `__dict__`."""
    names = set()
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            names.add(f"_{each.__name__.lstrip('_')}{name}" if private else name)
    return names


def in_short(sizes: Sequence[int]) -> int | tuple[int, ...]:
    """Numbers of classes: one number where all are equal."""
    return sizes[0] if len(set(sizes)) == 1 else tuple(sizes)


def by_class(labels: Tensor, classes: int) -> list[Tensor]:
    """The indices of each class's samples, in their order."""
    counts = torch.bincount(labels, minlength=classes).tolist()
    return list(torch.split(torch.argsort(labels, stable=True), counts))
