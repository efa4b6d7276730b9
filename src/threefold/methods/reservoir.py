"""A reservoir: a uniform random sample of all that has come so far, kept without knowing how much will come."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from threefold.methods.learner import Batch, Learner, Memory


def empty(places: int) -> Memory:
    """A reservoir with so many places. Samples are indices into the training data, each with its task."""
    return {
        "reservoir": torch.zeros(places, dtype=torch.long),
        "of_task": torch.zeros(places, dtype=torch.long),
        "come": torch.tensor(0),  # samples so far, in the reservoir or not
    }


def taken_in(memory: Mapping[str, Any], batch: Batch, uniform: Tensor) -> Memory:
    """The reservoir after a batch, each sample by a number in [0, 1) of its own (Vitter 1985, algorithm R).

    The n-th sample that comes takes place n while there is room; then a random one of n places, if there is such a
    place. Of several samples of a batch for one place the last one stays, as if they had come one after the other.
    """
    places, size = memory["reservoir"].shape[0], len(batch.y)
    order = torch.arange(size, device=batch.y.device)
    number = memory["come"] + order
    place = torch.where(number < places, number, (uniform * (number + 1)).long())
    replaced = ((place.unsqueeze(1) == place) & (order.unsqueeze(1) < order)).any(1)
    place = torch.where(replaced | (place >= places), places, place)  # a place behind the last: nowhere

    def written(old: Tensor, new: Tensor) -> Tensor:
        return torch.cat([old, old[:1]]).scatter(0, place, new)[:places]

    return {
        "reservoir": written(memory["reservoir"], batch.indices),
        "of_task": written(memory["of_task"], batch.task),
        "come": memory["come"] + size,
    }


def drawn(learner: Learner, memory: Mapping[str, Any], uniform: Tensor) -> tuple[Batch, Tensor]:
    """A batch of what is stored, by numbers in [0, 1), and whether anything is: if not, the batch is not to be used."""
    held = memory["come"].clamp(max=memory["reservoir"].shape[0])
    place = (uniform * held).long()
    found = learner.samples(memory["reservoir"][place], memory["of_task"][place])
    return found._replace(y=found.y.clamp(min=0)), held > 0
