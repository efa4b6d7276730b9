"""The diagonal of the Fisher information (equations 5 and 6), exact and without a loop over samples.

For a linear layer the sum over samples of squared weight gradients is (δ²)ᵀ(a²), with a the layer's input and δ the
gradient at its output: a few matrix products for all 60,000 samples.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import grad
from torch.nn.functional import log_softmax, pad
from torch.nn.utils.rnn import pad_sequence

from threefold.methods.learner import Batch, Learner, Params, Stack
from threefold.methods.losses import only_active
from threefold.networks import Shift
from threefold.randomness import generator

Labels = Literal["predicted", "true", "sampled", "expected"]


def fisher_diagonal(stack: Stack, task: int, labels: Labels, samples: int | None) -> Params:
    """The Fisher diagonal of the task just finished, for every replica, averaged over its training data.

    `labels` says at which label the gradient is taken: the most likely one under the model, the true one, one drawn
    from the model, or all of them weighted by their probability. `samples` takes that many at most.
    """
    own = stack.own_samples()
    if samples is not None:
        own = [
            indices[torch.randperm(len(indices), generator=generator(seed, "fisher", task))[:samples]]
            for seed, indices in zip(stack.seeds, own, strict=True)
        ]
    draws = [
        torch.rand(len(indices), generator=generator(seed, "fisher labels", task))
        for seed, indices in zip(stack.seeds, own, strict=True)
    ]
    uniform = pad_sequence(draws, batch_first=True)
    total: Params = {}
    start = 0
    for batch, weight in stack.training_data(own):
        size = batch.y.shape[1]
        at = uniform[:, start : start + size]
        at = pad(at, (0, size - at.shape[1])).to(weight.device)  # samples may be padded further than their draws
        squares = stack.map(_squares(labels), batch, weight, at)
        total = {name: total[name] + s if total else s for name, s in squares.items()}
        start += size
    return total


def _squares(labels: Labels) -> Callable[[Learner, Batch, Tensor, Tensor], Params]:
    """For one network: the weighted sum over samples of squared gradients of the log likelihood."""

    def one(learner: Learner, batch: Batch, weight: Tensor, uniform: Tensor) -> Params:
        if labels == "expected":
            chance = _chance(learner, learner.logits(batch.x, batch.task), batch)
            units = range(chance.shape[-1])
            each = [_at(learner, batch, _always(c), weight * chance[:, c]) for c in units]
            return {name: torch.stack([squares[name] for squares in each]).sum(0) for name in each[0]}

        def label(logits: Tensor) -> Tensor:
            if labels == "true":
                return batch.y.clamp(min=0)  # padding may be a sample of another task, which has no unit here
            chance = _chance(learner, logits, batch)
            if labels == "predicted":
                return chance.argmax(-1)
            # the unit in whose stretch of [0, 1) the draw falls; rounding may leave the sum short of 1
            past = chance.cumsum(-1) <= uniform.unsqueeze(-1)
            last = torch.where(chance > 0, torch.arange(chance.shape[-1], device=chance.device), 0).amax(-1)
            return torch.minimum(past.sum(-1), last)

        return _at(learner, batch, label, weight)

    return one


def _always(unit: int) -> Callable[[Tensor], Tensor]:
    return lambda logits: torch.full(logits.shape[:-1], unit, device=logits.device)


def _chance(learner: Learner, logits: Tensor, batch: Batch) -> Tensor:
    return torch.softmax(only_active(logits, learner.now.active[batch.task]), -1)


def _at(learner: Learner, batch: Batch, label: Callable[[Tensor], Tensor], weight: Tensor) -> Params:
    """The weighted sum of squared gradients, at the label that `label` gives each sample for its logits."""
    net = learner.networks["classifier"]
    taps = {name: m for name, m in net.named_modules() if isinstance(m, nn.Linear | Shift)}
    inputs: Params = {}

    def likelihood(probes: Params) -> tuple[Tensor, Params]:
        """A probe is added to every output: the gradient with respect to it is δ, a row for each sample."""
        inputs.clear()

        def tap(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
            def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
                inputs[name] = args[0]
                return output + probes[name]

            return hook

        with ExitStack() as tapped:
            for name, module in taps.items():
                tapped.callback(module.register_forward_hook(tap(name)).remove)
            logits = learner.logits(batch.x, batch.task)
        active = learner.now.active[batch.task]
        at = label(logits.detach()).unsqueeze(-1)
        chosen = log_softmax(only_active(logits, active), -1).gather(-1, at)
        real = active.gather(-1, at)  # an inactive label has no probability and no gradient
        return torch.where(real, chosen, 0).sum(), dict(inputs)

    probes = {name: batch.x.new_zeros(len(batch.y), _units(module)) for name, module in taps.items()}
    deltas, inputs = grad(likelihood, has_aux=True)(probes)
    squares: Params = {}
    for name, module in taps.items():
        delta = deltas[name] ** 2 * weight.unsqueeze(-1)
        if isinstance(module, Shift):
            squares[f"{name}.bias"] = delta.sum(0)
        else:
            squares[f"{name}.weight"] = delta.T @ inputs[name] ** 2
            if module.bias is not None:
                squares[f"{name}.bias"] = delta.sum(0)
    return {name: squares[name] for name in learner.params}


def _units(module: nn.Linear | Shift) -> int:
    return module.out_features if isinstance(module, nn.Linear) else len(module.bias)
