"""What every stream is."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from operator import index
from typing import Any, ClassVar

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.errors import ThreefoldError, unknown
from threefold.fingerprint import is_ours
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


class StreamOptions(Value):
    """What can be chosen about a stream beside its number of tasks; here nothing."""

    name = "stream"
    called = "option"


class Stream(ABC):
    """Cuts a dataset into a sequence of tasks, differently for each seed.

    One of your own needs `sequence` alone. Its numbers of tasks and classes must be the same for all seeds.
    """

    name: ClassVar[str]
    meaning: ClassVar[str] = ""
    defaults: ClassVar[Defaults] = Defaults(iters=2000, lr=1e-3, hidden=400)
    default_tasks: ClassVar[int | None] = None
    options_type: ClassVar[type[StreamOptions]] = StreamOptions
    same_classes: ClassVar[bool] = True
    """Is a class of the data that comes in several tasks one class? Then it has one unit in Domain-IL and Class-IL."""

    of_the_user: ClassVar[bool] = False  # are its tasks to be checked?
    text: str | None = None  # what the command line finds a stream of the user's by: `my_streams.py:Name`
    asked: int | None = None  # the number of tasks that was given
    only: int | None = None  # how many of the tasks are learned, the first ones; None: all
    boundaries: Boundaries = SHARP

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if getattr(cls, "name", None) in (None, *(kind.__name__ for kind in cls.__mro__[1:])):
            cls.name = cls.__name__  # unless it was given one, or to a class that it inherits from
        if not is_ours(_home(cls, "sequence")):
            cls.of_the_user = True
            for name in COUNTED:  # what a class of ours knows without its tasks need not be true of others
                if is_ours(_home(cls, name)):
                    setattr(cls, name, vars(Stream)[name])

    def __init__(self, data: Dataset, tasks: int | None = None, **options: Any) -> None:
        if data.classes < 2:
            raise ThreefoldError(f"data must have at least 2 classes, got {data.name} with 1.")
        try:
            wrong = tasks is not None and index(tasks) < 1
        except TypeError:
            raise ThreefoldError(f"tasks must be a whole number, at least 1, got '{tasks}'.") from None
        if wrong:
            raise ThreefoldError(f"tasks must be at least 1, got {tasks}.")
        self.data, self.asked = data, tasks
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
        tasks = checked(self.name, self.data, self.inputs, self.sequence, seed)
        if self.__dict__.setdefault("_sums", {}).setdefault(seed, now := sum_of(tasks)) != now:
            raise ThreefoldError(
                f"stream {self.name} must give the same tasks for seed {seed} each time, and does not; draw with a"
                " torch.Generator whose seed follows from it."
            )
        if self.asked not in (None, len(tasks)):
            raise ThreefoldError(f"tasks is {self.asked}, but stream {self.name} has {len(tasks)}.")
        form = form_of(tasks) if self.same_classes else [len(task.classes) for task in tasks]
        if form != (first := self.__dict__.setdefault("_form", form)):
            again = ", and the same of them must come again" if self.same_classes else ""
            raise ThreefoldError(
                f"stream {self.name} must have tasks of the same numbers of classes for each seed{again}, got {form}"
                f" for seed {seed} after {first}."
            )
        return tasks

    def learned(self, seed: int) -> list[Task]:
        """Those of them that are learned; where each seed has features of its own, with the places of these."""
        tasks, place, data = self.every(seed)[: self.tasks], self.data.place(seed), self.data
        if not place:
            return tasks
        moved = place * len(data.train_y), place * len(data.test_y)
        return [replace(task, train=task.train + moved[0], test=task.test + moved[1]) for task in tasks]

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

    @cached_property
    def samples(self) -> int:
        """How many training samples a task has, about."""
        if not self.of_the_user:
            return len(self.data.train_y) // self.cut
        tasks = self.learned(1)  # which need not hold all data, or may hold some of them twice
        return sum(len(task.train) for task in tasks) // len(tasks)

    def inputs(self, images: Tensor) -> Tensor:
        """The samples as network inputs, images with a channel: the tensor that tasks index into."""
        return images.unsqueeze(1) if images.dim() == 3 else images

    @property
    def title(self) -> str:
        """The stream and its data, for example split-mnist."""
        return f"{self.name}-{self.data.name}"

    @property
    def label(self) -> str:
        """What tables and titles call it, without what is usual: `split-mnist:classes=5-3-2`."""
        options: StreamOptions = self.options
        return self.title + options.written().removeprefix(options.name)

    @property
    def written(self) -> str:
        """As the command line writes it; one of the user's by where it is found."""
        return self.text or self.label

    @property
    def usual_tasks(self) -> int | None:
        """How many tasks there are if no number is given; None: the stream or its options say it."""
        said = COUNTING & self.details().get("options", {}).keys()
        return None if said else self._usual

    @property
    def _usual(self) -> int | None:
        return self.default_tasks

    def details(self) -> dict[str, Any]:
        """What of it, beside its name, its data, its number of tasks and its code, determines a run."""
        usual = self.options_type().model_dump(mode="json")
        chosen = {name: v for name, v in self.options.model_dump(mode="json").items() if v != usual[name]}
        options: dict[str, Any] = {"options": chosen} if chosen else {}
        return options | ({} if self.boundaries == SHARP else {"boundaries": self.boundaries.described()})

    def held(self) -> dict[str, Any]:
        """What an instance of a user's class holds besides: it may determine its tasks. What it computes once does not
        count: its code does."""
        ours = {"data", "options", "text", "asked", "only", "boundaries", "_form", "_sums", "__dict__", "__weakref__"}
        slots = {name: getattr(self, name) for name in slots_of(type(self)) if hasattr(self, name)}
        computed = {name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)}
        return {name: value for name, value in (slots | vars(self)).items() if name not in ours | computed}

    def check_own(self) -> None:
        """Are what every stream has under its name still things that we know?"""
        known(BOUNDARIES, "boundaries", self.boundaries)
        if not isinstance(options := getattr(self, "options", None), StreamOptions):
            raise ThreefoldError(f"options of stream {self.name} must be those of Stream, got {str(options)[:60]}.")


def _home(cls: type, name: str) -> type:
    """The class that an attribute is inherited from."""
    return next(kind for kind in cls.__mro__ if name in vars(kind))


COUNTING = {"classes", "angles", "at", "column"}  # options that say how many tasks there are
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
