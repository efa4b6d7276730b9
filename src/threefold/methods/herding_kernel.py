"""Herding as one GPU kernel: a program makes all choices of one replica, one after the other.

It computes what `herd` in herding.py computes step by step. Imported only on a GPU, where PyTorch brings Triton.
"""

import torch
import triton
import triton.language as tl

WARPS = 16


@triton.jit
def _smaller(one, its_place, other, others_place):
    first = (one < other) | ((one == other) & (its_place < others_place))
    return tl.where(first, one, other), tl.where(first, its_place, others_place)


@triton.jit
def _choose(products, cost, towards, chosen, samples, count, WIDTH: tl.constexpr):
    replica = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, WIDTH)
    real = place < samples
    at = replica * samples + place
    left = tl.load(cost + at, mask=real, other=float("inf"))
    mean = tl.load(towards + at, mask=real, other=0.0)
    number = 0
    while number < count:  # Triton 3.6's interpreter has no range over a runtime value
        _, pick = tl.reduce((left, place), 0, _smaller)
        pick = tl.minimum(pick, samples - 1)  # NaN costs must not lead out of bounds
        tl.store(chosen + replica * count + number, pick.to(tl.int64))
        row = tl.load(products + (replica * samples + pick) * samples + place, mask=real, other=0.0)
        left = tl.where(place == pick, float("inf"), left - 2 * (mean - row))
        number += 1


def choose(products, cost, towards, count):
    """The `count` choices of every replica: replicas × samples × samples products, replicas × samples costs."""
    replicas, samples = cost.shape
    chosen = torch.empty(replicas, count, dtype=torch.long, device=cost.device)
    width = triton.next_power_of_2(samples)
    given = (products.contiguous(), cost.contiguous(), towards.contiguous())
    _choose[(replicas,)](*given, chosen, samples, count, width, num_warps=WARPS)
    return chosen
