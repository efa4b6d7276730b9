"""A scenario is a value, not a branch.

Two booleans define the three scenarios, and everything a method may need follows from them:

| | the task is given at test time | each task has units of its own |
|---|---|---|
| Task-IL | yes | yes |
| Domain-IL | no | no |
| Class-IL | no | yes |

The fourth combination (given, but no units of its own) is the second column of Table B.1: the task is used in the
hidden layers only. It is Task-IL with `task_id_in="hidden"`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Self, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from threefold.errors import ThreefoldError, unknown
from threefold.streams import Stream

TaskIdIn = Literal["output", "hidden", "both"]
Active = Literal["seen", "all"]


@dataclass(frozen=True)
class Scenario:
    """What a network must do at test time (Table 1)."""

    name: str
    title: str
    question: str
    task_known: bool
    own_units: bool
    active: Active = "seen"  # if the task must be inferred: the units of classes seen so far, or of all

    @property
    def infers_task(self) -> bool:
        """Must the task be inferred, because the units of several tasks compete?"""
        return self.own_units and not self.task_known

    def with_active(self, units: Active) -> "Scenario":
        """This scenario with these units active in training; unchanged unless it is Class-IL."""
        return replace(self, active=units) if self.infers_task else self

    def using_task_in(self, layers: str | None) -> "Scenario":
        """This scenario with the task used in the output layer (several heads), the hidden layers, or both."""
        if layers is None:
            return self
        if layers not in get_args(TaskIdIn):
            raise unknown("task-id-in", layers, get_args(TaskIdIn))
        if not self.task_known:
            raise ThreefoldError(
                f"task-id-in is '{layers}', but in {self.title} no task is given at test time; it is for Task-IL only."
            )
        return replace(self, own_units=layers != "hidden")


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("task", "Task-IL", "solve tasks so far, task given", task_known=True, own_units=True),
        Scenario("domain", "Domain-IL", "solve tasks so far, task not given", task_known=False, own_units=False),
        Scenario("class", "Class-IL", "solve tasks so far and infer the task", task_known=False, own_units=True),
    )
}


def find(name: str) -> Scenario:
    if name not in SCENARIOS:
        raise unknown("scenario", name, SCENARIOS)
    return SCENARIOS[name]


def find_all(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names, in the paper's order; "all" means all of them."""
    for name in names:
        if name not in {*SCENARIOS, "all"}:
            raise unknown("scenario", name, [*SCENARIOS, "all"])
    return [scenario for name, scenario in SCENARIOS.items() if {name, "all"} & set(names)]


Numbers = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Outputs:
    """The output layer of a scenario over `tasks` tasks (counted from 0) of so many classes each, or of unequal sizes.

    `recurring`: the numbers of each task's classes, if classes of one task occur again in another. Otherwise every task
    has its own classes.
    """

    scenario: Scenario
    tasks: int
    classes_per_task: int | tuple[int, ...]
    recurring: Numbers | None = None

    @classmethod
    def of(cls, scenario: Scenario, stream: Stream) -> Self:
        """The output layer of a scenario over the tasks of a stream that are learned."""
        tasks, sizes, numbers = stream.tasks, stream.classes_per_task, stream.recurring
        sizes = sizes if isinstance(sizes, int) else sizes[:tasks]
        return cls(scenario, tasks, sizes, numbers and numbers[:tasks])

    def __post_init__(self) -> None:
        if self.smallest < 2 and not self.all_compete:
            equal = isinstance(self.classes_per_task, int)
            found = f"tasks is {self.tasks}, which leaves 1 class a task" if equal else "a task has 1 class"
            raise ThreefoldError(
                f"{found}: nothing to tell apart in {self.scenario.title}; use at least 2 classes a task."
            )
        if self.units < 2:
            raise ThreefoldError(
                f"{self.scenario.title} over {self.tasks} task(s) of {self.smallest} class(es) leaves"
                f" {self.units} output unit to choose from; use data with at least 2 classes."
            )

    @property
    def all_compete(self) -> bool:
        """Must the task be inferred, because the units of all tasks so far compete?"""
        return self.scenario.infers_task

    def size(self, task: int) -> int:
        """How many classes a task has."""
        return self.classes_per_task if isinstance(self.classes_per_task, int) else self.classes_per_task[task]

    def before(self, task: int) -> int:
        """How many classes all earlier tasks have."""
        if isinstance(self.classes_per_task, int):
            return task * self.classes_per_task
        return sum(self.classes_per_task[:task])

    def tasks_of_classes(self, seen: int, device: torch.device) -> Tensor:
        """The task of each class of the first tasks, task by task."""
        return _tasks_of_classes(self, seen, device)

    @property
    def smallest(self) -> int:
        return self.classes_per_task if isinstance(self.classes_per_task, int) else min(self.classes_per_task)

    @property
    def largest(self) -> int:
        return self.classes_per_task if isinstance(self.classes_per_task, int) else max(self.classes_per_task)

    @property
    def units(self) -> int:
        if self.recurring and not self._heads:
            return 1 + max(max(classes) for classes in self.recurring)
        return self.before(self.tasks) if self.scenario.own_units else self.largest

    @property
    def _heads(self) -> bool:
        """Does each task have its own units even for a class that other tasks have too?"""
        return self.scenario.own_units and self.scenario.task_known

    def units_of(self, task: int) -> list[int]:
        """The output unit of each class of a task: the targets of its labels (Tables 2 and 3)."""
        if self.recurring and not self._heads:
            return list(self.recurring[task])
        first = self.before(task) if self.scenario.own_units else 0
        return list(range(first, first + self.size(task)))

    def active(self, task: int, seen: int) -> Tensor:
        """Which units are active for data of `task` when `seen` tasks have been seen (section A.1.1).

        For current data `task` is `seen - 1`, for replayed data the task that is replayed. Soft and hard targets of
        replayed data come from the model as it was one task ago: call it with `seen - 1` (section A.1.2).
        """
        active = torch.full((self.units,), not self.scenario.own_units)
        if self.scenario.own_units:
            competing = self.tasks if self.scenario.active == "all" else seen
            for each in [task] if self.scenario.task_known else range(competing):
                active[self.units_of(each)] = True
        return active

    def table(self, seen: int) -> Tensor:
        """`active` for every task, as rows, to be indexed by the samples' tasks."""
        if not self.scenario.task_known:
            return self.active(0, seen).expand(self.tasks, -1).clone()
        return torch.stack([self.active(task, seen) for task in range(self.tasks)])

    def by_unit(self, scores: Tensor) -> Tensor:
        """Scores of classes (labels of the tasks so far, task by task) as scores of units: the maximum over a unit's
        classes.

        Units of future classes score −inf.
        """
        places = _classes_of_units(self, scores.shape[-1], scores.device)
        return pad(scores, (0, 1), value=-torch.inf)[..., places].amax(-1)

    def at_test(self, task: int, seen: int) -> Tensor:
        """Which units compete when `task` is tested after `seen` tasks.

        A future task is tested as if it were the newest: with the units that will be active then.
        """
        return self.active(task, max(seen, task + 1))


@lru_cache(64)  # cached on the device, as a captured evaluation cannot copy it there
def _tasks_of_classes(outputs: Outputs, seen: int, device: torch.device) -> Tensor:
    sizes = torch.tensor([outputs.size(task) for task in range(seen)])
    return torch.repeat_interleave(torch.arange(seen), sizes).to(device)


@lru_cache(64)
def _classes_of_units(outputs: Outputs, classes: int, device: torch.device) -> Tensor:
    """The indices of each unit's classes among the first `classes`; rows are padded with the index past the last."""
    rows: list[list[int]] = [[] for _ in range(outputs.units)]
    units = [unit for task in range(outputs.tasks) for unit in outputs.units_of(task)]
    for place, unit in enumerate(units[:classes]):
        rows[unit].append(place)
    most = max(map(len, rows))
    return torch.tensor([row + [classes] * (most - len(row)) for row in rows], device=device)
