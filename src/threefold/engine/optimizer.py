"""What follows a gradient, weight by weight: quadratic penalties pull, Adam steps, path integrals are added up."""

import warnings
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam

BETAS, EPSILON = (0.9, 0.999), 1e-8  # section 4.2; ε is the optimiser's usual one


class Pull(NamedTuple):
    """A quadratic penalty on one stacked tensor of weights; the strength is shaped to multiply it."""

    strength: Tensor
    anchor: Tensor
    precision: Tensor


class WeightTerms(NamedTuple):
    """What else a step does to one stacked tensor of weights."""

    pulls: Sequence[Pull] = ()
    paths: Sequence[Tensor] = ()  # each grows by −Δθ · ∂L/∂θ

    @property
    def fits_kernel(self) -> bool:
        """The kernel has room for one pull and one path, and writes to a path as if it were in one piece."""
        return len(self.pulls) < 2 and len(self.paths) < 2 and all(path.is_contiguous() for path in self.paths)


def pulled(param: Tensor, grad: Tensor, pulls: Sequence[Pull]) -> Tensor:
    """The gradient of the loss with its quadratic penalties."""
    for pull in pulls:
        grad = torch.addcmul(grad, (param - pull.anchor).mul_(pull.strength), pull.precision)
    return grad


class Adam:
    """Adam on stacked parameters as they are: it is elementwise. One state for the whole sequence of tasks."""

    def __init__(self, params: Sequence[Tensor], lr: Sequence[float]) -> None:
        device, replicas = params[0].device, len(lr)
        self.params = list(params)
        self.means = [torch.zeros_like(p) for p in params]
        self.squares = [torch.zeros_like(p) for p in params]
        self.taken = torch.zeros((), device=device)
        self.lr = list(lr)
        self._lr = torch.tensor(self.lr, device=device)
        self._size, self._root = torch.empty(replicas, device=device), torch.empty((), device=device)
        self.at_once = device.type == "cuda"  # by our own kernel

    def step(
        self, grads: Sequence[Tensor], terms: Sequence[WeightTerms] | None = None, *, whole: bool = False
    ) -> Sequence[Tensor]:
        """Take a step; `whole`: and return the gradients with all pulls, which the kernel would not write down."""
        terms = terms or [WeightTerms()] * len(grads)
        if self.at_once and not whole and all(also.fits_kernel for also in terms) and self._all_at_once(grads, terms):
            return []
        return self._in_turn(grads, terms)

    def _all_at_once(self, grads: Sequence[Tensor], terms: Sequence[WeightTerms]) -> bool:
        """Every tensor is read and written once: what bounds this on a GPU is memory. False: there is no Triton."""
        try:
            kernel = _kernel()
            kernel.correct(self.taken, self._lr, self._size, self._root, BETAS)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler that is missing or broken raises
            self.at_once = False
            reason = " ".join(str(error).split())[:200]
            warnings.warn(f"no fused optimiser here, a slower one is used ({reason})", stacklevel=3)
            return False
        each = zip(self.params, grads, self.means, self.squares, terms, strict=True)
        moved = [
            (param, grad, mean, square, next(iter(also.pulls), None), next(iter(also.paths), None))
            for param, grad, mean, square, also in each
        ]
        kernel.advance(moved, self._size, self._root, BETAS, EPSILON)
        return True

    def _in_turn(self, grads: Sequence[Tensor], terms: Sequence[WeightTerms]) -> Sequence[Tensor]:
        """PyTorch's fused Adam; neighbouring replicas with the same learning rate are updated together."""
        each = list(zip(self.params, grads, terms, strict=True))
        grads = [
            pulled(param, grad, also.pulls).contiguous() for param, grad, also in each
        ]  # Adam's kernel asks no strides
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
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=rate,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
            )
            start = rows.stop
        self.taken += 1
        for param, grad, old, also in zip(self.params, grads, before, terms, strict=True):
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


def _kernel() -> Any:
    """Triton is there where there is a GPU only."""
    from threefold.engine import adam_kernel

    return adam_kernel
