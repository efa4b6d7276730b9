"""Everything a task's steps draw: batches, stored samples, noise. Addressed by seed, so no replica shifts another's."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Self

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

    def __init__(self, stack: Lockstep, steps: int, ahead: "Ahead | None" = None) -> None:
        self.stack = stack
        drawn = ahead.take(stack) if ahead else None
        self.current = _placed(*(drawn or _batches(stack, stack.task, steps)), stack.device)
        further = side_by_side(partial(_further, stack, steps), range(len(stack.seeds)))
        self.samples: dict[str, Samples] = {}
        self.noise: dict[str, Noise] = {}
        for name, wish in further[0].items():
            if isinstance(wish, Noise):
                self.noise[name] = wish
            else:
                self.samples[name] = _placed(_stacked([draws[name] for draws in further]), None, stack.device)
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


class Ahead:
    """The batches of the next task, drawn while a GPU trains this one: it has little use for the cores."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._drawn: dict[tuple[Lockstep, int], Future[tuple[Samples, list[int]]]] = {}

    def look(self, stacks: Sequence[Lockstep], task: int, steps: int) -> None:
        """Have the batches of this task drawn, of stacks for which nothing has to be remembered first."""
        for stack in stacks:
            if _spares_cores(stack) and not any(_remembers(stack, part) for part in _pooling(stack)):
                self._drawn[stack, task] = self._thread.submit(_batches, stack, task, steps)

    def take(self, stack: Lockstep) -> tuple[Samples, list[int]] | None:
        drawn = self._drawn.pop((stack, stack.task), None)
        return drawn.result() if drawn else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)


def _spares_cores(stack: Lockstep) -> bool:
    return stack.device.type == "cuda"


def _pooling(stack: Lockstep) -> list[Part]:
    """The parts that add to a task's own data."""
    return [part for part in stack.methods[0].parts if type(part).pool is not Part.pool]


def _remembers(stack: Lockstep, part: Part) -> bool:
    return bool(stack.memory[part.name]) or type(part).consolidate is not Part.consolidate


def _batches(stack: Lockstep, task: int, steps: int) -> tuple[Samples, list[int]]:
    """Batches that differ, and which of them each replica has: those of its seed, unless a part adds data."""
    alike = list(range(len(stack.seeds))) if _pooling(stack) else list(stack.seeds)
    first = {key: alike.index(key) for key in alike}
    found = _stacked(side_by_side(partial(_current, stack, task, steps), first.values()))
    return found, [list(first).index(key) for key in alike]


def _memory(stack: Lockstep, replica: int) -> Mapping[str, Any]:
    memory: Mapping[str, Any] = tree_map(lambda leaf: leaf[replica], stack.memory)
    return memory


def _current(stack: Lockstep, task: int, steps: int, replica: int) -> Samples:
    """One replica's batches of the task's data, and of what a part adds to them."""
    tasks, setting = stack.material.sequences[replica], stack.setting
    pooling = [part.name for part in _pooling(stack)]
    memory = _memory(stack, replica) if pooling else {}
    parts = [part for part in stack.methods[replica].parts if part.name in pooling]
    pools = (part.pool(tasks, task, memory[part.name]) for part in parts)
    pool = next((p for p in pools if p is not None), [(task, tasks[task].train)])
    known = stack.outputs[replica].scenario.task_known
    return schedule(pool, stack.seeds[replica], task, steps, setting.batch, shared_equally=known)


def _further(stack: Lockstep, steps: int, replica: int) -> dict[str, Samples | Noise]:
    """What else one replica's parts draw."""
    memory = _memory(stack, replica)
    further: dict[str, Samples | Noise] = {}
    for part in stack.methods[replica].parts:
        further |= stack.wishes(part, stack.seeds[replica], memory[part.name], steps)
    return further


def _stacked(samples: Sequence[Any]) -> Samples:
    """Replicas × steps × batch; a task that is the same for all samples stays one number."""
    indices = torch.stack([s.indices for s in samples])
    if all(s.task.dim() == 0 for s in samples):
        return Samples(indices, samples[0].task)
    return Samples(indices, torch.stack([s.task.expand_as(s.indices) for s in samples]))


def _placed(samples: Samples, rows: Sequence[int] | None, device: torch.device) -> Samples:
    """On the device, one row for each replica; `rows`: which it has, if not its own, of a task's own data."""
    indices, task = (each.to(device) for each in samples)
    if rows is None or len(rows) == len(indices):
        return Samples(indices, task)
    return Samples(indices[torch.tensor(rows, device=device)], task)
