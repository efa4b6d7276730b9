"""What the steps of a task work on: batches, stored samples, noise. Drawn by seed, so replicas are independent.

They are drawn in chunks of steps, into the same tensors, so that memory does not grow with the length of a task.
"""

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from threefold.engine.augmentation import NUMBERS
from threefold.engine.batches import Batches, FlowingBatches, Passes, Pool
from threefold.engine.stack import ReplicaStack, in_place
from threefold.engine.threads import in_threads
from threefold.engine.training import Training
from threefold.errors import ThreefoldError
from threefold.methods.learner import STEP, Batch, Draws, Noise, OfLabel, Samples, Uniform
from threefold.networks import uniform
from threefold.randomness import generator

# they determine the random numbers, so they must not be tuned
STEPS_AT_ONCE = 5000  # steps whose samples are drawn at once
NOISE_AT_ONCE = 50  # steps whose noise is drawn at once
CURRENT = "current data"


class Sampler:
    """What one task's steps work on, for all replicas, by step."""

    def __init__(self, stack: ReplicaStack, training: Training, prefetch: "Prefetch | None" = None) -> None:
        self.stack, self.task = stack, stack.task
        pools = [_pool(stack, replica) for replica in range(len(stack.seeds))]
        self.each_steps = _steps(stack, training, self.task, pools)  # steps of each replica
        self.steps = max(self.each_steps)
        self.each_at_once = _at_once(self.each_steps)
        self.at_once = max(self.each_at_once)
        stack.steps.copy_(torch.tensor(self.each_steps))
        ready = prefetch.take(stack) if prefetch else None
        if any(pools) or ready is None:
            ready = _Order(stack, self.task, self.each_at_once, pools)
        self._order = ready
        self._memories = [{} if stack.flow else _memory(stack, replica) for replica in range(len(stack.seeds))]
        self.current, self.samples, self.noise = self._chunk(0)
        self._noise: dict[str, Tensor] = {}
        self._keys = {name: self._key(name) for name in (CURRENT, *self.samples)} if training.augment else {}

    def _chunk(self, number: int) -> tuple[Samples, dict[str, Samples], dict[str, Noise | Uniform]]:
        """The samples of a chunk's steps, on the device, and the noise that they request."""
        device = self.stack.device
        current = _to_device(self._order.take(number), device)
        drawn = in_threads(partial(self._draws, number), range(len(self.stack.seeds)))
        samples = {name: [each[name] for each in drawn] for name, wish in drawn[0].items() if isinstance(wish, Samples)}
        noise = {name: wish for name, wish in drawn[0].items() if isinstance(wish, Noise | Uniform)}
        return current, {name: _to_device(_stacked(each), device) for name, each in samples.items()}, noise

    def _draws(self, chunk: int, replica: int) -> Draws:
        """What one replica's parts draw: for its own number of steps, however many the others take."""
        stack, drawn, own = self.stack, Draws(), self.each_at_once[replica]
        where = (self.task, chunk) if chunk else (self.task,)
        for part in stack.methods[replica].parts:
            source = generator(stack.seeds[replica], f"{part.name} replay", *where)
            memory = self._memories[replica].get(part.name, {})
            wishes = part.draws(stack.setting, self.task, memory, own, source)
            if twice := wishes.keys() & drawn.keys():
                raise ThreefoldError(f"draws of {part.name} gives '{min(twice)}', a name that another part has taken.")
            for name, wish in wishes.items():
                drawn[name] = self._of_labels(wish, replica, source) if isinstance(wish, OfLabel) else wish
        if own == self.at_once:
            return drawn
        return {n: _extended(wish, self.at_once) if isinstance(wish, Samples) else wish for n, wish in drawn.items()}

    def _of_labels(self, wish: OfLabel, replica: int, source: torch.Generator) -> Samples:
        """The samples of each label come in reshuffled passes."""
        found = torch.empty(len(wish.label), self.stack.setting.batch, dtype=torch.long)
        for label in sorted(set(wish.label.tolist())):
            own, mine = self.stack.samples_of(replica, label), wish.label == label
            found[mine] = own[Passes(len(own), 1).take(found[mine].numel(), source)].view(-1, found.shape[1])
        return Samples(found, torch.tensor(self.task))

    def replaced_by(self, new: "Sampler") -> bool:
        """Copy the next task's sampler into this one's tensors; False if they do not fit."""
        mine, its = ((each.current, each.samples, each._keys) for each in (self, new))
        if (self.steps, self.noise) != (new.steps, new.noise) or in_place(mine, its) is not mine:
            return False
        self.task, self._order, self._memories = new.task, new._order, new._memories
        self.each_at_once = new.each_at_once
        return True

    def prepare(self, step: int) -> None:
        """Draw the chunks that begin at this step (counted from 0), if any do."""
        if step and step % self.at_once == 0:
            self._take_chunk(step // self.at_once)
        if self.noise and step % NOISE_AT_ONCE == 0:
            self._take_noise(step // NOISE_AT_ONCE)

    def go_on(self, step: int) -> None:
        """Resume at this step. Each batch depends on those before it, so all of them are drawn."""
        for chunk in range(1, (step - 1) // self.at_once + 1):
            self._take_chunk(chunk)
        if self.noise and step % NOISE_AT_ONCE:
            self._take_noise(step // NOISE_AT_ONCE)

    def _take_chunk(self, number: int) -> None:
        current, samples, _ = self._chunk(number)
        in_place((self.current, self.samples), (current, samples))

    def _take_noise(self, chunk: int) -> None:
        fresh = {name: self._draw(name, wish, chunk) for name, wish in self.noise.items()}
        self._noise = in_place(self._noise, fresh)

    def at(self, step: int | Tensor) -> tuple[Batch, dict[str, Batch | Tensor]]:
        """The data of a step; if the step is a tensor on the device, it is looked up there."""
        place = step if self.steps == self.at_once else step % self.at_once

        def batch(name: str, samples: Samples) -> Batch:
            return self._batch(samples, place, *self._moves(name, samples, step))

        drawn: dict[str, Batch | Tensor] = {name: batch(name, samples) for name, samples in self.samples.items()}
        drawn |= {name: _column(noise, step % NOISE_AT_ONCE) for name, noise in self._noise.items()}
        return batch(CURRENT, self.current), drawn

    def _batch(self, samples: Samples, step: int | Tensor, moves: Tensor | None = None) -> Batch:
        task = samples.task if samples.task.dim() == 0 else _column(samples.task, step)
        return self.stack.data.train(_column(samples.indices, step), task, moves)

    def _key(self, name: str) -> Tensor:
        """The key of the augmentation of samples drawn under this name, for each replica."""
        each = (generator(seed, f"augmentation of {name}", self.task) for seed in self.stack.seeds)
        return torch.tensor([source.initial_seed() & 0x7FFFFFFF for source in each], device=self.stack.device)

    def _moves(self, name: str, samples: Samples, step: int | Tensor) -> list[Tensor]:
        """The random numbers that augment a step's images, from seed, task, step and name alone; or none."""
        if not self._keys:
            return []
        key = self._keys[name] + step * STEP
        return [uniform(key.view(-1, 1, 1), 0, [samples.indices.shape[-1], NUMBERS])]

    def _draw(self, name: str, wish: Noise | Uniform, chunk: int) -> Tensor:
        device, draw = self.stack.device, torch.randn if isinstance(wish, Noise) else torch.rand
        sources = (generator(seed, name, self.task, chunk, device=device) for seed in self.stack.seeds)
        return torch.stack([draw(NOISE_AT_ONCE, *wish.shape, generator=source, device=device) for source in sources])


class _Order:
    """The batches of a task for all replicas. Equal seeds have equal batches, unless a part adds data."""

    def __init__(self, stack: ReplicaStack, task: int, steps: Sequence[int], pools: "Sequence[Pool | None]") -> None:
        """`steps`: how many steps each replica draws at once."""
        self.steps = max(steps)
        seeds = list(zip(stack.seeds, stack.data.orders, strict=True))
        keys: list[Hashable] = list(range(len(seeds))) if any(pools) else list(seeds)
        first = {key: keys.index(key) for key in keys}
        self._own = [steps[replica] for replica in first.values()]
        self._each = [_batches(stack, task, replica, pools[replica]) for replica in first.values()]
        places = {key: place for place, key in enumerate(first)}
        self._rows = torch.tensor([places[key] for key in keys])
        self._next = self._draw()

    def take(self, chunk: int) -> Samples:
        """The samples of a chunk; chunks must be taken in order."""
        if chunk:
            self._next = self._draw()
        return self._next

    def _draw(self) -> Samples:
        each = list(zip(self._each, self._own, strict=True))
        found = _stacked(in_threads(lambda one: _extended(one[0].take(one[1]), self.steps), each))
        if len(self._each) == len(self._rows):
            return found
        return Samples(found.indices[self._rows], found.task if found.task.dim() == 0 else found.task[self._rows])


def _batches(stack: ReplicaStack, task: int, replica: int, pool: "Pool | None") -> Batches | FlowingBatches:
    seed, batch, tasks = stack.seeds[replica], stack.setting.batch, stack.data.sequences[replica]
    if stack.flow and not pool:
        return FlowingBatches([(number, each.train) for number, each in enumerate(tasks)], seed, batch, stack.flow)
    known = stack.setting.outputs.scenario.task_known
    return Batches(pool or [(task, tasks[task].train)], seed, task, batch, shared_equally=known)


class Prefetch:
    """The batches of the next task, drawn on idle cores while a GPU trains this one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._ready: dict[tuple[ReplicaStack, int], Future[_Order]] = {}

    def begin(self, stacks: Sequence[ReplicaStack], task: int, training: Training) -> None:
        """Start drawing the task's own data; the result is discarded if a part then changes the data."""
        for stack in stacks:
            if _idle_cores(stack) and not stack.flow and not _pool(stack, 0):
                nothing = [None] * len(stack.seeds)
                steps = _at_once(_steps(stack, training, task, nothing))
                self._ready[stack, task] = self._thread.submit(_Order, stack, task, steps, nothing)

    def take(self, stack: ReplicaStack) -> _Order | None:
        ready = self._ready.pop((stack, stack.task), None)
        return ready.result() if ready else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)


def own_steps(stack: ReplicaStack, training: Training, task: int) -> int:
    """The most steps that a replica takes on a task's own data."""
    return max(_steps(stack, training, task, [None] * len(stack.seeds)))


def _steps(stack: ReplicaStack, training: Training, task: int, pools: "Sequence[Pool | None]") -> list[int]:
    if stack.flow:
        return [stack.flow.steps] * len(stack.seeds)
    if training.iters:
        return [training.iters] * len(stack.seeds)
    own = [tasks[task].train for tasks in stack.data.sequences]
    each = zip(pools, own, strict=True)
    return [training.steps(sum(len(index) for _, index in pool) if pool else len(mine)) for pool, mine in each]


def _at_once(steps: Sequence[int]) -> list[int]:
    return [min(own, STEPS_AT_ONCE) for own in steps]


def _extended(samples: Samples, steps: int) -> Samples:
    """Repeat a replica's samples beyond its own steps, so that all have one shape; those steps' effects are undone."""
    own = len(samples.indices)
    if own == steps:
        return samples
    place = torch.arange(steps) % own
    task = samples.task if samples.task.dim() == 0 else samples.task.expand_as(samples.indices)[place]
    return Samples(samples.indices[place], task)


def _idle_cores(stack: ReplicaStack) -> bool:
    return stack.device.type == "cuda"


def _pool(stack: ReplicaStack, replica: int) -> Pool | None:
    """The data that a part chooses for the current task; None: the task's own."""
    tasks, memory = stack.data.sequences[replica], _memory(stack, replica)
    task = len(tasks) - 1 if stack.flow else stack.task  # where tasks have no ends, any may come
    pools = (part.data(tasks, task, memory[part.name]) for part in stack.methods[replica].parts)
    return next((pool for pool in pools if pool is not None), None)


def _memory(stack: ReplicaStack, replica: int) -> Mapping[str, Any]:
    memory: Mapping[str, Any] = tree_map(lambda leaf: leaf[replica], stack.memory)
    return memory


def _column(table: Tensor, step: int | Tensor) -> Tensor:
    return table[:, step] if isinstance(step, int) else table.index_select(1, step.view(1)).squeeze(1)


def _stacked(samples: Sequence[Any]) -> Samples:
    """Stack to replicas × steps × batch; a task that is the same for all samples stays one number."""
    index = torch.stack([s.indices for s in samples])
    if all(s.task.dim() == 0 for s in samples):
        return Samples(index, samples[0].task)
    return Samples(index, torch.stack([s.task.expand_as(s.indices) for s in samples]))


def _to_device(samples: Samples, device: torch.device) -> Samples:
    return Samples(*(each.to(device) for each in samples))
