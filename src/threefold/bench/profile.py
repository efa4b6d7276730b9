"""Where the time of a step goes, kernel by kernel, as PyTorch's profiler sees it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from threefold.bench.floor import rates
from threefold.bench.steps import second_task, stand_in
from threefold.bench.timing import Row, wait
from threefold.methods import parse, resolve
from threefold.streams import Split, Stream

METHODS = ("none", "ewc", "si", "lwf", "dgr")
PRODUCTS = re.compile("gemm|gemv|cutlass|::b?mm$|::(baddbmm|addmm)$")
OPTIMISER = re.compile("_advance|_correct|multi_tensor|fused_adam")
STEPS = 5


@dataclass(frozen=True)
class Spent:
    """Milliseconds of one step of all replicas."""

    method: str
    kernels: float  # how many
    products: float
    optimiser: float
    rest: float

    @property
    def whole(self) -> float:
        return self.products + self.optimiser + self.rest

    def row(self) -> Row:
        about: Row = {"method": self.method, "kernels": round(self.kernels), "all": self.whole}
        return about | {"products": self.products, "optimiser": self.optimiser, "rest": self.rest}


def spent(
    device: str, kind: type[Stream] = Split, replicas: int = 20, methods: Sequence[str] = METHODS
) -> Iterator[Spent]:
    """A step on the second task in Class-IL."""
    where = torch.device(device)
    on_gpu = where.type == "cuda"
    stream = kind(stand_in(4_000))
    with torch.no_grad():
        best = rates(where)
        for name in methods:
            method = resolve(parse(name), stream.name, "class")
            step, _ = second_task(stream, method, "class", replicas, where, best)
            for _ in range(2 * STEPS):
                step()
            wait(where)
            with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as found:
                for _ in range(STEPS):
                    step()
                wait(where)
            times = {"products": 0.0, "optimiser": 0.0, "rest": 0.0}
            kernels = 0
            for event in found.key_averages():
                taken = event.self_device_time_total if on_gpu else event.self_cpu_time_total
                products = "products" if PRODUCTS.search(event.key) else "rest"
                times["optimiser" if OPTIMISER.search(event.key) else products] += taken / STEPS / 1e3
                kernels += event.count if taken else 0
            yield Spent(name, kernels / STEPS, **times)
