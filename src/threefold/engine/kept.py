"""Trained networks to keep: the state of one run after a task, and the module that predicts as the run's own test."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils._pytree import tree_map

from threefold.engine.mapping import OneByOne, mapped
from threefold.engine.stack import SAMPLES, ReplicaStack, tested
from threefold.engine.train import precise
from threefold.errors import ThreefoldError
from threefold.methods import Method, Setting
from threefold.methods.learner import Learner, Now, Params
from threefold.methods.stored import stored_samples
from threefold.networks import put_values


def state_of(stack: ReplicaStack, replica: int) -> dict[str, Any]:
    """One network of a stack with its method's memory: tensors of its own on the CPU, and lists of numbers."""

    def own(leaf: Tensor) -> Tensor:
        return leaf[replica].detach().to("cpu", copy=True)

    memory = tree_map(own, stack.memory)
    return {
        "params": tree_map(own, stack.params),
        "buffers": tree_map(own, stack.buffers),
        "memory": memory,
        "now": {name: value.to("cpu", copy=True) for name, value in stack.now._asdict().items()},
        "classes": [list(map(int, task.classes)) for task in stack.data.sequences[replica]],
        "stored": _stored(stack, replica, memory),
    }


def _stored(stack: ReplicaStack, replica: int, memory: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
    """For each part that stores samples their tasks, and their places among the training samples of these.

    Not the indices in memory: those of transformed samples depend on the other replicas of the stack.
    """
    found, tasks = {}, stack.data.sequences[replica]
    for name, own in memory.items():
        if held := stored_samples(own, stack.setting.outputs):
            indices, task = held
            place = torch.empty_like(indices)
            for number in set(task.tolist()):
                train, mine = tasks[number].train, task == number
                places = torch.empty(len(stack.data.train_y), dtype=torch.long)
                places[train] = torch.arange(len(train))
                place[mine] = places[indices[mine]]
            found[name] = {"task": task.clone(), "place": place}
    return found


class KeptNetwork(nn.Module):
    """A network as it was after a task, in eval mode, with its method's memory and the scenario's masks.

    It predicts as the run's own test did: with the units that competed, and by the method's own rule where it has one
    (iCaRL's nearest mean, a generative classifier, gates). Tasks are counted from 1, as in `after`.
    """

    classifier: nn.Module

    def __init__(self, setting: Setting, method: Method, state: Mapping[str, Any], precision: str = "fp32") -> None:
        super().__init__()
        self.setting, self.method, self.precision = setting, method, precision
        self.after: int = state["after"]
        self.accuracies: list[float] = state["accuracies"]
        """Its accuracy on each task's test set in per cent, in the test of its own training."""
        self.classes: list[list[int]] = state["classes"]
        """The classes of each task, in the data's numbers."""
        self.classifier = put_values(setting.classifier(), state["params"]["classifier"] | state["buffers"])
        for part in method.parts:  # as in training: a part may build there what cannot be built inside vmap
            part.start(setting, 0, state["params"]["classifier"])
        with torch.device("meta"):
            self._beside = {name: net for part in method.parts for name, net in part.networks(setting).items()}
        beside = {name: params for name, params in state["params"].items() if name != "classifier"}
        self._held: dict[str, Any] = {"params": beside, "memory": state["memory"], "now": state["now"]}
        self._labels = _labels(setting, self.classes)
        self.eval()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "KeptNetwork":
        """Memory moves with the weights: to another device, or to another type."""
        self._held = tree_map(fn, self._held)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        outputs = self.setting.outputs
        return f"{self.method.name}, {outputs.scenario.title}, after {self.after} of {outputs.tasks} tasks"

    def predict(self, x: Tensor, task: int | None = None) -> Tensor:
        """The predicted class of each sample, in the data's numbers.

        Where a unit stands for a class of every task (Domain-IL), it is the place of the class in its task, from 0.
        `task`, counted from 1: must be given where the scenario gives it at test time. Elsewhere it has no effect, but
        that classes of a task still to come compete too, as in the run's test of that task.
        """
        units = self.units(x, task)
        labels: Tensor = self._labels[0 if task is None else task - 1].to(units.device)
        return labels[units]

    def units(self, x: Tensor, task: int | None = None) -> Tensor:
        """The winning output unit of each sample."""
        with torch.no_grad():
            return self.forward(x, task).argmax(-1)

    def forward(self, x: Tensor, task: int | None = None) -> Tensor:
        """A score for each output unit, samples × units: −∞ for those that do not compete."""
        device, number = next(self.classifier.parameters()).device, self._task(task)
        self._check(x)
        seen = self.after if self.setting.tasks_end else self.setting.outputs.tasks
        active = self.setting.outputs.at_test(number, seen).to(device)
        at = torch.tensor(number, device=device)
        # on a CPU a stack of one rounds in another way than the run's stack did: see `Stacks._rows`
        one_by_one = not self.setting.structure.mapped
        rows = 1 if one_by_one else 2
        apply = OneByOne(1, device) if one_by_one else mapped
        held = tree_map(lambda leaf: torch.stack([leaf] * rows), self._tensors())
        now = Now(**self._held["now"])

        def scores(params: Any, buffers: Params, memory: Any, numbers: Any, x: Tensor) -> Tensor:
            parts = [part.model_copy(update=n) for part, n in zip(self.method.parts, numbers, strict=True)]
            networks = {"classifier": self.classifier, **self._beside}
            return tested(Learner(networks, self.setting, parts, params, memory, now, buffers), x, at, active)

        found, x = [], x.to(device, next(self.classifier.parameters()).dtype)
        with precise(self.precision):
            for piece in torch.split(x, SAMPLES) if len(x) else ():
                whole = pad(piece, (0, 0) * (x.dim() - 1) + (0, SAMPLES - len(piece)))
                given = torch.stack([whole] * rows)
                found.append(apply(scores, (0,) * 5, *held, given)[0, : len(piece)])
        return torch.cat(found) if found else x.new_empty(0, self.setting.units, device=device)

    def _tensors(self) -> tuple[Any, ...]:
        """Parameters, buffers, memory, and the hyperparameters that may differ in a stack."""
        net = self.classifier
        device = next(net.parameters()).device
        numbers = [
            {name: torch.tensor(getattr(part, name), device=device) for name in part.per_replica()}
            for part in self.method.parts
        ]
        params = {"classifier": dict(net.named_parameters()), **self._held["params"]}
        return params, dict(net.named_buffers()), self._held["memory"], numbers

    def _task(self, task: int | None) -> int:
        """The task to test, counted from 0; the last one learned if it does not matter."""
        outputs = self.setting.outputs
        if task is None and not outputs.scenario.task_known:
            return self.after - 1
        if not isinstance(task, int) or not 1 <= task <= outputs.tasks:
            raise ThreefoldError(f"task must be a number from 1 to {outputs.tasks}, got {task}.")
        return task - 1

    def _check(self, x: Tensor) -> None:
        wanted = self.setting.shape
        if tuple(x.shape[1:]) != wanted or not x.is_floating_point():
            must = " × ".join(map(str, ("samples", *wanted)))
            got = " × ".join(map(str, x.shape))
            raise ThreefoldError(f"x must be floating-point numbers of shape {must}, got {x.dtype} of shape {got}.")


def _labels(setting: Setting, classes: Sequence[Sequence[int]]) -> Tensor:
    """For each task (where it is given) and each unit the class that it stands for, in the data's numbers."""
    outputs = setting.outputs
    scenario = outputs.scenario
    labels = torch.arange(outputs.units).repeat(outputs.tasks, 1)
    if not (scenario.task_known or scenario.own_units):
        return labels
    for task, own in enumerate(classes):
        rows = slice(task, task + 1) if scenario.task_known else slice(None)
        labels[rows, outputs.units_of(task)] = torch.tensor(own)
    return labels
