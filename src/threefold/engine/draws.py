"""Everything a task's steps draw: batches, stored samples, noise. Addressed by seed, so no replica shifts another's."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from threefold.engine.lockstep import Lockstep
from threefold.engine.schedule import schedule
from threefold.methods.part import Batch, Noise, Samples
from threefold.randomness import generator

NOISE_CHUNK = 50  # steps whose noise is drawn at once; part of a draw's address, so not to be tuned


class Draws:
    """The draws of one task for all replicas, by step."""

    def __init__(self, stack: Lockstep, steps: int) -> None:
        self.stack = stack
        replicas = range(len(stack.seeds))
        current, further = zip(*(_of_replica(stack, replica, steps) for replica in replicas), strict=True)
        self.current = _stacked(current, stack.device)
        self.samples: dict[str, Samples] = {}
        self.noise: dict[str, Noise] = {}
        for name, wish in further[0].items():
            if isinstance(wish, Noise):
                self.noise[name] = wish
            else:
                self.samples[name] = _stacked([draws[name] for draws in further], stack.device)
        self._chunk: tuple[int, dict[str, Tensor]] = (-1, {})

    def at(self, step: int) -> tuple[Batch, dict[str, Batch | Tensor]]:
        """What the step works on (steps count from 0)."""
        drawn: dict[str, Batch | Tensor] = {name: self._batch(samples, step) for name, samples in self.samples.items()}
        if self.noise:
            chunk, place = divmod(step, NOISE_CHUNK)
            if self._chunk[0] != chunk:
                self._chunk = (chunk, {name: self._draw(name, wish, chunk) for name, wish in self.noise.items()})
            drawn |= {name: noise[:, place] for name, noise in self._chunk[1].items()}
        return self._batch(self.current, step), drawn

    def _batch(self, samples: Samples, step: int) -> Batch:
        task = samples.task if samples.task.dim() == 0 else samples.task[:, step]
        return self.stack.material.train(samples.indices[:, step], task)

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


def _of_replica(stack: Lockstep, replica: int, steps: int) -> tuple[Samples, dict[str, Samples | Noise]]:
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
        further |= part.draws(setting, seed, task, memory[part.name], steps)
    return current, further


def _stacked(samples: Sequence[Any], device: torch.device) -> Samples:
    """Replicas × steps × batch; a task that is the same for all samples stays one number."""
    indices = torch.stack([s.indices for s in samples]).to(device)
    if all(s.task.dim() == 0 for s in samples):
        return Samples(indices, samples[0].task.to(device))
    return Samples(indices, torch.stack([s.task.expand_as(s.indices) for s in samples]).to(device))
