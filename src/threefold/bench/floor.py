"""The floor of a step: no step is faster than its matrix products, nor than moving what it must read and write."""

from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from threefold.bench.timing import medians
from threefold.engine import Training
from threefold.engine.sampling import Sampler
from threefold.engine.stack import ReplicaStack
from threefold.engine.step import TrainingStep

ADAM = 28  # bytes for each weight: itself, mean and square read and written, the gradient read; four bytes each


@dataclass(frozen=True)
class Rates:
    """What the device does best, measured: a large product, a large copy."""

    products: float  # floating-point operations per millisecond
    memory: float  # bytes per millisecond, read and written


@dataclass(frozen=True)
class Floor:
    """Milliseconds that a step takes at least."""

    products: float
    memory: float

    @property
    def step(self) -> float:
        return max(self.products, self.memory)


def rates(device: torch.device, rounds: int = 9) -> Rates:
    size, numbers = (8192, 1 << 28) if device.type == "cuda" else (2048, 1 << 25)
    left, right = torch.rand(size, size, device=device), torch.rand(size, size, device=device)
    source, target = torch.rand(numbers, device=device), torch.empty(numbers, device=device)
    product = torch.empty(size, size, device=device)

    def multiply() -> None:
        torch.mm(left, right, out=product)

    def copy() -> None:
        target.copy_(source)

    taken = medians({"product": multiply, "copy": copy}, rounds, device)
    return Rates(2 * size**3 / taken["product"], 8 * numbers / taken["copy"])


def floor_of(stack: ReplicaStack, rates: Rates) -> Floor:
    """Counted: the products of one step, and what it must move. Takes two steps.

    What must be moved is Adam's share, what the method remembers (read once), and path integrals (written as well).
    """
    training = Training(1, stack.setting.batch, stack.setting.network)
    sampler, step = Sampler(stack, training), TrainingStep(stack)
    sampler.prepare(0)
    given = sampler.at(0)
    step.take(*given)  # which finds out what the step does: not to be counted
    with FlopCounterMode(display=False) as counter:
        step.take(*given)
    assert step.plan is not None
    remembered = [leaf for leaf in tree_leaves(stack.memory) if leaf.is_floating_point()]
    paths = [stack.memory[stack.template[place].name][entry] for place, entry in step.plan.paths.items()]
    moved = ADAM * stack.weights + 4 * sum(leaf.numel() for leaf in (*remembered, *tree_leaves(paths)))
    return Floor(counter.get_total_flops() / rates.products, moved / rates.memory)
