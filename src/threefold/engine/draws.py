"""Everything a task's steps draw: batches, stored samples, noise. Addressed by seed, so no replica shifts another's."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from threefold.engine.lockstep import Lockstep, kept
from threefold.engine.schedule import schedule
from threefold.methods.part import Batch, Noise, Samples
from threefold.randomness import generator

NOISE_CHUNK = 50  # steps whose noise is drawn at once; part of a draw's address, so not to be tuned

WORKERS = 8


class Draws:
    """The draws of one task for all replicas, by step."""

    def __init__(self, stack: Lockstep, steps: int) -> None:
        self.stack = stack
        replicas = range(len(stack.seeds))
        with ThreadPoolExecutor(WORKERS) as pool:  # a GPU waits for this, and permutations take one core each
            current, further = zip(*pool.map(partial(_of_replica, stack, steps), replicas), strict=True)
        self.current = _stacked(current, stack.device)
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
        drawn |= {name: _column(noise, step % NOISE_CHUNK) for name, noise in self._chunk.items()}
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


@torch.no_grad()  # which each thread decides for itself
def _of_replica(stack: Lockstep, steps: int, replica: int) -> tuple[Samples, dict[str, Samples | Noise]]:
    setting, task, seed = stack.setting, stack.task, stack.seeds[replica]
    tasks = stack.material.sequences[replica]
    memory: Mapping[str, Any] = tree_map(lambda leaf: leaf[replica], stack.memory)
    parts = stack.methods[replica].parts
    pools = (part.pool(tasks, task, memory[part.name]) for part in parts)
    pool = next((p for p in pools if p is not None), [(task, tasks[task].train)])
    known = setting.outputs.scenario.task_known
    current = schedule(pool, seed, task, steps, setting.batch, shared_equally=known)
    further: dict[str, Samples | Noise] = {}
    for part in parts:
        further |= stack.wishes(part, seed, memory[part.name], steps)
    return current, further


def _stacked(samples: Sequence[Any], device: torch.device) -> Samples:
    """Replicas × steps × batch; a task that is the same for all samples stays one number."""
    indices = torch.stack([s.indices for s in samples]).to(device)
    if all(s.task.dim() == 0 for s in samples):
        return Samples(indices, samples[0].task.to(device))
    return Samples(indices, torch.stack([s.task.expand_as(s.indices) for s in samples]).to(device))
