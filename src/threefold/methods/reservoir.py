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


def taken_in(memory: Mapping[str, Any], batch: Batch, uniform: Tensor, **also: Tensor) -> Memory:
    """The reservoir after a batch, each sample by a number in [0, 1) of its own (Vitter 1985, algorithm R).

    `also`: entries of the memory with a row for each place, and what goes there with each sample.

    The n-th sample that comes takes place n while there is room; then a random one of n places, if there is such a
    place. Of several samples of a batch for one place the last one stays, as if they had come one after the other.
    """
    size, most = len(batch.y), memory["reservoir"].shape[0]
    order = torch.arange(size, device=batch.y.device)
    number = memory["come"] + order
    place = torch.where(number < most, number, (uniform * (number + 1)).long())
    replaced = ((place.unsqueeze(1) == place) & (order.unsqueeze(1) < order)).any(1)
    place = torch.where(replaced | (place >= most), most, place)  # a place behind the last: nowhere

    def written(old: Tensor, new: Tensor) -> Tensor:
        rows = place.view(-1, *[1] * (new.dim() - 1)).expand_as(new)
        return torch.cat([old, old[:1]]).scatter(0, rows, new)[:most]

    fresh = {"reservoir": batch.indices, "of_task": batch.task, **also}
    return {name: written(memory[name], new) for name, new in fresh.items()} | {"come": memory["come"] + size}


def places(memory: Mapping[str, Any], uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Places of what is stored, by numbers in [0, 1), and whether anything is: if not, they are not to be used."""
    held = memory["come"].clamp(max=memory["reservoir"].shape[0])
    return (uniform * held).long(), held > 0


def drawn(learner: Learner, memory: Mapping[str, Any], uniform: Tensor) -> tuple[Batch, Tensor]:
    """A batch of what is stored, and whether anything is: see `places`."""
    place, some = places(memory, uniform)
    return stored(learner, memory, place), some


def stored(learner: Learner, memory: Mapping[str, Any], place: Tensor) -> Batch:
    """The samples in these places."""
    found = learner.samples(memory["reservoir"][place], memory["of_task"][place])
    return found._replace(y=found.y.clamp(min=0))
