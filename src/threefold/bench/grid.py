"""How long a grid takes beside as many seeds: whole short trainings, with all that happens between tasks."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from threefold.bench.steps import stand_in
from threefold.bench.timing import Row
from threefold.engine import Adam, Replicas, Training, train
from threefold.methods import EWC, Method, resolve
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS
from threefold.streams import Split, Stream

STRENGTHS = tuple(10.0**power for power in range(14))  # those of Figure D.1
ITERS = 40
SAMPLES = 12_000  # Fisher information is taken over all of them
WARM_UP = 1


@dataclass(frozen=True)
class GridTime:
    """Seconds of a grid with one seed, and of as many seeds of the same method with one value."""

    what: str  # train, consolidate, evaluate, or all of it
    grid: float
    seeds: float

    @property
    def ratio(self) -> float:
        return self.grid / self.seeds

    def row(self) -> Row:
        return {
            **{"": self.what, "14 strengths, one seed": self.grid, "14 seeds, one strength": self.seeds},
            "÷": self.ratio,
        }


def bench_grid(
    device: str,
    precision: str = "fp32",
    kind: type[Stream] = Split,
    rounds: int = 3,
    iters: int = ITERS,
    strengths: Sequence[float] = STRENGTHS,
) -> list[GridTime]:
    """EWC over so many strengths, and with the paper's strength over as many seeds, in Class-IL, trained in turns."""
    stream = kind(stand_in(SAMPLES))
    scenario, defaults, many = SCENARIOS["class"], stream.defaults, len(strengths)
    training = Training(iters, defaults.batch, MLPNetwork(width=defaults.hidden), precision, device)
    of_paper = resolve(Method(EWC()), stream.name, scenario.name)
    cohorts = {
        "grid": ([Method(EWC(strength=strength)) for strength in strengths], [1] * many),
        "seeds": ([of_paper] * many, list(range(1, many + 1))),
    }
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in cohorts}
    for turn in range(-WARM_UP, rounds):
        for name in list(cohorts)[:: 1 if turn % 2 else -1]:  # neither is always the first
            methods, seeds = cohorts[name]
            if device == "cuda":
                torch.cuda.empty_cache()
            (measured,) = train(stream, [Replicas(scenario, methods, seeds, [Adam(lr=defaults.lr)] * many)], training)
            seconds = measured.seconds
            if turn >= 0:
                taken[name].append(seconds | {"all": sum(seconds.values())})
    middle = {
        name: {what: statistics.median(each[what] for each in turns) for what in turns[0]}
        for name, turns in taken.items()
    }
    return [GridTime(what, middle["grid"][what], middle["seeds"][what]) for what in middle["grid"]]
