"""The diagonal of the Fisher information (equations 5 and 6), exact and without a loop over samples.

For a linear layer the sum over samples of squared weight gradients is (δ²)ᵀ(a²), with a the layer's input and δ the
gradient at its output: a few matrix products for all 60,000 samples. For a convolution a sample's gradient is one
product of δ with the patches of a. All other parameters (of normalisations, say) go sample by sample.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import log_softmax, pad, unfold
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
    net, taps = learner.networks["classifier"], learner.setting.structure.taps
    modules = {tap.path: net.get_submodule(tap.path) for tap in taps}
    inputs: Params = {}

    def likelihood(probes: Params) -> tuple[Tensor, tuple[Params, Tensor]]:
        """A probe is added to every output: the gradient with respect to it is δ, a row for each sample."""
        inputs.clear()

        def tap(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
            def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
                inputs[name] = args[0]
                return output + probes[name]

            return hook

        with ExitStack() as tapped:
            for name, module in modules.items():
                tapped.callback(module.register_forward_hook(tap(name)).remove)
            logits = learner.logits(batch.x, batch.task)
        at = label(logits.detach())
        return _log_chance(logits, learner.now.active[batch.task], at).sum(), (dict(inputs), at)

    probes = {tap.path: batch.x.new_zeros(len(batch.y), *tap.shape) for tap in taps}
    deltas, (inputs, at) = grad(likelihood, has_aux=True)(probes)
    squares: Params = {}
    for name, module in modules.items():
        for own, found in _of_layer(module, inputs[name], deltas[name], weight).items():
            squares[f"{name}.{own}"] = found
    rest = {name: p for name, p in learner.params.items() if name not in squares}
    if rest:
        squares |= _sample_by_sample(learner, rest, batch, at, weight)
    return {name: squares[name] for name in learner.params}


def _log_chance(logits: Tensor, active: Tensor, label: Tensor) -> Tensor:
    """log p(label) of each sample; an inactive label has no probability and no gradient."""
    at = label.unsqueeze(-1)
    chosen = log_softmax(only_active(logits, active), -1).gather(-1, at)
    return torch.where(active.gather(-1, at), chosen, 0).squeeze(-1)


def _of_layer(module: nn.Module, x: Tensor, delta: Tensor, weight: Tensor) -> Params:
    """The squares of a layer's parameters, by name."""
    if delta.dim() == 2:
        square = delta**2 * weight.unsqueeze(-1)
        bias = square.sum(0)
        if isinstance(module, Shift):
            return {"bias": bias}
        return {"weight": square.T @ x**2} | ({"bias": bias} if module.bias is not None else {})
    # a layer that is applied at several places of each sample: its gradient is a sum over them
    if isinstance(module, nn.Conv2d):
        x = unfold(x, module.kernel_size, module.dilation, module.padding, module.stride)  # type: ignore[arg-type]
        delta = delta.flatten(2)
    else:
        x, delta = x.flatten(1, -2).mT, delta.flatten(1, -2).mT
    gradient = delta @ x.mT
    shape = module.weight.shape
    found = {"weight": torch.tensordot(weight, gradient**2, 1).view(shape)}
    return found | ({"bias": weight @ delta.sum(-1) ** 2} if module.bias is not None else {})


def _sample_by_sample(learner: Learner, params: Params, batch: Batch, label: Tensor, weight: Tensor) -> Params:
    """The squares of any other parameters."""

    def likelihood(params: Params, x: Tensor, task: Tensor, label: Tensor) -> Tensor:
        logits = learner.logits(x[None], task[None], learner.params | params)
        return _log_chance(logits, learner.now.active[task[None]], label[None]).sum()

    samples = batch.x, batch.task, label
    try:
        gradients = vmap(grad(likelihood), (None, 0, 0, 0))(params, *samples)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # a module of a user's may look at values, unless it is mapped over replicas already
        if learner.setting.structure.mapped:
            raise
        each = [grad(likelihood)(params, *sample) for sample in zip(*samples, strict=True)]
        gradients = {name: torch.stack([one[name] for one in each]) for name in params}
    return {name: torch.tensordot(weight, g**2, 1) for name, g in gradients.items()}
