"""How a step's time grows with the cohort, the network and the number of tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from threefold.bench.floor import rates
from threefold.bench.steps import second_task, stand_in
from threefold.bench.timing import Row, medians
from threefold.methods import EWC, Method
from threefold.streams import Permuted, Split, Stream

REPLICAS = (1, 2, 5, 10, 20, 50, 100)
HIDDEN = (100, 200, 400, 1000, 2000)
TASKS = (5, 10, 20, 50)


@dataclass(frozen=True)
class Grown:
    """Milliseconds per training step of all replicas, where one thing is so large."""

    what: str
    size: int
    method: str
    step: float
    floor: float

    def row(self) -> Row:
        about: Row = {"by": self.what, "method": self.method, "size": self.size}
        return about | {"step": self.step, "floor": self.floor, "÷ floor": self.step / self.floor}


def grow(
    device: str,
    rounds: int = 5,
    replicas: Sequence[int] = REPLICAS,
    hidden: Sequence[int] = HIDDEN,
    tasks: Sequence[int] = TASKS,
) -> Iterator[Grown]:
    """Split MLPs by replicas and by hidden units, permuted ones by tasks, in Class-IL; 20 replicas where not said."""
    where = torch.device(device)
    data = stand_in(4_000)
    none, ewc = Method(), Method(EWC(strength=1.0))
    cases: list[tuple[str, int, Method, Stream, int]] = []
    cases += [("replicas", size, none, Split(data), size) for size in replicas]
    cases += [("hidden units", size, none, _wider(Split(data), size), 20) for size in hidden]
    cases += [("tasks", size, method, Permuted(data, size), 20) for method in (none, ewc) for size in tasks]
    with torch.no_grad():
        best = rates(where)
        for what, size, method, stream, many in cases:
            step, least = second_task(stream, method, "class", many, where, best)
            yield Grown(what, size, method.name, medians({"step": step}, rounds, where)["step"], least.step)


def _wider(stream: Stream, hidden: int) -> Stream:
    stream.defaults = replace(stream.defaults, hidden=hidden)  # type: ignore[misc]
    return stream
