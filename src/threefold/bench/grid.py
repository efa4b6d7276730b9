"""The time of a grid compared with that of as many seeds: whole short trainings, including the work between tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from threefold.bench.steps import stand_in
from threefold.bench.timing import Row, trainings
from threefold.engine import Adam, Replicas, Training, train
from threefold.methods import EWC, Method, resolve
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS
from threefold.streams import Split, Stream

STRENGTHS = tuple(10.0**power for power in range(14))  # those of Figure D.1
ITERS = 40
SAMPLES = 12_000  # Fisher information is taken over all of them


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

    def trained(name: str) -> dict[str, float]:
        methods, seeds = cohorts[name]
        (measured,) = train(stream, [Replicas(scenario, methods, seeds, [Adam(lr=defaults.lr)] * many)], training)
        return measured.seconds

    middle = trainings({name: partial(trained, name) for name in cohorts}, rounds, device)
    return [GridTime(what, middle["grid"][what], middle["seeds"][what]) for what in middle["grid"]]
