"""The floor of a step: its matrix products, or the memory that it must read and write, whichever takes longer."""

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
    """The device's highest measured rates: of a large product, and of a large copy."""

    products: float  # floating-point operations per millisecond
    memory: float  # bytes per millisecond, read and written


@dataclass(frozen=True)
class Floor:
    """The least milliseconds that a step can take."""

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

    The memory moved is Adam's, the method's memory (read once), and path integrals (written as well).
    """
    training = Training(1, stack.setting.batch, stack.setting.network)
    sampler, step = Sampler(stack, training), TrainingStep(stack)
    sampler.prepare(0)
    given = sampler.at(0)
    step.take(*given)  # determines the plan of the step, which is not counted
    with FlopCounterMode(display=False) as counter:
        step.take(*given)
    assert step.plan is not None
    remembered = [leaf for leaf in tree_leaves(stack.memory) if leaf.is_floating_point()]
    paths = [stack.memory[stack.template[place].name][entry] for place, entry in step.plan.paths.items()]
    moved = ADAM * stack.weights + 4 * sum(leaf.numel() for leaf in (*remembered, *tree_leaves(paths)))
    return Floor(counter.get_total_flops() / rates.products, moved / rates.memory)
