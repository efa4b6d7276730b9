"""A reservoir: a uniform random sample of everything seen so far, without knowing how much will follow."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from threefold.methods.learner import Batch, Learner, Memory


def empty(places: int) -> Memory:
    """A reservoir with this many places. Samples are indices into the training data, each with its task."""
    return {
        "reservoir": torch.zeros(places, dtype=torch.long),
        "of_task": torch.zeros(places, dtype=torch.long),
        "come": torch.tensor(0),  # samples so far, in the reservoir or not
    }


def taken_in(memory: Mapping[str, Any], batch: Batch, uniform: Tensor, **also: Tensor) -> Memory:
    """The reservoir after a batch; `uniform` holds a number in [0, 1) for each sample (Vitter 1985, algorithm R).

    `also`: further entries of the memory with a row for each place, and the value to store with each sample.

    The n-th sample takes place n while there is room; later it draws one of n places at random, and is stored if the
    reservoir has that place. If several samples of a batch draw one place, the last one stays, as if added in turn.
    """
    size, most = len(batch.y), memory["reservoir"].shape[0]
    order = torch.arange(size, device=batch.y.device)
    number = memory["come"] + order
    place = torch.where(number < most, number, (uniform * (number + 1)).long())
    replaced = ((place.unsqueeze(1) == place) & (order.unsqueeze(1) < order)).any(1)
    place = torch.where(replaced | (place >= most), most, place)  # one past the last place: discarded

    def written(old: Tensor, new: Tensor) -> Tensor:
        rows = place.view(-1, *[1] * (new.dim() - 1)).expand_as(new)
        return torch.cat([old, old[:1]]).scatter(0, rows, new)[:most]

    fresh = {"reservoir": batch.indices, "of_task": batch.task, **also}
    return {name: written(memory[name], new) for name, new in fresh.items()} | {"come": memory["come"] + size}


def places(memory: Mapping[str, Any], uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Random occupied places, by numbers in [0, 1), and whether anything is stored: if not, they are invalid."""
    held = memory["come"].clamp(max=memory["reservoir"].shape[0])
    return (uniform * held).long(), held > 0


def drawn(learner: Learner, memory: Mapping[str, Any], uniform: Tensor) -> tuple[Batch, Tensor]:
    """A random batch of stored samples, and whether anything is stored: see `places`."""
    place, some = places(memory, uniform)
    return stored(learner, memory, place), some


def stored(learner: Learner, memory: Mapping[str, Any], place: Tensor) -> Batch:
    """The samples in these places."""
    found = learner.samples(memory["reservoir"][place], memory["of_task"][place])
    return found._replace(y=found.y.clamp(min=0))
