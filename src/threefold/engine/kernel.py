"""Adam's step and all that goes beside it as one GPU kernel, so that every number is read and written once.

It computes what `Adam` in optimizer.py computes in turn. Imported on a GPU only: Triton comes with PyTorch there.
"""

import math

import triton
import triton.language as tl

WIDTH = 1024  # numbers that a program moves


@triton.jit
def _correct(taken, lr, size, root, replicas, LOG1: tl.constexpr, LOG2: tl.constexpr, MANY: tl.constexpr):
    number = tl.load(taken) + 1
    step = number.to(tl.float64)  # in float32 the first steps' corrections would be off by 1e-4
    replica = tl.arange(0, MANY)
    real = replica < replicas
    rate = tl.load(lr + replica, mask=real)
    tl.store(size + replica, (rate / (1 - tl.exp(step * LOG1))).to(tl.float32), mask=real)
    tl.store(root, tl.sqrt(1 - tl.exp(step * LOG2)).to(tl.float32))
    tl.store(taken, number)


@triton.jit
def _advance(
    param, grad, mean, square, strength, anchor, precision, path, size, root, numbers,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
    PULLED: tl.constexpr, SUMMED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    real = place < numbers
    at = replica * numbers + place
    p, g = tl.load(param + at, mask=real), tl.load(grad + at, mask=real)
    m, s = tl.load(mean + at, mask=real), tl.load(square + at, mask=real)
    if PULLED:
        away = (p - tl.load(anchor + at, mask=real)) * tl.load(strength + replica)
        g += away * tl.load(precision + at, mask=real)
    m += (1 - BETA1) * (g - m)
    s = BETA2 * s + (1 - BETA2) * g * g
    change = tl.load(size + replica) * m / (tl.sqrt(s) / tl.load(root) + EPSILON)
    tl.store(mean + at, m, mask=real)
    tl.store(square + at, s, mask=real)
    tl.store(param + at, p - change, mask=real)
    if SUMMED:
        tl.store(path + at, tl.load(path + at, mask=real) + change * g, mask=real)


def correct(taken, lr, size, root, betas):
    """Count a step; Adam's bias corrections for it: its size for each replica, and the root's divisor."""
    logs = [math.log(beta) for beta in betas]
    _correct[(1,)](taken, lr, size, root, len(lr), *logs, triton.next_power_of_2(len(lr)))


def advance(param, grad, mean, square, size, root, pull, path, betas, epsilon):
    """One step on a stacked tensor of weights, with a pull (strength, anchor, precision) and a path, or None."""
    numbers = param[0].numel()
    strength, anchor, precision = (each.contiguous() for each in pull) if pull else (param, param, param)
    summed = param if path is None else path
    _advance[(triton.cdiv(numbers, WIDTH), len(param))](
        param, grad.contiguous(), mean, square, strength, anchor, precision, summed, size, root, numbers,
        *betas, epsilon, pull is not None, path is not None, WIDTH,
    )  # fmt: skip
