"""The base class of streams."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
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
    """A stream's options in addition to its number of tasks; here none."""

    name = "stream"
    called = "option"


class Stream(ABC):
    """Cuts a dataset into a sequence of tasks, differently for each seed.

    Your own stream only needs `sequence`. Its numbers of tasks and classes must be the same for all seeds.
    """

    name: ClassVar[str]
    meaning: ClassVar[str] = ""
    defaults: ClassVar[Defaults] = Defaults(iters=2000, lr=1e-3, hidden=400)
    default_tasks: ClassVar[int | None] = None
    options_type: ClassVar[type[StreamOptions]] = StreamOptions
    same_classes: ClassVar[bool] = True
    """Is a class of the data that occurs in several tasks one class? Then it has one unit in Domain-IL and Class-IL."""

    of_the_user: ClassVar[bool] = False  # are its tasks to be checked?
    text: str | None = None  # a user's stream on the command line: `my_streams.py:Name`
    asked: int | None = None  # the number of tasks that was given
    only: int | None = None  # how many of the tasks are learned, the first ones; None: all
    boundaries: Boundaries = SHARP

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if getattr(cls, "name", None) in (None, *(kind.__name__ for kind in cls.__mro__[1:])):
            cls.name = cls.__name__  # unless it, or a class it inherits from, has one
        if not is_ours(_home(cls, "sequence")):
            cls.of_the_user = True
            for name in COUNTED:  # our shortcuts need not hold for a subclass's tasks
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
        """Refuse options that it does not have."""
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
        """All tasks of this seed; a user's are checked, and must have the same form for all seeds."""
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
        """The tasks that are learned, with indices shifted to the seed's own features if there are any."""
        tasks, place, data = self.every(seed)[: self.tasks], self.data.place(seed), self.data
        if not place:
            return tasks
        moved = place * len(data.train_y), place * len(data.test_y)
        return [replace(task, train=task.train + moved[0], test=task.test + moved[1]) for task in tasks]

    @cached_property
    def cut(self) -> int:
        """The number of tasks that the data are cut into."""
        return len(self.every(1))

    @property
    def tasks(self) -> int:
        """The number of tasks that are learned."""
        return self.cut if self.only is None else min(self.only, self.cut)

    @cached_property
    def classes_per_task(self) -> int | tuple[int, ...]:
        """How many classes each task has, the same for all seeds."""
        return in_short([len(task.classes) for task in self.every(1)])

    @cached_property
    def recurring(self) -> tuple[tuple[int, ...], ...] | None:
        """If classes occur in several tasks, each task's classes, numbered in order of first appearance."""
        form = form_of(self.every(1)) if self.same_classes else ()
        several = len({number for numbers in form for number in numbers}) < sum(map(len, form))
        return form if several else None

    def smallest_task(self, seed: int) -> int:
        """The number of training samples of the smallest task."""
        return min(len(task.train) for task in self.learned(seed))

    def try_transforms(self, seeds: Iterable[int]) -> None:
        """Transform every sample of these seeds' tasks, as a user's function may fail on any of them."""
        tasks = [task for seed in seeds for task in self.learned(seed) if task.transform]
        for part, samples in (("train", self.data.train_x), ("test", self.data.test_x)):
            inputs, tried = self.inputs(samples), set[tuple[int, bytes]]()
            for task in tasks:
                indices: Tensor = getattr(task, part)
                this = id(task.transform), indices.numpy().tobytes()
                if this not in tried:
                    tried.add(this)
                    task.transformed(inputs[indices])

    @cached_property
    def samples(self) -> int:
        """The approximate number of training samples of a task."""
        if not self.of_the_user:
            return len(self.data.train_y) // self.cut
        tasks = self.learned(1)  # they may not have all data, or some of them twice
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
        """Its name in tables and titles, without defaults: `split-mnist:classes=5-3-2`."""
        options: StreamOptions = self.options
        return self.title + options.written().removeprefix(options.name)

    @property
    def written(self) -> str:
        """Its text on the command line; for a user's, where it is found."""
        return self.text or self.label

    @property
    def usual_tasks(self) -> int | None:
        """The default number of tasks; None: determined by the stream or its options."""
        said = COUNTING & self.details().get("options", {}).keys()
        return None if said else self._usual

    @property
    def _usual(self) -> int | None:
        return self.default_tasks

    def details(self) -> dict[str, Any]:
        """What determines a run, in addition to its name, data, number of tasks and code."""
        usual = self.options_type().model_dump(mode="json")
        chosen = {name: v for name, v in self.options.model_dump(mode="json").items() if v != usual[name]}
        options: dict[str, Any] = {"options": chosen} if chosen else {}
        return options | ({} if self.boundaries == SHARP else {"boundaries": self.boundaries.described()})

    def held(self) -> dict[str, Any]:
        """Further attributes of an instance of a user's class, which may determine its tasks. Cached properties are
        left out, as its code covers them."""
        ours = {"data", "options", "text", "asked", "only", "boundaries", "_form", "_sums", "__dict__", "__weakref__"}
        slots = {name: getattr(self, name) for name in slots_of(type(self)) if hasattr(self, name)}
        computed = {name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)}
        return {name: value for name, value in (slots | vars(self)).items() if name not in ours | computed}

    def check_own(self) -> None:
        """Check that a user's class has not replaced the attributes of every stream by other types."""
        known(BOUNDARIES, "boundaries", self.boundaries)
        if not isinstance(options := getattr(self, "options", None), StreamOptions):
            raise ThreefoldError(f"options of stream {self.name} must be those of Stream, got {str(options)[:60]}.")


def _home(cls: type, name: str) -> type:
    """The class that an attribute is inherited from."""
    return next(kind for kind in cls.__mro__ if name in vars(kind))


COUNTING = {"classes", "angles", "at", "column"}  # options that determine the number of tasks
COUNTED = ("cut", "classes_per_task", "recurring", "samples", "smallest_task")


def form_of(tasks: Sequence[Task]) -> tuple[tuple[int, ...], ...]:
    """The classes of each task, numbered in order of first appearance."""
    numbers: dict[int, int] = {}
    return tuple(tuple(numbers.setdefault(label, len(numbers)) for label in task.classes) for task in tasks)


def sum_of(tasks: Sequence[Task]) -> bytes:
    """A checksum of tasks without their transforms, which are identified by their code."""
    total = sha256()
    for task in tasks:
        for values in (torch.tensor(task.classes), task.train, task.test, task.pixels):
            total.update(b"none" if values is None else f"{len(values)} ".encode() + values.numpy().tobytes())
    return total.digest()


def slots_of(kind: type) -> set[str]:
    """The names of instance attributes outside `__dict__`."""
    names = set()
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            names.add(f"_{each.__name__.lstrip('_')}{name}" if private else name)
    return names


def in_short(sizes: Sequence[int]) -> int | tuple[int, ...]:
    """Numbers of classes; a single number if all are equal."""
    return sizes[0] if len(set(sizes)) == 1 else tuple(sizes)


def by_class(labels: Tensor, classes: int) -> list[Tensor]:
    """The indices of each class's samples, in their order."""
    counts = torch.bincount(labels, minlength=classes).tolist()
    return list(torch.split(torch.argsort(labels, stable=True), counts))
