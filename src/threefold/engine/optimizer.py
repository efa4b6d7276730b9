"""What follows a gradient, weight by weight: leashes pull, Adam steps, paths are summed up."""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam

KINDS = 64  # of steps that may be compiled in one process: by leashes, paths, precision, one replica or several
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # section 4.2; ε is the optimiser's usual one


class Pull(NamedTuple):
    """A leash on one stacked tensor of weights; the strength is shaped to multiply it."""

    strength: Tensor
    anchor: Tensor
    precision: Tensor


class Beside(NamedTuple):
    """What else a step does to one stacked tensor of weights."""

    pulls: Sequence[Pull] = ()
    paths: Sequence[Tensor] = ()  # each grows by −Δθ · ∂L/∂θ


def pulled(param: Tensor, grad: Tensor, pulls: Sequence[Pull]) -> Tensor:
    """The gradient of the loss with its quadratic penalties."""
    for pull in pulls:
        grad = torch.addcmul(grad, (param - pull.anchor).mul_(pull.strength), pull.precision)
    return grad


def corrections(taken: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
    """Adam's bias corrections: the step's size for each replica, and what the root of the squares is divided by."""
    taken = taken.double()  # in float32 the first steps' would be off by 1e-4
    return (lr / (1 - BETA1**taken)).to(lr.dtype), (1 - BETA2**taken).sqrt().to(lr.dtype)


def advance(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, size: Tensor, root: Tensor, beside: Beside
) -> None:
    """Adam's step on one tensor of weights, with all that goes beside it: elementwise, so one kernel can do it all."""
    grad = pulled(param, grad, beside.pulls)
    mean.lerp_(grad, 1 - BETA1)
    square.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    change = size * mean / (square.sqrt() / root + EPSILON)
    for path in beside.paths:
        path.addcmul_(change, grad)
    param.sub_(change)


@cache
def _fused() -> tuple[Callable[..., tuple[Tensor, Tensor]], Callable[..., None]]:
    """One compilation of each kind serves weights of all shapes."""
    return torch.compile(corrections, dynamic=True), torch.compile(advance, dynamic=True)


def _flat(stacked: Tensor) -> Tensor:
    """Replicas × numbers, in the same memory. No view: the compiler would make a kernel for every kind of view."""
    if not stacked.is_contiguous():
        return stacked.flatten(1)
    alias = torch.empty(0, dtype=stacked.dtype, device=stacked.device)
    numbers = stacked[0].numel()
    return alias.set_(stacked.untyped_storage(), stacked.storage_offset(), (len(stacked), numbers), (numbers, 1))


class Adam:
    """Adam on stacked parameters as they are: it is elementwise. One state for the whole sequence of tasks."""

    def __init__(self, params: Sequence[Tensor], lr: Sequence[float]) -> None:
        self.params = list(params)
        self.means = [torch.zeros_like(p) for p in params]
        self.squares = [torch.zeros_like(p) for p in params]
        self.taken = torch.zeros((), device=params[0].device)
        self.lr = list(lr)
        self._lr = torch.tensor(self.lr, device=params[0].device, dtype=params[0].dtype).unsqueeze(1)
        self.compiles = False  # is what is done to a weight one kernel?

    def step(
        self, grads: Sequence[Tensor], beside: Sequence[Beside] | None = None, *, whole: bool = False
    ) -> Sequence[Tensor]:
        """Take a step; `whole`: and return the gradients with all pulls, which one kernel would not write down."""
        beside = beside or [Beside()] * len(grads)
        if self.compiles and not whole:
            each = [
                (*map(_flat, tensors), Beside([Pull(*map(_flat, p)) for p in also.pulls], [*map(_flat, also.paths)]))
                for *tensors, also in zip(self.params, grads, self.means, self.squares, beside, strict=True)
            ]
            if self._at_once(each):
                return []
        return self._in_turn(grads, beside)

    def _at_once(self, each: Sequence[tuple[Any, ...]]) -> bool:
        """Every tensor is read and written once: what bounds this on a GPU is memory. False: there is no compiler."""
        corrected, advanced = _fused()
        for place, (param, grad, mean, square, also) in enumerate(each):
            try:
                if place == 0:
                    size, root = corrected(self.taken + 1, self._lr)
                with torch._dynamo.config.patch(recompile_limit=KINDS):
                    advanced(param, grad, mean, square, size, root, also)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever a compiler that is missing or broken raises
                if place:  # some weights have moved
                    raise
                self.compiles = False
                reason = " ".join(str(error).split())[:200]
                warnings.warn(f"no fused optimiser here, a slower one is used ({reason})", stacklevel=3)
                return False
        self.taken += 1
        return True

    def _in_turn(self, grads: Sequence[Tensor], beside: Sequence[Beside]) -> Sequence[Tensor]:
        """PyTorch's fused Adam; neighbouring replicas with the same learning rate are updated together."""
        each = list(zip(self.params, grads, beside, strict=True))
        grads = [pulled(param, grad, also.pulls) for param, grad, also in each]
        before = [param.clone() if also.paths else None for param, _, also in each]
        start = 0
        for rate, same in groupby(self.lr):
            rows = slice(start, start + len(list(same)))
            adam(
                [p[rows] for p in self.params],
                [g[rows] for g in grads],
                [m[rows] for m in self.means],
                [s[rows] for s in self.squares],
                [],
                [self.taken.clone() for _ in grads],
                fused=True,
                amsgrad=False,
                beta1=BETA1,
                beta2=BETA2,
                lr=rate,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
            )
            start = rows.stop
        self.taken += 1
        for param, grad, old, also in zip(self.params, grads, before, beside, strict=True):
            if old is not None:
                old.sub_(param)
                for path in also.paths:
                    path.addcmul_(old, grad)
        return grads

    def state(self) -> dict[str, list[Tensor]]:
        return {"means": self.means, "squares": self.squares, "taken": [self.taken]}

    def restore(self, state: dict[str, list[Tensor]]) -> None:
        for name, tensors in self.state().items():
            for mine, saved in zip(tensors, state[name], strict=True):
                mine.copy_(saved)
