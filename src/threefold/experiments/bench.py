"""How long a training step takes, beside the same networks trained one after the other and the bare matrix products.

All are measured in one process, in turns, on the same shapes, batches and data; what is reported are medians.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from threefold.data import Dataset
from threefold.engine.draws import Draws
from threefold.engine.lockstep import Lockstep
from threefold.engine.material import Material
from threefold.methods import Method
from threefold.methods.part import Setting
from threefold.nets import MLP, initial_params
from threefold.protocols import Permuted, Protocol, Split
from threefold.randomness import generator
from threefold.scenarios import SCENARIOS, Outputs


@dataclass(frozen=True)
class Timing:
    """Milliseconds per training step of all replicas."""

    protocol: str
    replicas: int
    cohort: float
    alone: float
    products: float


def bench(device: str, replicas: Sequence[int] = (1, 4, 20), rounds: int = 9) -> Iterator[Timing]:
    """Split and permuted MLPs in Class-IL, trained without any method."""
    data = stand_in()
    for kind in (Split, Permuted):
        protocol = kind(data)
        for number in replicas:
            yield _compare(protocol, number, torch.device(device), rounds)


def stand_in() -> Dataset:
    """Noise of MNIST's shape: the time of a step does not depend on what the images show."""
    source = generator(0, "bench")
    images = torch.rand(70_000, 28, 28, generator=source)
    labels = torch.arange(70_000) % 10
    return Dataset.from_arrays(images[:60_000], labels[:60_000], images[60_000:], labels[60_000:], name="mnist")


def stack_of(protocol: Protocol, method: Method, scenario: str, replicas: int, device: torch.device) -> Lockstep:
    defaults = protocol.defaults
    seeds = range(1, replicas + 1)
    outputs = Outputs(SCENARIOS[scenario], protocol.tasks, protocol.classes_per_task)
    material = Material(protocol, outputs, seeds, defaults.batch, device)
    setting = Setting(outputs, material.train_x.shape[1], defaults.hidden, defaults.batch)
    return Lockstep([method] * replicas, seeds, setting, material, [defaults.lr] * replicas, device)


def medians(functions: dict[str, Callable[[], object]], rounds: int, device: torch.device) -> dict[str, float]:
    """Median milliseconds of each, measured in turns after warming up."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for round_ in range(-2, rounds):
        for name, function in functions.items():
            wait(device)
            start = time.perf_counter()
            function()
            wait(device)
            if round_ >= 0:
                taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(times) for name, times in taken.items()}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _compare(protocol: Protocol, replicas: int, device: torch.device, rounds: int) -> Timing:
    with torch.no_grad():
        stack = stack_of(protocol, Method(), "class", replicas, device)
        draws = Draws(stack, rounds + 2)
        steps = iter(range(rounds + 2))
        times = medians(
            {
                "cohort": lambda: stack.step(*draws.at(next(steps))),
                "alone": _one_after_the_other(stack, draws),
                "products": products(stack),
            },
            rounds,
            device,
        )
    return Timing(protocol.name, replicas, times["cohort"], times["alone"], times["products"])


def _one_after_the_other(stack: Lockstep, draws: Draws) -> Callable[[], None]:
    """The usual way: one module, one optimiser, one backward pass for each network, fused Adam included."""
    setting = stack.setting
    nets = [MLP(setting.inputs, setting.hidden, setting.outputs.units).to(stack.device) for _ in stack.seeds]
    for net, seed in zip(nets, stack.seeds, strict=True):
        net.load_state_dict(initial_params(net, generator(seed, "weights")))
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3, fused=True) for net in nets]
    active = stack.now.active[0]

    def step() -> None:
        for replica, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
            indices = draws.current.indices[replica, 0]
            x, y = stack.material.train_x[indices], torch.zeros_like(indices)
            pixels = stack.material.sequences[replica][0].pixels
            x = x if pixels is None else x[:, pixels]
            with torch.enable_grad():
                loss = cross_entropy(torch.where(active, net(x), -torch.inf), y)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return step


def products(stack: Lockstep) -> Callable[[], None]:
    """The matrix products of one step, forward and backward, and nothing else."""
    batch, replicas, device = stack.setting.batch, len(stack.seeds), stack.device
    classifier: nn.Module = stack.nets["classifier"]
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
