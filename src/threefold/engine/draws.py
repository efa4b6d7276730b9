"""Everything a task's steps draw: batches, stored samples, noise. Addressed by seed, so no replica shifts another's."""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from threefold.engine.lockstep import Lockstep, kept
from threefold.engine.schedule import schedule
from threefold.engine.threads import side_by_side
from threefold.methods.part import Batch, Noise, Part, Samples
from threefold.randomness import generator

NOISE_CHUNK = 50  # steps whose noise is drawn at once; part of a draw's address, so not to be tuned


class Draws:
    """The draws of one task for all replicas, by step."""

    def __init__(self, stack: Lockstep, steps: int) -> None:
        self.stack = stack
        replicas = range(len(stack.seeds))
        alike = [_batches_depend_on(stack, replica) for replica in replicas]
        first = {key: alike.index(key) for key in alike}
        rows = [list(first).index(key) for key in alike]
        current = side_by_side(partial(_current, stack, steps), first.values())
        further = side_by_side(partial(_further, stack, steps), replicas)
        self.current = _stacked(current, stack.device, rows)
        self.samples: dict[str, Samples] = {}
        self.noise: dict[str, Noise] = {}
        for name, wish in further[0].items():
            if isinstance(wish, Noise):
                self.noise[name] = wish
            else:
                self.samples[name] = _stacked([draws[name] for draws in further], stack.device)
        self._chunk: dict[str, Tensor] = {}

    def replaced_by(self, new: "Draws") -> bool:
        """Take over the draws of another task, in the same tensors; False if they do not fit."""
        mine, its = (self.current, self.samples), (new.current, new.samples)
        return self.noise == new.noise and kept(mine, its) is mine

    def prepare(self, step: int) -> None:
        """Draw the noise of the chunk that this step (counted from 0) begins, if it begins one."""
        if self.noise and step % NOISE_CHUNK == 0:
            chunk = step // NOISE_CHUNK
            fresh = {name: self._draw(name, wish, chunk) for name, wish in self.noise.items()}
            self._chunk = kept(self._chunk, fresh)

    def at(self, step: int | Tensor) -> tuple[Batch, dict[str, Batch | Tensor]]:
        """What the step works on; a step that is a tensor on the device is looked up there."""
        drawn: dict[str, Batch | Tensor] = {name: self._batch(samples, step) for name, samples in self.samples.items()}
        if self._chunk:
            place = step % NOISE_CHUNK
            drawn |= {name: _column(noise, place) for name, noise in self._chunk.items()}
        return self._batch(self.current, step), drawn

    def _batch(self, samples: Samples, step: int | Tensor) -> Batch:
        task = samples.task if samples.task.dim() == 0 else _column(samples.task, step)
        return self.stack.material.train(_column(samples.indices, step), task)

    def _draw(self, name: str, wish: Noise, chunk: int) -> Tensor:
        device, task = self.stack.device, self.stack.task
        return torch.stack(
            [
                torch.randn(
                    NOISE_CHUNK, *wish.shape, generator=generator(seed, name, task, chunk, device=device), device=device
                )
                for seed in self.stack.seeds
            ]
        )


def _column(table: Tensor, step: int | Tensor) -> Tensor:
    return table[:, step] if isinstance(step, int) else table.index_select(1, step.view(1)).squeeze(1)


def _batches_depend_on(stack: Lockstep, replica: int) -> Hashable:
    """Equal for replicas with the same batches: those of a seed, unless a part adds to the task's own data."""
    own = any(type(part).pool is not Part.pool for part in stack.methods[replica].parts)
    return (stack.seeds[replica], replica) if own else stack.seeds[replica]


def _memory(stack: Lockstep, replica: int) -> Mapping[str, Any]:
    memory: Mapping[str, Any] = tree_map(lambda leaf: leaf[replica], stack.memory)
    return memory


def _current(stack: Lockstep, steps: int, replica: int) -> Samples:
    """One replica's batches of the task's data, and of what a part adds to them."""
    task, tasks, memory = stack.task, stack.material.sequences[replica], _memory(stack, replica)
    pools = (part.pool(tasks, task, memory[part.name]) for part in stack.methods[replica].parts)
    pool = next((p for p in pools if p is not None), [(task, tasks[task].train)])
    setting = stack.setting
    known = setting.outputs.scenario.task_known
    return schedule(pool, stack.seeds[replica], task, steps, setting.batch, shared_equally=known)


def _further(stack: Lockstep, steps: int, replica: int) -> dict[str, Samples | Noise]:
    """What else one replica's parts draw."""
    memory = _memory(stack, replica)
    further: dict[str, Samples | Noise] = {}
    for part in stack.methods[replica].parts:
        further |= stack.wishes(part, stack.seeds[replica], memory[part.name], steps)
    return further


def _stacked(samples: Sequence[Any], device: torch.device, rows: Sequence[int] = ()) -> Samples:
    """Replicas × steps × batch; a task that is the same for all samples stays one number.

    `rows`: which of the samples each replica has, if not its own.
    """
    found = [torch.stack([s.indices for s in samples]).to(device)]
    if any(s.task.dim() for s in samples):
        found.append(torch.stack([s.task.expand_as(s.indices) for s in samples]).to(device))
    if len(rows) > len(samples):
        which = torch.tensor(rows, device=device)
        found = [each[which] for each in found]
    return Samples(*found) if len(found) > 1 else Samples(found[0], samples[0].task.to(device))
