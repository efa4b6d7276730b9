"""Adam's step, penalties and path integrals as one GPU kernel, so that every number is read and written once.

It computes what `Adam` in optimizer.py computes step by step. Imported only on a GPU, where PyTorch brings Triton.
"""

import math

import triton
import triton.language as tl

WIDTH = 1024  # weights per program


@triton.jit
def _correct(taken, lr, size, root, replicas, LOG1: tl.constexpr, LOG2: tl.constexpr, MANY: tl.constexpr):
    replica = tl.arange(0, MANY)
    real = replica < replicas
    number = tl.load(taken + replica, mask=real, other=0) + 1
    step = number.to(tl.float64)  # in float32 the first steps' corrections would be off by 1e-4
    rate = tl.load(lr + replica, mask=real)
    tl.store(size + replica, (rate / (1 - tl.exp(step * LOG1))).to(tl.float32), mask=real)
    tl.store(root + replica, tl.sqrt(1 - tl.exp(step * LOG2)).to(tl.float32), mask=real)
    tl.store(taken + replica, number, mask=real)


@triton.jit
def _move(
    param, grad, mean, square, strength, anchor, precision, path, numbers, block, size, root,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
    PULLED: tl.constexpr, SUMMED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(1).to(tl.int64)
    place = block * WIDTH + tl.arange(0, WIDTH)
    real = place < numbers
    at = replica * numbers + place
    p, g = tl.load(param + at, mask=real), tl.load(grad + at, mask=real)
    m, s = tl.load(mean + at, mask=real), tl.load(square + at, mask=real)
    if PULLED:
        away = (p - tl.load(anchor + at, mask=real)) * tl.load(strength + replica)
        g += away * tl.load(precision + at, mask=real)
    m += (1 - BETA1) * (g - m)
    s = BETA2 * s + (1 - BETA2) * g * g
    change = tl.load(size + replica) * m / (tl.sqrt(s) / tl.load(root + replica) + EPSILON)
    tl.store(mean + at, m, mask=real)
    tl.store(square + at, s, mask=real)
    tl.store(param + at, p - change, mask=real)
    if SUMMED:
        tl.store(path + at, tl.load(path + at, mask=real) + change * g, mask=real)


@triton.jit(do_not_specialize=["blocks"])
def _advance(
    param, grad, mean, square, strength, anchor, precision, path, numbers,
    param_, grad_, mean_, square_, strength_, anchor_, precision_, path_, numbers_,
    blocks, size, root,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
    PULLED: tl.constexpr, SUMMED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    if block < blocks:
        _move(
            param, grad, mean, square, strength, anchor, precision, path, numbers, block, size, root,
            BETA1, BETA2, EPSILON, PULLED, SUMMED, WIDTH,
        )  # fmt: skip
    else:
        _move(
            param_, grad_, mean_, square_, strength_, anchor_, precision_, path_, numbers_, block - blocks, size, root,
            BETA1, BETA2, EPSILON, PULLED, SUMMED, WIDTH,
        )  # fmt: skip


def correct(taken, lr, size, root, betas):
    """Count a step and compute Adam's bias corrections for each replica: step size, and divisor of the root."""
    logs = [math.log(beta) for beta in betas]
    many = triton.next_power_of_2(len(lr))
    _correct[(1,)](taken, lr, size, root, len(lr), *logs, many, num_warps=1)  # no warp reads after another wrote


def _given(param, grad, mean, square, pull, path):
    strength, anchor, precision = (each.contiguous() for each in pull) if pull else (param, param, param)
    summed = param if path is None else path
    return param, grad.contiguous(), mean, square, strength, anchor, precision, summed, param[0].numel()


def advance(moved, size, root, betas, epsilon):
    """One step on stacked weight tensors, each with a pull (strength, anchor, precision) and a path, or None.

    Neighbours share a launch, as a layer's weights and its bias: a bias alone is hardly worth one.
    """
    while moved:
        first, *moved = moved
        pull, path = (each is not None for each in first[4:])
        together = moved and [each is not None for each in moved[0][4:]] == [pull, path]
        second, moved = (moved[0], moved[1:]) if together else (first, moved)
        given = _given(*first), _given(*second)
        blocks = [triton.cdiv(each[-1], WIDTH) for each in given]
        grid = (blocks[0] + (blocks[1] if together else 0), len(first[0]))
        _advance[grid](*given[0], *given[1], blocks[0], size, root, *betas, epsilon, pull, path, WIDTH)
