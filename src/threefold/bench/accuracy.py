"""Checks that speed does not cost accuracy: the same cohorts trained in two ways, on real data, seed by seed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from threefold.bench.timing import Row
from threefold.data import load
from threefold.engine import Adam, Replicas, Training, train
from threefold.engine.stack import ReplicaStack
from threefold.engine.step_runner import Captured, Eager, StepRunner, runner_for
from threefold.methods import parse, resolve
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS
from threefold.streams import Split, Stream

METHODS = ("none", "ewc", "si", "lwf", "dgr-distill", "icarl", "er:use=both")
ITERS, TASKS = 200, 3


@dataclass(frozen=True)
class Compared:
    """Average accuracies after the last task of the same seeds, trained in two ways."""

    ways: str  # this / that
    method: str
    this: float
    that: float
    difference: float  # mean over seeds
    sem: float
    identical: bool  # in every accuracy after every task

    @classmethod
    def of(cls, ways: str, method: str, this: Tensor, that: Tensor) -> "Compared":
        ends = [matrix[:, -1].mean(-1) for matrix in (this, that)]
        apart = ends[0] - ends[1]
        sem = float(apart.std() / len(apart) ** 0.5) if len(apart) > 1 else float("nan")
        one, other = (float(end.mean()) for end in ends)
        return cls(ways, method, one, other, float(apart.mean()), sem, torch.equal(this, that))

    def row(self) -> Row:
        about: Row = {"this / that": self.ways, "method": self.method, "this": self.this, "that": self.that}
        return about | {
            "difference": f"{self.difference:+.2f} ± {self.sem:.2f}",
            "identical": "yes" if self.identical else "",
        }


def compare(
    device: str,
    kind: type[Stream] = Split,
    seeds: int = 20,
    iters: int = ITERS,
    methods: Sequence[str] = METHODS,
    hidden: int | None = None,
) -> Iterator[Compared]:
    """On a GPU captured steps, TF32 and compiled gradients, in Class-IL; anywhere, cells trained together or alone."""
    stream = kind(load("mnist"))
    stream.only = TASKS
    training = partial(Training, iters, stream.defaults.batch, MLPNetwork(width=hidden or stream.defaults.hidden))
    on_gpu = device == "cuda"

    def trained(
        names: Sequence[tuple[str, str]],
        precision: str,
        runner: Callable[[ReplicaStack, bool], StepRunner] = runner_for,
    ) -> list[Tensor]:
        asked = [
            Replicas(
                SCENARIOS[scenario],
                [resolve(parse(name), stream.name, scenario)] * seeds,
                range(1, seeds + 1),
                [Adam(lr=stream.defaults.lr)] * seeds,
            )
            for name, scenario in names
        ]
        given = training(precision, device)
        return [measured.matrix for measured in train(stream, asked, given, runner=runner)]

    for name in methods if on_gpu else ():
        alone = [(name, "class")]
        (eager,) = trained(alone, "fp32", lambda stack, _: Eager(stack))
        (captured,) = trained(alone, "fp32")
        (tf32,) = trained(alone, "tf32")
        (compiled,) = trained(alone, "tf32", lambda stack, _: Captured(stack, worth=0))
        yield Compared.of("captured / one by one", name, captured, eager)
        yield Compared.of("tf32 / fp32", name, tf32, captured)
        yield Compared.of("compiled / captured", name, compiled, tf32)
    precision = "tf32" if on_gpu else "fp32"
    cells = [(name, scenario) for name in ("dgr", "dgr-distill") for scenario in SCENARIOS]  # one generator
    for (name, scenario), together in zip(cells, trained(cells, precision), strict=True):
        (apart,) = trained([(name, scenario)], precision)
        yield Compared.of("together / alone", f"{name}, {SCENARIOS[scenario].title}", together, apart)
