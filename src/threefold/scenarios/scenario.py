"""A scenario is a value, not a branch.

Two booleans make the three scenarios, and everything a method may ask follows from them:

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
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from threefold.errors import ThreefoldError, unknown

TaskIdIn = Literal["output", "hidden", "both"]


@dataclass(frozen=True)
class Scenario:
    """What is asked of a network at test time (Table 1)."""

    name: str
    title: str
    question: str
    task_known: bool
    own_units: bool

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
    """The scenarios of these names, in the paper's order; "all" stands for all of them."""
    for name in names:
        if name not in {*SCENARIOS, "all"}:
            raise unknown("scenario", name, [*SCENARIOS, "all"])
    return [scenario for name, scenario in SCENARIOS.items() if {name, "all"} & set(names)]


@dataclass(frozen=True)
class Outputs:
    """The output layer of a scenario over `tasks` tasks of `classes_per_task` classes each (tasks count from 0)."""

    scenario: Scenario
    tasks: int
    classes_per_task: int

    def __post_init__(self) -> None:
        if self.classes_per_task < 2 and not self.all_compete:
            raise ThreefoldError(
                f"tasks is {self.tasks}, which leaves {self.classes_per_task} class a task: nothing to tell apart"
                f" in {self.scenario.title}; use at least 2 classes a task."
            )
        if self.units < 2:
            raise ThreefoldError(
                f"{self.scenario.title} over {self.tasks} task(s) of {self.classes_per_task} class(es) leaves"
                f" {self.units} output unit to choose from; use data with at least 2 classes."
            )

    @property
    def all_compete(self) -> bool:
        """Must the task be inferred, because the units of all tasks so far compete?"""
        return self.scenario.own_units and not self.scenario.task_known

    @property
    def units(self) -> int:
        return self.classes_per_task * (self.tasks if self.scenario.own_units else 1)

    def unit(self, task: Tensor | int, label: Tensor) -> Tensor:
        """The output unit that is the target of within-task label `label` of `task` (Tables 2 and 3)."""
        return label + task * self.classes_per_task if self.scenario.own_units else label

    def active(self, task: int, seen: int) -> Tensor:
        """Which units are active for data of `task` when `seen` tasks have been seen (section A.1.1).

        For current data `task` is `seen - 1`, for replayed data the task that is replayed. Soft and hard targets of
        replayed data come from the model as it was one task ago: ask with `seen - 1` (section A.1.2).
        """
        units = torch.arange(self.units)
        if not self.scenario.own_units:
            return torch.ones(self.units, dtype=torch.bool)
        if self.scenario.task_known:
            return units // self.classes_per_task == task
        return units < seen * self.classes_per_task

    def table(self, seen: int) -> Tensor:
        """`active` for every task, as rows: a sample's row is found by the task it belongs to."""
        return torch.stack([self.active(task, seen) for task in range(self.tasks)])

    def by_unit(self, scores: Tensor) -> Tensor:
        """Scores of classes (labels of the tasks so far, task by task) as scores of units: a unit's best class counts.

        Units of classes still to come score −inf.
        """
        if not self.scenario.own_units:
            return scores.reshape(*scores.shape[:-1], -1, self.classes_per_task).amax(-2)
        return pad(scores, (0, self.units - scores.shape[-1]), value=-torch.inf)

    def at_test(self, task: int, seen: int) -> Tensor:
        """Which units compete when `task` is tested after `seen` tasks.

        A task that is still to come is tested as if it were the newest: with the units that will be active then.
        """
        return self.active(task, max(seen, task + 1))
