"""The cost of testing during training: whole trainings with tests after every 100 steps, and without."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from threefold.bench.steps import stand_in
from threefold.bench.timing import Row, trainings
from threefold.engine import Adam, Evaluation, Replicas, Training, train
from threefold.methods import parse, resolve
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS
from threefold.streams import Split, Stream

METHODS = ("none", "ewc", "lwf")
EVERY = 100  # steps
SEEDS = 20


@dataclass(frozen=True)
class EvaluationTime:
    """Seconds of a training without tests in between, and with them."""

    method: str
    without: float
    tested: float

    def row(self) -> Row:
        every = f"tested every {EVERY} steps"
        return {"method": self.method, "without": self.without, every: self.tested, "÷": self.tested / self.without}


def bench_evaluation(
    device: str,
    precision: str = "fp32",
    kind: type[Stream] = Split,
    rounds: int = 3,
    iters: int | None = None,
    methods: Sequence[str] = METHODS,
) -> Iterator[EvaluationTime]:
    """20 networks in Class-IL, as long as in the paper on a GPU and two points of the curve a task elsewhere."""
    stream = kind(stand_in(60_000))
    defaults = stream.defaults
    iters = iters or (defaults.iters if device == "cuda" else 2 * EVERY)

    def trained(name: str, evaluation: Evaluation | None) -> dict[str, float]:
        method = resolve(parse(name), stream.name, "class")
        network = MLPNetwork(width=defaults.hidden)
        training = Training(iters, defaults.batch, network, precision, device, evaluation=evaluation)
        seeds, optimizers = range(1, SEEDS + 1), [Adam(lr=defaults.lr)] * SEEDS
        (measured,) = train(stream, [Replicas(SCENARIOS["class"], [method] * SEEDS, seeds, optimizers)], training)
        return measured.seconds

    for name in methods:
        ways = {"without": partial(trained, name, None), "tested": partial(trained, name, Evaluation(EVERY))}
        found = trainings(ways, rounds, device)
        yield EvaluationTime(name, found["without"]["all"], found["tested"]["all"])
