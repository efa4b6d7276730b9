"""Which samples reach which step: drawn before a task, addressed by seed and task."""

from collections.abc import Sequence

import torch
from torch import Tensor

from threefold.methods.part import Samples
from threefold.randomness import generator


def passes(size: int, steps: int, batch: int, source: torch.Generator) -> Tensor:
    """Positions (steps × batch) in a pool of `size`: reshuffled passes, each without its incomplete last batch."""
    whole = size // batch
    rounds = -(-steps // whole)
    shuffled = [torch.randperm(size, generator=source)[: whole * batch] for _ in range(rounds)]
    return torch.cat([torch.empty(0, dtype=torch.long), *shuffled]).view(-1, batch)[:steps]


def schedule(
    pool: Sequence[tuple[int, Tensor]], seed: int, task: int, steps: int, batch: int, *, shared_equally: bool
) -> Samples:
    """One replica's batches for one task.

    `shared_equally`: each batch is divided equally between the pool's tasks (Task-IL, where each has its own head);
    otherwise all data are drawn alike.
    """
    source = generator(seed, "batches", task)
    if len(pool) == 1:
        number, indices = pool[0]
        return Samples(indices[passes(len(indices), steps, batch, source)], torch.tensor(number))
    if not shared_equally:
        indices = torch.cat([indices for _, indices in pool])
        tasks = torch.cat([torch.full_like(indices, number) for number, indices in pool])
        chosen = passes(len(indices), steps, batch, source)
        return Samples(indices[chosen], tasks[chosen])
    turn = (torch.arange(steps * batch) % len(pool)).view(steps, batch)  # round robin, on from one batch to the next
    chosen, tasks = torch.empty_like(turn), torch.empty_like(turn)
    for place, (number, indices) in enumerate(pool):
        mine = turn == place
        chosen[mine] = indices[passes(len(indices), int(mine.sum()), 1, source).flatten()]
        tasks[mine] = number
    return Samples(chosen, tasks)
