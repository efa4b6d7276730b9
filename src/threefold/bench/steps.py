"""How long a training step takes, compared with the same networks one by one and the bare matrix products.

All are measured in one process, in turns, on the same shapes, batches and data; medians are reported.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from threefold.bench.floor import Floor, Rates, floor_of, rates
from threefold.bench.timing import Row, medians
from threefold.data import Dataset
from threefold.engine import Adam, Training
from threefold.engine.device_data import DeviceData
from threefold.engine.sampling import Sampler
from threefold.engine.schedule import CONSTANT
from threefold.engine.stack import ReplicaStack
from threefold.engine.step_runner import runner_for
from threefold.methods import METHODS, Method, Setting, resolve
from threefold.networks import AnyNetwork, MLPNetwork, find_network, initial_params
from threefold.randomness import generator
from threefold.scenarios import SCENARIOS, Outputs
from threefold.streams import Permuted, Split, Stream

MANY = 1000  # steps drawn for a measurement


@dataclass(frozen=True)
class Timing:
    """Milliseconds per training step of all replicas."""

    stream: str
    replicas: int
    cohort: float
    alone: float
    products: float

    def row(self) -> Row:
        return {
            **{"stream": self.stream, "replicas": self.replicas, "cohort": self.cohort, "one by one": self.alone},
            **{"bare products": self.products, "÷ one by one": self.cohort / self.alone},
            "÷ products": self.cohort / self.products,
        }


@dataclass(frozen=True)
class Cost:
    """Milliseconds per training step of all replicas with a method, compared with None's and its floor."""

    method: str
    scenario: str
    step: float
    none: float
    floor: Floor

    def row(self) -> Row:
        return {
            **{"method": self.method, "scenario": self.scenario, "ms per step": self.step},
            **{"÷ none": self.step / self.none, "products": self.floor.products, "memory": self.floor.memory},
            "÷ floor": self.step / self.floor.step,
        }


def bench(device: str, replicas: Sequence[int] = (1, 4, 20), rounds: int = 9) -> Iterator[Timing]:
    """Split and permuted MLPs in Class-IL, trained without any method."""
    data = stand_in(60_000)
    for kind in (Split, Permuted):
        for number in replicas:
            yield _compare(kind(data), number, torch.device(device), rounds)


def bench_methods(device: str, kind: type[Stream] = Split, replicas: int = 20, rounds: int = 9) -> Iterator[Cost]:
    """A step on the second task, with every method: in Class-IL, or where else it can be used."""
    where = torch.device(device)
    stream = kind(stand_in(4_000))  # a step's time does not depend on the amount of data
    with torch.no_grad():
        best = rates(where)
        none = {name: second_task(stream, Method(), name, replicas, where, best)[0] for name in ("class", "task")}
        for entry in METHODS.values():
            method = Method(entry.part(**SMALL.get(entry.name, {}))) if entry.part else Method()
            scenario = next(name for name in none if not method.refuse(_setting(stream, name)))
            method = resolve(method, stream.name, scenario)
            step, least = second_task(stream, method, scenario, replicas, where, best)
            times = medians({"step": step, "none": none[scenario]}, rounds, where)
            yield Cost(entry.name, SCENARIOS[scenario].title, times["step"], times["none"], least)


@dataclass(frozen=True)
class NetworkTiming:
    """Milliseconds per training step of all replicas of a network."""

    network: str
    batch: int
    replicas: int
    cohort: float
    alone: float

    def row(self) -> Row:
        return {
            **{"network": self.network, "batch": self.batch, "replicas": self.replicas, "cohort": self.cohort},
            **{"one by one": self.alone, "÷ one by one": self.cohort / self.alone},
        }


IMAGE_NETWORKS = (("cnn:channels=16-32-64-128-256", 256), ("resnet18:width=20", 32))  # and their batches
SMALL_NETWORKS = (
    ("cnn:channels=8-16", 32),
    ("cnn:channels=16-32-64,norm=group", 32),
    ("cnn:channels=16-32-64,norm=batch", 32),
    ("resnet18:width=4", 32),
)  # for a CPU


def bench_networks(
    device: str,
    rounds: int = 9,
    networks: Sequence[tuple[str, int]] | None = None,
    replicas: int | None = None,
) -> Iterator[NetworkTiming]:
    """Networks for images of CIFAR's shape in Class-IL, trained without any method; on a CPU fewer and smaller ones, by
    the time that it works for them: whatever else it does, it takes the same."""
    where = torch.device(device)
    on_gpu = where.type == "cuda"
    networks, number = networks or (IMAGE_NETWORKS if on_gpu else SMALL_NETWORKS), replicas or (20 if on_gpu else 4)
    clock = time.perf_counter if on_gpu else time.process_time
    stream = Split(stand_in(4_000, (3, 32, 32)))
    for written, batch in networks:
        with torch.no_grad():
            stack = stack_of(stream, Method(), "class", number, where, find_network(written), batch)
            step, sampler = _steps(stack, ahead=0)
            times = medians({"cohort": step, "alone": _one_after_the_other(stack, sampler)}, rounds, where, clock)
        yield NetworkTiming(written, batch, number, times["cohort"], times["alone"])


SMALL = {name: {"budget": 100} for name in ("icarl", "er", "a-gem")}  # herding takes long, and is not in the step


def stand_in(samples: int, shape: tuple[int, ...] = (28, 28)) -> Dataset:
    """Noise of a shape, MNIST's if not given: the time of a step does not depend on what the images show."""
    total = samples + samples // 6
    images = torch.rand(total, *shape, generator=generator(0, "bench"))
    labels = torch.arange(total) % 10
    return Dataset.from_arrays(images[:samples], labels[:samples], images[samples:], labels[samples:], name="mnist")


def _setting(stream: Stream, scenario: str, network: AnyNetwork | None = None, batch: int | None = None) -> Setting:
    """How a stream is trained; what is not given is the paper's."""
    outputs = Outputs.of(SCENARIOS[scenario], stream)
    shape = tuple(stream.inputs(stream.data.test_x[:1]).shape[1:])
    network = network or MLPNetwork(width=stream.defaults.hidden)
    return Setting(outputs, shape, batch or stream.defaults.batch, network)


def stack_of(
    stream: Stream,
    method: Method,
    scenario: str,
    replicas: int,
    device: torch.device,
    network: AnyNetwork | None = None,
    batch: int | None = None,
) -> ReplicaStack:
    """Networks about to learn their first task; what is not given is the paper's."""
    setting, seeds = _setting(stream, scenario, network, batch), range(1, replicas + 1)
    data = DeviceData(stream, setting.outputs, seeds, setting.batch, device)
    optimizer = Adam(lr=stream.defaults.lr)
    stacked = partial(optimizer.stacked, each=[optimizer] * replicas, schedule=CONSTANT)
    return ReplicaStack([method] * replicas, seeds, setting, data, stacked)


def second_task(
    stream: Stream, method: Method, scenario: str, replicas: int, device: torch.device, best: Rates
) -> tuple[Callable[[], None], Floor]:
    stack = stack_of(stream, method, scenario, replicas, device)
    stack.consolidate()
    stack.begin_task(1)
    least = floor_of(stack, best)
    return _steps(stack, stream.defaults.iters * stream.tasks)[0], least


def _steps(stack: ReplicaStack, ahead: int) -> tuple[Callable[[], None], Sampler]:
    """A function that takes one step after another, as in training with this many steps ahead."""
    runner, sampler, number = (
        runner_for(stack),
        Sampler(stack, Training(MANY, stack.setting.batch, stack.setting.network)),
        count(),
    )

    def step() -> None:
        place = next(number) % MANY
        if place == 0:
            runner.begin_task(sampler, ahead)
        runner.take(place)

    return step, sampler


def _compare(stream: Stream, replicas: int, device: torch.device, rounds: int) -> Timing:
    with torch.no_grad():
        stack = stack_of(stream, Method(), "class", replicas, device)
        step, sampler = _steps(stack, ahead=0)  # as it is on the first task: captured, not compiled
        alone, bare = _one_after_the_other(stack, sampler), products(stack)
        times = medians({"cohort": step, "alone": alone, "products": bare}, rounds, device)
    return Timing(stream.name, replicas, times["cohort"], times["alone"], times["products"])


def _one_after_the_other(stack: ReplicaStack, sampler: Sampler) -> Callable[[], None]:
    """The usual way: one module, one optimiser, one backward pass for each network, fused Adam included."""
    setting = stack.setting
    nets = [setting.network.build(setting).to(stack.device) for _ in stack.seeds]
    for net, seed in zip(nets, stack.seeds, strict=True):
        net.load_state_dict(initial_params(net, generator(seed, "weights")), strict=False)  # buffers stay
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3, fused=True) for net in nets]
    active = stack.now.active[0]

    def step() -> None:
        for replica, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
            indices = sampler.current.indices[replica, 0]
            x, y = stack.data.train_x[indices], torch.zeros_like(indices)
            pixels = stack.data.sequences[replica][0].pixels
            x = (x if pixels is None else x[:, pixels]).view(-1, *setting.shape)
            with torch.enable_grad():
                loss = cross_entropy(torch.where(active, net(x), -torch.inf), y)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return step


def products(stack: ReplicaStack) -> Callable[[], None]:
    """The matrix products of one step, forward and backward, and nothing else."""
    batch, replicas, device = stack.setting.batch, len(stack.seeds), stack.device
    classifier: nn.Module = stack.networks["classifier"]
    layers = [m for m in classifier.modules() if isinstance(m, nn.Linear)]

    def noise(rows: int, columns: int) -> Tensor:
        return torch.rand(replicas, rows, columns, device=device) - 0.5

    tensors = []
    for m in layers:
        inputs, units = m.in_features, m.out_features
        tensors.append((noise(batch, inputs), noise(units, inputs), noise(batch, units)))

    def step() -> None:
        for place, (x, weights, delta) in enumerate(tensors):
            torch.bmm(x, weights.mT)
            torch.bmm(delta.mT, x)
            if place:  # no gradient is needed for the images
                torch.bmm(delta, weights)

    return step
