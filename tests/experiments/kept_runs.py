"""Runs that keep their networks, on small data, and how a test looks at them."""

from pathlib import Path
from typing import Any

import torch
from small_cells import small_split
from torch import Tensor, nn

import threefold
from threefold import Dataset, Part, Task, hyper
from threefold.experiments import Result, executor

ASKED: dict[str, Any] = {"scenario": "class", "seeds": 2, "iters": 4, "hidden": 8, "batch": 16, "device": "cpu"}


def run(method: Any = "none", stream: Any = None, **given: Any) -> Result:
    asked = {"keep": True, "store": "a.db", **ASKED, **given}
    if "network" in given:
        del asked["hidden"]
    return threefold.run(stream or small_split(), method=method, **asked)


def files(store: str = "a.db") -> list[str]:
    """The files beside a store: their folder's place among all, and their names."""
    found = sorted(Path(f"{store}.networks").glob("*/*"))
    folders = sorted({path.parent for path in found})
    return [f"{folders.index(path.parent)}/{path.name}" for path in found]


def accuracies(result: Result) -> list[list[list[float]]]:
    """The matrix as the kept networks have it: each run's accuracy after each task on each task."""
    return [
        [
            [
                accuracy(result.network(seed, after), result.test_examples(seed, task), task)
                for task in range(1, result.cell.stream.tasks + 1)
            ]
            for after in range(1, result.cell.stream.tasks + 1)
        ]
        for seed in result.seeds
    ]


def accuracy(net: Any, shown: Any, task: int) -> float:
    places = torch.tensor([net.classes[task - 1].index(label) for label in shown.labels.tolist()])
    units = torch.tensor(net.setting.outputs.units_of(task - 1))[places]
    return 100 * int((net.units(shown.images, task) == units).sum()) / len(units)


def turned(data: Dataset, seed: int) -> list[Task]:
    """Two tasks of the same classes, the second with inputs of the seed's own."""
    half = torch.arange(len(data.train_y)) % 2 == 0
    train = [torch.nonzero(half == first).flatten() for first in (True, False)]
    test, classes = torch.arange(len(data.test_y)), tuple(range(data.classes))

    def darker(x: Tensor) -> Tensor:
        return x / (1 + seed)

    return [Task(classes, train[0], test), Task(classes, train[1], test, transform=darker)]


class Trained(Exception):
    pass


def untrained(monkeypatch: Any) -> None:
    """From now on nothing may be trained."""

    def refuse(*_: object, **__: object) -> None:
        raise Trained

    monkeypatch.setattr(executor, "train", refuse)


# a user's code


class Own(Part):
    """Classifies by the nearest class mean of what it saw last, and keeps float tensors to look at later."""

    name = "own"
    share: float = hyper("weight of the network's own scores", 0.5)

    def consolidate(self, stack: Any, memory: Any, task: int) -> Any:
        sums = torch.zeros(len(stack.seeds), stack.setting.units, stack.setting.inputs)
        for batch, weight in stack.training_data():
            one = torch.nn.functional.one_hot(batch.y.clamp(min=0), stack.setting.units) * weight.unsqueeze(-1)
            sums += one.mT.to(sums.dtype) @ batch.x.flatten(2)
        return {"means": memory.get("means", 0) + sums}

    def scores(self, learner: Any, x: Tensor, task: Tensor) -> Tensor | None:
        memory = learner.memory[self.name]
        if "means" not in memory:
            return None
        return self.share * learner.logits(x, task) - torch.cdist(x.flatten(1), memory["means"])

    def keep(self, stack: Any, memory: Any) -> dict[str, Tensor]:
        return {"means": memory["means"].clone()}


class Net(nn.Module):
    """Batch norm and dropout."""

    def __init__(self, setting: Any) -> None:
        super().__init__()
        self.first = nn.Linear(setting.inputs, setting.inputs)
        self.norm, self.drop = nn.BatchNorm1d(setting.inputs), nn.Dropout(0.3)
        self.last = nn.Linear(setting.inputs, setting.units)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(torch.relu(self.norm(self.first(x.flatten(1)))))
        found: Tensor = self.last(hidden)
        return found
