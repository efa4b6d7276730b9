"""Optimisers as values, and their steps on the stacked weights of all replicas."""

import warnings
from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any, NamedTuple, Self

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor
from torch.optim.adam import adam

from threefold.engine.schedule import CONSTANT, Schedule
from threefold.errors import ThreefoldError
from threefold.values import Value, build, hyper, known, listed, pairs_of

EPSILON = 1e-8
LINE = 16  # float32 numbers in the widest SIMD vector


class Optimizer(Value):
    """An update rule for weights. Numbers may differ between the replicas of a stack."""

    lr: float | None = hyper("learning rate; the paper's for the stream if not given", gt=0)
    reset: bool = hyper("begin with a fresh state at each task", False)

    def stacked(self, params: Sequence[Tensor], each: Sequence["Optimizer"], schedule: Schedule) -> "Stacked":
        """The optimiser for stacked weights, where replica i has `each[i]`."""
        raise NotImplementedError


def _two(given: Any) -> Any:
    """Two numbers, as the command line writes them or as a list."""
    found = listed(given)
    if not isinstance(found, list | tuple) or len(found) != 2:
        raise ValueError(f"must be two numbers such as 0.9-0.999, got '{given}'")
    return found


Share = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Share, Share], BeforeValidator(_two)]


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015): the paper's."""

    name = "adam"
    betas: Betas = hyper("how much of the moving averages is kept at each step", (0.9, 0.999))
    weight_decay: float = hyper("weight of the squared weights in the gradient", 0.0, ge=0)

    def stacked(self, params: Sequence[Tensor], each: Sequence[Optimizer], schedule: Schedule) -> "Stacked":
        return StackedAdam(params, each, schedule)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov & Hutter 2019)."""

    name = "adamw"
    weight_decay: float = hyper(
        "share of the weights that is taken away at each step, times the learning rate", 0.01, ge=0
    )


class SGD(Optimizer):
    """Gradient descent, with momentum if asked for."""

    name = "sgd"
    momentum: float = hyper("how much of the last step is kept", 0.0, ge=0, lt=1)
    nesterov: bool = hyper("look ahead along the momentum", False)
    weight_decay: float = hyper("weight of the squared weights in the gradient", 0.0, ge=0)

    @model_validator(mode="after")
    def _has_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ThreefoldError("hyperparameter nesterov of sgd is true, but momentum is 0; give momentum too.")
        return self

    def stacked(self, params: Sequence[Tensor], each: Sequence[Optimizer], schedule: Schedule) -> "Stacked":
        return StackedSGD(params, each, schedule)


OPTIMIZERS: dict[str, type[Optimizer]] = {kind.name: kind for kind in (Adam, AdamW, SGD)}


def find_optimizer(given: Optimizer | str) -> Optimizer:
    """Parse an optimiser such as `sgd:lr=0.1,momentum=0.9`."""
    if isinstance(given, Optimizer):
        return known(OPTIMIZERS, "optimizer", given)
    if not isinstance(given, str):
        raise ThreefoldError(f"optimizer must be a name such as 'sgd:lr=0.1' or an Optimizer, got {given!r}.")
    return build(OPTIMIZERS, "optimizer", *pairs_of(given, "optimizer"))


class Pull(NamedTuple):
    """A quadratic penalty on one stacked tensor of weights; the strength is shaped to broadcast over it."""

    strength: Tensor
    anchor: Tensor
    precision: Tensor


class WeightTerms(NamedTuple):
    """The terms of a step besides the gradient, for one stacked tensor of weights."""

    pulls: Sequence[Pull] = ()
    paths: Sequence[Tensor] = ()  # each grows by −Δθ · ∂L/∂θ

    @property
    def fits_kernel(self) -> bool:
        """The kernel takes at most one pull and one path, and the path must be contiguous."""
        return len(self.pulls) < 2 and len(self.paths) < 2 and all(path.is_contiguous() for path in self.paths)


def pulled(param: Tensor, grad: Tensor, pulls: Sequence[Pull]) -> Tensor:
    """The gradient of the loss with its quadratic penalties."""
    for pull in pulls:
        grad = torch.addcmul(grad, (param - pull.anchor).mul_(pull.strength), pull.precision)
    return grad


class Stacked:
    """An optimiser's state for stacked weights; it is elementwise, so all replicas are updated at once."""

    def __init__(self, params: Sequence[Tensor], each: Sequence[Optimizer], schedule: Schedule = CONSTANT) -> None:
        self.params, self.schedule = list(params), schedule
        self.device = params[0].device
        self.lr = [float(one.lr) for one in each]  # type: ignore[arg-type]
        self._lr = torch.tensor(self.lr, device=self.device)
        self.decay = self._numbers([one.weight_decay for one in each])  # type: ignore[attr-defined]
        self.resets = each[0].reset
        self.progress = torch.zeros(len(each), device=self.device)  # through the task, from 0 to 1

    def _numbers(self, values: Sequence[float]) -> Tensor | None:
        """One number for each replica; None if all are 0."""
        return torch.tensor(values, device=self.device) if any(values) else None

    def begin_task(self, task: int, anew: bool = False) -> None:
        """`anew`: the weights were replaced, so the state is reset."""
        if task and (self.resets or anew):
            for tensors in self.state().values():
                for tensor in tensors:
                    tensor.zero_()

    def rates(self) -> Tensor:
        """The learning rate of each replica at this step."""
        multiplier = self.schedule.multiplier(self.progress)
        return self._lr if multiplier is None else self._lr * multiplier

    def step(
        self, grads: Sequence[Tensor], terms: Sequence[WeightTerms] | None = None, *, whole: bool = False
    ) -> Sequence[Tensor]:
        """Take a step; with `whole`, return the gradients including all pulls."""
        terms = terms or [WeightTerms()] * len(grads)
        each = list(zip(self.params, grads, terms, strict=True))
        grads = [pulled(param, grad, also.pulls).contiguous() for param, grad, also in each]  # kernels ignore strides
        before = [param.clone() if also.paths else None for param, _, also in each]
        self.move(grads)
        for param, grad, old, also in zip(self.params, grads, before, terms, strict=True):
            if old is not None:
                old.sub_(param)
                for path in also.paths:
                    path.addcmul_(old, grad)
        return grads

    def move(self, grads: Sequence[Tensor]) -> None:
        """Update the weights along these gradients."""
        raise NotImplementedError

    def state(self) -> dict[str, list[Tensor]]:
        raise NotImplementedError

    def restore(self, state: dict[str, list[Tensor]]) -> None:
        for name, tensors in self.state().items():
            for mine, saved in zip(tensors, state[name], strict=True):
                mine.copy_(saved)


def _shaped(numbers: Tensor, like: Tensor) -> Tensor:
    """One number for each replica, shaped to broadcast over a stacked tensor."""
    return numbers.view(-1, *[1] * (like.dim() - 1))


class StackedSGD(Stacked):
    """Gradient descent; with momentum v ← μv + g, and the step is along v, or along g + μv (Nesterov)."""

    def __init__(self, params: Sequence[Tensor], each: Sequence[Any], schedule: Schedule = CONSTANT) -> None:
        super().__init__(params, each, schedule)
        self.momentum, self.nesterov = self._numbers([one.momentum for one in each]), each[0].nesterov
        self.velocities = [] if self.momentum is None else [torch.zeros_like(p) for p in params]

    def move(self, grads: Sequence[Tensor]) -> None:
        rates = self.rates()
        for place, (param, grad) in enumerate(zip(self.params, grads, strict=True)):
            if self.decay is not None:
                grad = torch.addcmul(grad, param, _shaped(self.decay, param))
            if self.momentum is not None:
                momentum, velocity = _shaped(self.momentum, param), self.velocities[place]
                velocity.mul_(momentum).add_(grad)
                grad = torch.addcmul(grad, velocity, momentum) if self.nesterov else velocity
            param.addcmul_(grad, _shaped(rates, param), value=-1)

    def state(self) -> dict[str, list[Tensor]]:
        return {"velocities": self.velocities}


class StackedAdam(Stacked):
    """Adam and AdamW: on a GPU by a kernel of our own, on a CPU by PyTorch's fused one."""

    def __init__(self, params: Sequence[Tensor], each: Sequence[Any], schedule: Schedule = CONSTANT) -> None:
        super().__init__(params, each, schedule)
        replicas, device = len(each), self.device
        self.betas, self.decoupled = each[0].betas, isinstance(each[0], AdamW)
        self.means = [torch.zeros_like(p) for p in params]
        self.squares = [torch.zeros_like(p) for p in params]
        self.taken = torch.zeros(replicas, device=device)  # steps
        self._size, self._root = torch.empty(replicas, device=device), torch.empty(replicas, device=device)
        self.at_once = device.type == "cuda" and (self.decay is None or self.decoupled)

    def step(
        self, grads: Sequence[Tensor], terms: Sequence[WeightTerms] | None = None, *, whole: bool = False
    ) -> Sequence[Tensor]:
        terms = terms or [WeightTerms()] * len(grads)
        fits = self.at_once and not whole and all(also.fits_kernel for also in terms)
        if self.decay is not None:  # it shrinks weights before the kernel runs, which pulls and paths would miss
            fits = fits and not any(also.pulls or also.paths for also in terms)
        return [] if fits and self._all_at_once(grads, terms) else super().step(grads, terms)

    def _all_at_once(self, grads: Sequence[Tensor], terms: Sequence[WeightTerms]) -> bool:
        """Read and write every tensor once, as memory bandwidth is the limit on a GPU. False: there is no Triton."""
        try:
            kernel = _kernel()
            kernel.correct(self.taken, self.rates(), self._size, self._root, self.betas)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a missing or broken compiler may raise anything
            self.at_once = False
            reason = " ".join(str(error).split())[:200]
            warnings.warn(f"no fused optimiser here, a slower one is used ({reason})", stacklevel=3)
            return False
        self._shrink()
        each = zip(self.params, grads, self.means, self.squares, terms, strict=True)
        moved = [
            (param, grad, mean, square, next(iter(also.pulls), None), next(iter(also.paths), None))
            for param, grad, mean, square, also in each
        ]
        kernel.advance(moved, self._size, self._root, self.betas, EPSILON)
        return True

    def _shrink(self) -> None:
        """AdamW's weight decay."""
        if self.decay is not None and self.decoupled:
            factor = 1 - self.rates() * self.decay
            for param in self.params:
                param.mul_(_shaped(factor, param))

    def move(self, grads: Sequence[Tensor]) -> None:
        self._shrink()
        if self.decay is not None and not self.decoupled:
            pairs = zip(grads, self.params, strict=True)
            grads = [torch.addcmul(grad, param, _shaped(self.decay, param)) for grad, param in pairs]
        if self.device.type == "cpu":
            self._fused(grads)
        else:
            self._in_turn(grads)

    def _fused(self, grads: Sequence[Tensor]) -> None:
        """PyTorch's fused Adam; neighbouring replicas with the same learning rate and age are updated together."""
        start = 0
        rates = self.lr if self.schedule == CONSTANT else self.rates().tolist()
        for (rate, taken), same in groupby(zip(rates, self.taken.tolist(), strict=True)):
            rows = slice(start, start + len(list(same)))
            stacks = [self.params, grads, self.means, self.squares]
            if rows != slice(0, len(rates)):
                stacks = [[tensor[rows] for tensor in stack] for stack in stacks]
            lines, ends = _in_lines([[tensor.view(-1) for tensor in stack] for stack in stacks])
            params, gradients, means, squares = lines
            adam(
                params,
                gradients,
                means,
                squares,
                [],
                list(torch.full((len(params),), taken).unbind()),
                fused=True,
                amsgrad=False,
                beta1=self.betas[0],
                beta2=self.betas[1],
                lr=rate,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
            )
            for end, moved in ends:
                end.copy_(moved)
            start = rows.stop
        self.taken += 1

    def _in_turn(self, grads: Sequence[Tensor]) -> None:
        """The same by plain operations with rates on the device: a captured step cannot synchronise with the host."""
        self.taken += 1
        taken, (one, two) = self.taken.double(), self.betas
        size = (self.rates() / (1 - one**taken)).float()
        root = (1 - two**taken).sqrt().float()
        for param, grad, mean, square in zip(self.params, grads, self.means, self.squares, strict=True):
            mean.lerp_(grad, 1 - one)
            square.mul_(two).addcmul_(grad, grad, value=1 - two)
            below = (square.sqrt() / _shaped(root, square)).add_(EPSILON)
            param.addcmul_(mean / below, _shaped(size, mean), value=-1)

    def state(self) -> dict[str, list[Tensor]]:
        return {"means": self.means, "squares": self.squares, "taken": [self.taken]}


def _in_lines(stacks: Sequence[Sequence[Tensor]]) -> tuple[list[list[Tensor]], list[tuple[Tensor, Tensor]]]:
    """Weights, gradients, means and squares, flattened to tensors of whole lines; remainders are copied into one more
    tensor. Second: the remainders of all but the gradients, each with its copy.

    PyTorch rounds what does not fill a SIMD vector differently, and which weights those are depends on the size of the
    stack: a replica's numbers would depend on the others in it.
    """
    sizes = [tensor.numel() % LINE for tensor in stacks[0]]
    lines = [
        [tensor[:-size] if size else tensor for tensor, size in zip(stack, sizes, strict=True)] for stack in stacks
    ]
    back = []
    if left := sum(sizes):
        for place, stack in enumerate(stacks):
            ends = [tensor[tensor.numel() - size :] for tensor, size in zip(stack, sizes, strict=True)]
            copies = torch.cat([*ends, ends[0].new_zeros(-left % LINE)])
            lines[place].append(copies)
            if place != 1:
                back += list(zip(ends, torch.split(copies[:left], sizes), strict=True))
    return [[tensor for tensor in tensors if tensor.numel()] for tensors in lines], back


def _kernel() -> Any:
    """Triton is only available where there is a GPU."""
    from threefold.engine import adam_kernel

    return adam_kernel
