"""The order in which one replica sees the data, drawn in chunks of steps."""

import torch
from torch import Tensor

from threefold.engine.flow import Flow
from threefold.methods.learner import Samples
from threefold.randomness import generator

Pool = list[tuple[int, Tensor]]  # the data of a task, as tasks and the indices of their samples


class Passes:
    """Positions in a pool of samples: reshuffled passes, each without its incomplete last batch."""

    def __init__(self, size: int, batch: int) -> None:
        self.size, self.batch = size, batch
        self._left = torch.empty(0, batch, dtype=torch.long)

    def take(self, steps: int, source: torch.Generator) -> Tensor:
        """The next positions, steps × batch."""
        whole = self.size // self.batch
        passes = -(-(steps - len(self._left)) // whole)
        shuffled = [torch.randperm(self.size, generator=source)[: whole * self.batch] for _ in range(passes)]
        rows = torch.cat([self._left, *(each.view(-1, self.batch) for each in shuffled)])
        self._left = rows[steps:]
        return rows[:steps]


class Batches:
    """The order in which one replica sees the data of one task.

    `shared_equally`: each batch is divided equally between the pool's tasks (Task-IL, where each has its own head);
    otherwise all data are drawn with equal probability.
    """

    def __init__(self, pool: Pool, seed: int, task: int, batch: int, *, shared_equally: bool) -> None:
        self.pool, self.batch = pool, batch
        self.source = generator(seed, "batches", task)
        self.shared = shared_equally and len(pool) > 1
        self._taken = 0  # samples so far
        if self.shared:
            self._passes = [Passes(len(index), 1) for _, index in pool]
            return
        self._index = torch.cat([index for _, index in pool])
        self._task = torch.tensor(pool[0][0])
        if len(pool) > 1:
            self._task = torch.cat([torch.full_like(index, number) for number, index in pool])
        self._passes = [Passes(len(self._index), batch)]

    def take(self, steps: int) -> Samples:
        if not self.shared:
            chosen = self._passes[0].take(steps, self.source)
            return Samples(self._index[chosen], self._task if self._task.dim() == 0 else self._task[chosen])
        turn = (torch.arange(steps * self.batch) + self._taken) % len(self.pool)  # continued from batch to batch
        self._taken += steps * self.batch
        chosen, tasks = torch.empty_like(turn), torch.empty_like(turn)
        for place, ((number, index), passes) in enumerate(zip(self.pool, self._passes, strict=True)):
            mine = turn == place
            chosen[mine] = index[passes.take(int(mine.sum()), self.source).flatten()]
            tasks[mine] = number
        return Samples(chosen.view(steps, self.batch), tasks.view(steps, self.batch))


class FlowingBatches:
    """The order in which one replica sees the data of all tasks where tasks have no ends.

    Each sample's task is drawn with the step's probabilities; each task's samples come in reshuffled passes.
    """

    def __init__(self, pool: Pool, seed: int, batch: int, flow: Flow) -> None:
        self.pool, self.batch, self.flow = pool, batch, flow
        self.source = generator(seed, "batches", 0)
        self._passes = [Passes(len(index), 1) for _, index in pool]
        self._done = 0  # steps
        self._tasks = self._within(self._drawn(0, flow.steps)) if flow.online else None

    def take(self, steps: int) -> Samples:
        """The next samples; those beyond the end of the flow are never used."""
        start, self._done = self._done, self._done + steps
        if self._tasks is None:
            tasks = self._drawn(start, start + steps)
        else:
            tasks = self._tasks[torch.arange(start, start + steps).clamp(max=len(self._tasks) - 1)]
        chosen = torch.empty_like(tasks)
        for (number, index), passes in zip(self.pool, self._passes, strict=True):
            mine = tasks == number
            chosen[mine] = index[passes.take(int(mine.sum()), self.source).flatten()]
        return Samples(chosen, tasks)

    def _drawn(self, start: int, stop: int) -> Tensor:
        """A task for each sample of these steps, steps × batch."""
        bounds = self.flow.chances(start, stop).cumsum(1)[:, :-1]
        uniform = torch.rand(stop - start, self.batch, generator=self.source, dtype=torch.float64)
        return (uniform.unsqueeze(-1) >= bounds.unsqueeze(1)).sum(-1)

    def _within(self, tasks: Tensor) -> Tensor:
        """Use no task more often than it has samples: its last draws go to tasks that have some left."""
        counts = torch.bincount(tasks.flatten(), minlength=len(self.pool))
        room = torch.tensor([len(index) for _, index in self.pool]) - counts
        flat = tasks.flatten()
        for number in torch.nonzero(room < 0).flatten().tolist():
            extra = torch.nonzero(flat == number).flatten()[room[number] :]
            for other in torch.nonzero(room > 0).flatten().tolist():
                some, extra = extra[: room[other]], extra[room[other] :]
                flat[some] = other
                room[other] -= len(some)
            room[number] = -len(extra)
        return flat.view_as(tasks)
