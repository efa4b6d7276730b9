"""The diagonal of the Fisher information (equations 5 and 6), exact and without a loop over samples."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, pad
from torch.nn.utils.rnn import pad_sequence

from threefold.methods.by_sample import over_samples
from threefold.methods.learner import Batch, Learner, Params, Stack
from threefold.methods.losses import only_active
from threefold.randomness import generator

Labels = Literal["predicted", "true", "sampled", "expected"]


def fisher_diagonal(stack: Stack, task: int, labels: Labels, samples: int | None) -> Params:
    """The Fisher diagonal of the task just finished, for every replica, averaged over its training data.

    `labels` says at which label the gradient is taken: the most likely one under the model, the true one, one drawn
    from the model, or all of them weighted by their probability. At most `samples` samples are used.
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
    units = stack.setting.outputs.active(task, task + 1).nonzero().flatten().tolist()
    total: Params = {}
    start = 0
    for batch, weight in stack.training_data(own):
        size = batch.y.shape[1]
        at = uniform[:, start : start + size]
        at = pad(at, (0, size - at.shape[1])).to(weight.device)  # samples may be padded to more than there are draws
        squares = stack.map(_squares(labels, units), batch, weight, at)
        total = {name: total[name] + s if total else s for name, s in squares.items()}
        start += size
    return total


def _squares(labels: Labels, units: Sequence[int]) -> Callable[[Learner, Batch, Tensor, Tensor], Params]:
    """For one network: the weighted sum over samples of squared gradients of the log likelihood; `units` are active."""

    def one(learner: Learner, batch: Batch, weight: Tensor, uniform: Tensor) -> Params:
        if labels == "expected":
            chance = _chance(learner, learner.logits(batch.x, batch.task), batch)
            total: Params = {}
            for unit in units:  # as it goes: all of them at once would be as many copies of the network
                squares = _at(learner, batch, _always(unit), weight * chance[:, unit])
                total = {name: total[name] + s if total else s for name, s in squares.items()}
            return total

        def label(logits: Tensor) -> Tensor:
            if labels == "true":
                return batch.y.clamp(min=0)  # padding may be a sample of another task, without a unit here
            chance = _chance(learner, logits, batch)
            if labels == "predicted":
                return chance.argmax(-1)
            # the unit whose interval of [0, 1) contains the draw; rounding may leave the sum short of 1
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
    """The weighted sum of squared gradients, at the labels that `label` picks from the logits."""
    return over_samples(learner, batch, weight, _log_chance, lambda gradient: gradient**2, label)


def _log_chance(logits: Tensor, active: Tensor, label: Tensor) -> Tensor:
    """log p(label) of each sample; an inactive label has no probability and no gradient."""
    at = label.unsqueeze(-1)
    chosen = log_softmax(only_active(logits, active), -1).gather(-1, at)
    return torch.where(active.gather(-1, at), chosen, 0).squeeze(-1)
