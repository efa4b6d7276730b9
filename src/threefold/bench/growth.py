"""How a step's time grows with the cohort, the network and the number of tasks, and the time of the host's work."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from threefold.bench.floor import rates
from threefold.bench.steps import second_task, stack_of, stand_in
from threefold.bench.timing import Row, medians, wait
from threefold.engine import Training
from threefold.engine.sampling import Sampler
from threefold.methods import ER, EWC, Method
from threefold.streams import Permuted, Split, Stream

REPLICAS = (1, 2, 5, 10, 20, 50, 100)
MANY = (200, 500, 1000)  # on a GPU as well
HIDDEN = (100, 200, 400, 1000, 2000)
TASKS = (5, 10, 20, 50)


@dataclass(frozen=True)
class Grown:
    """Milliseconds per training step of all replicas, for one size of one quantity."""

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
    replicas: Sequence[int] | None = None,
    hidden: Sequence[int] = HIDDEN,
    tasks: Sequence[int] = TASKS,
) -> Iterator[Grown]:
    """Split MLPs by replicas and by hidden units, permuted ones by tasks, in Class-IL; 20 replicas where not said."""
    where = torch.device(device)
    replicas = replicas or (REPLICAS + MANY if where.type == "cuda" else REPLICAS)
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


@dataclass(frozen=True)
class HostWork:
    """Milliseconds of the host's work for each network, for this many networks at once."""

    replicas: int
    begin: float
    draw: float

    def row(self) -> Row:
        return {"replicas": self.replicas, "begin": self.begin, "draw": self.draw}


STEPS = 200  # of a task whose samples are drawn


def host_work(device: str, rounds: int = 3, replicas: Sequence[int] | None = None) -> Iterator[HostWork]:
    """Split MLPs in Class-IL with ER: to begin (initial weights, tasks), and to draw the second task's batches and
    stored samples."""
    where = torch.device(device)
    replicas = replicas or ((20, 100, 1000) if where.type == "cuda" else (20, 100))
    stream, method = Split(stand_in(4_000)), Method(ER(budget=100, selection="random"))

    with torch.no_grad():
        for many in replicas:
            begin, draw = [], []
            for _ in range(1 + rounds):
                start = _now(where)
                stack = stack_of(stream, method, "class", many, where)
                begin.append(_now(where) - start)
                stack.consolidate()
                stack.begin_task(1)
                start = _now(where)
                Sampler(stack, Training(STEPS, stack.setting.batch, stack.setting.network))
                draw.append(_now(where) - start)
                del stack
            each = (1e3 * statistics.median(times[1:]) / many for times in (begin, draw))
            yield HostWork(many, *each)


def _now(device: torch.device) -> float:
    """The time in seconds, after the device has finished all work."""
    wait(device)
    return time.perf_counter()


def _wider(stream: Stream, hidden: int) -> Stream:
    stream.defaults = replace(stream.defaults, hidden=hidden)  # type: ignore[misc]
    return stream
