"""Sums over samples of each sample's squared or absolute gradient: exact, and without a loop over samples.

For a linear layer the sum of squared weight gradients is (δ²)ᵀ(a²), with a the layer's input and δ the gradient at its
output: a few matrix products for all 60,000 samples. For a convolution a sample's gradient is one product of δ with the
patches of a. All other parameters (such as those of normalisation layers) are handled sample by sample.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import unfold

from threefold.methods.learner import Batch, Learner, Params
from threefold.networks import Shift

Value = Callable[[Tensor, Tensor, Tensor], Tensor]
Size = Callable[[Tensor], Tensor]  # elementwise, with size(ab) = size(a) size(b): a square, or an absolute value


def over_samples(
    learner: Learner, batch: Batch, weight: Tensor, value: Value, size: Size, choose: Callable[[Tensor], Tensor]
) -> Params:
    """The weighted sum over samples of the size of the gradient of each sample's value, for one network.

    `value(logits, active, chosen)` returns one number from a sample's logits, its active units, and its entry of what
    `choose` returned for all logits, which carries no gradient.
    """
    net, taps = learner.networks["classifier"], learner.setting.structure.taps
    modules = {tap.path: net.get_submodule(tap.path) for tap in taps}
    inputs: Params = {}

    def total(probes: Params) -> tuple[Tensor, tuple[Params, Tensor]]:
        """A zero probe is added to every output; the gradient with respect to it is δ, one row for each sample."""
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
        chosen = choose(logits.detach())
        return value(logits, learner.now.active[batch.task], chosen).sum(), (dict(inputs), chosen)

    probes = {tap.path: batch.x.new_zeros(len(batch.y), *tap.shape) for tap in taps}
    deltas, (inputs, chosen) = grad(total, has_aux=True)(probes)
    sizes: Params = {}
    for name, module in modules.items():
        for own, found in _of_layer(module, inputs[name], deltas[name], weight, size).items():
            sizes[f"{name}.{own}"] = found
    rest = {name: p for name, p in learner.params.items() if name not in sizes}
    if rest:
        sizes |= _sample_by_sample(learner, rest, batch, weight, value, size, chosen)
    return {name: sizes[name] for name in learner.params}


def _of_layer(module: nn.Module, x: Tensor, delta: Tensor, weight: Tensor, size: Size) -> Params:
    """The sums for a layer's parameters, by name."""
    if delta.dim() == 2:
        found = size(delta) * weight.unsqueeze(-1)
        bias = found.sum(0)
        if isinstance(module, Shift):
            return {"bias": bias}
        return {"weight": found.T @ size(x)} | ({"bias": bias} if module.bias is not None else {})
    # a layer applied at several positions of each sample: its gradient is a sum over them
    if isinstance(module, nn.Conv2d):
        x = unfold(x, module.kernel_size, module.dilation, module.padding, module.stride)  # type: ignore[arg-type]
        delta = delta.flatten(2)
    else:
        x, delta = x.flatten(1, -2).mT, delta.flatten(1, -2).mT
    gradient = delta @ x.mT
    shape = module.weight.shape
    sums = {"weight": torch.tensordot(weight, size(gradient), 1).view(shape)}
    return sums | ({"bias": weight @ size(delta.sum(-1))} if module.bias is not None else {})


def _sample_by_sample(
    learner: Learner, params: Params, batch: Batch, weight: Tensor, value: Value, size: Size, chosen: Tensor
) -> Params:
    """The sums for any other parameters."""

    def of_one(params: Params, x: Tensor, task: Tensor, chosen: Tensor) -> Tensor:
        logits = learner.logits(x[None], task[None], learner.params | params)
        return value(logits, learner.now.active[task[None]], chosen[None]).sum()

    each = grad(of_one)
    if learner.setting.structure.samples_mapped:
        gradients = vmap(each, (None, 0, 0, 0))(params, batch.x, batch.task, chosen)
    else:
        samples = zip(batch.x, batch.task, chosen, strict=True)
        found = [each(params, *sample) for sample in samples]
        gradients = {name: torch.stack([g[name] for g in found]) for name in params}
    return {name: torch.tensordot(weight, size(g), 1) for name, g in gradients.items()}
