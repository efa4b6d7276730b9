"""Stored data: as exemplars during execution, replayed during training, or both (sections 3.4, A.4 and C).

Stored data are indices into the training tensor: for every class of every task an ordered list, cut to the budget.
A class here is a label of a task; in Domain-IL several classes share an output unit. A reservoir needs no task to end.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad
from torch.nn.utils.rnn import pad_sequence

from threefold.methods import reservoir
from threefold.methods.herding import herd
from threefold.methods.learner import (
    Batch,
    Draws,
    Learner,
    Memory,
    Params,
    Replay,
    Samples,
    Setting,
    Stack,
    Step,
    Uniform,
)
from threefold.methods.method import classification
from threefold.methods.part import Part, hyper
from threefold.randomness import generator

Selection = Literal["herding", "random", "reservoir"]
SHOWN = 8  # stored samples of each task that are kept for reports


class Exemplars(Part):
    """A memory of at most `budget` samples: divided equally over the classes seen so far, for each class, or as one
    reservoir."""

    budget: int = hyper("how many samples may be stored", 2000, ge=1)
    selection: Selection = hyper("how the samples to store are chosen", "herding")
    unit_length: bool = hyper("scale features and class means to unit length", True)
    per_class: bool = hyper("the budget is of each class, not divided over all", False, later=True)

    def per_replica(self) -> list[str]:
        """A reservoir is allocated at full size from the start, so all networks of a stack must have the same."""
        return [name for name in super().per_replica() if name != "budget" or not self.is_reservoir]

    @property
    def is_reservoir(self) -> bool:
        return self.selection == "reservoir"

    def refuse(self, setting: Setting) -> str | None:
        if not setting.tasks_end and not self.is_reservoir:
            return (
                f"{self.name} chooses what to store when a task ends, and in this stream none does; use"
                f" {self.name}:selection=reservoir."
            )
        if self.per_class and self.is_reservoir:
            return f"per_class of {self.name} is true, but a reservoir is one for all classes; use another selection."
        classes = setting.outputs.before(setting.outputs.tasks)
        if self.budget >= classes or self.is_reservoir or self.per_class:
            return None
        return f"budget of {self.name} must be at least {classes}, one sample of each class, got {self.budget}."

    @property
    def classifies(self) -> bool:
        """Are the stored samples used to classify?"""
        return False

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        return reservoir.empty(self.budget) if self.is_reservoir else {}

    def after_step(self, learner: Learner, step: Step) -> Memory | None:
        if not self.is_reservoir:
            return None
        return reservoir.taken_in(learner.memory[self.name], step.batch, learner.drawn[f"{self.name} kept"])

    def features(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        found = learner.features(x, task)
        return normalize(found, dim=-1) if self.unit_length else found

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """Store exemplars of the finished task's classes, and cut those of earlier tasks to their new share."""
        if self.is_reservoir:
            return memory
        outputs = stack.setting.outputs
        budgets = torch.as_tensor(self.budget).expand(len(stack.seeds)).cpu()
        share = budgets if self.per_class else budgets // outputs.before(task + 1)  # m, for each replica
        most = int(share.max())
        stored, count = [], []
        for earlier in range(outputs.before(task)):
            stored.append(memory["stored"][:, earlier, :most])
            count.append(torch.minimum(memory["count"][:, earlier].cpu(), share))
        for label in range(outputs.size(task)):
            own = stack.own_samples(label)
            sizes = torch.tensor([len(samples) for samples in own])
            stored.append(self._select(stack, own, task, label, share.tolist()))
            count.append(torch.minimum(sizes, share))
        longest = max(s.shape[1] for s in stored)
        padded = [pad(s, (0, longest - s.shape[1])) for s in stored]
        memory = memory | {"stored": torch.stack(padded, 1), "count": torch.stack(count, 1).to(stack.device)}
        return memory | ({"means": self._means(stack, memory, task)} if self.classifies else {})

    def _select(self, stack: Stack, own: Sequence[Tensor], task: int, label: int, shares: Sequence[int]) -> Tensor:
        """The ordered exemplars of one new class, for every replica: as many as its share."""
        if self.selection == "random":
            sources = [generator(seed, "exemplars", task, label) for seed in stack.seeds]
            each = zip(own, sources, shares, strict=True)
            drawn = [samples[torch.randperm(len(samples), generator=g)[:share]] for samples, g, share in each]
            return pad_sequence(drawn, batch_first=True).to(stack.device)
        features, real, index = [], [], []
        for batch, weight in stack.training_data(own):
            features.append(stack.map(lambda learner, b: self.features(learner, b.x, b.task), batch))
            real.append(weight > 0)
            index.append(batch.indices)
        chosen = herd(torch.cat(features, 1), torch.cat(real, 1), shares)
        return torch.cat(index, 1).gather(1, chosen)

    def _means(self, stack: Stack, memory: Memory, task: int) -> Tensor:
        """The mean feature of each class's exemplars: replicas × classes × features."""
        means = []
        tasks = stack.setting.outputs.tasks_of_classes(task + 1, torch.device("cpu")).tolist()
        for place, own in enumerate(tasks):
            counts = memory["count"][:, place].tolist()
            stored = [row[:n] for row, n in zip(memory["stored"][:, place].cpu(), counts, strict=True)]
            pieces = [
                stack.map(lambda learner, b: self.features(learner, b.x, b.task), batch)
                for batch, _ in stack.training_data(stored, own)
            ]
            # replica by replica: with padding, rounding would depend on the longest list of the stack
            found = zip(torch.cat(pieces, 1), counts, strict=True)
            mean = torch.stack([features[:n].mean(0) for features, n in found])
            means.append(normalize(mean, dim=-1) if self.unit_length else mean)
        return torch.stack(means, 1)

    def keep(self, stack: Stack, memory: Memory) -> dict[str, Tensor]:
        """Images: the finished task's first stored samples, equally many of each class; black where there are fewer."""
        setting, outputs = stack.setting, stack.setting.outputs
        if self.is_reservoir or not setting.unit_interval or len(setting.shape) != 3 or setting.shape[0] not in (1, 3):
            return {}
        task = int(outputs.tasks_of_classes(outputs.tasks, torch.device("cpu"))[memory["stored"].shape[1] - 1])
        each, first = max(1, SHOWN // outputs.size(task)), outputs.before(task)
        places = slice(first, first + min(outputs.size(task), SHOWN))
        stored, count = memory["stored"][:, places, :each].cpu(), memory["count"][:, places].cpu()
        stored = pad(stored, (0, each - stored.shape[2])).flatten(1)
        images = torch.cat([batch.x for batch, _ in stack.training_data(list(stored), task)], 1)[:, : stored.shape[1]]
        real = (torch.arange(each) < count.unsqueeze(-1)).flatten(1).to(images.device)
        images = torch.where(real.view(*real.shape, 1, 1, 1), images, 0)
        sizes = [outputs.size(number) for number in range(outputs.tasks)]
        most = max(min(size, SHOWN) * max(1, SHOWN // size) for size in sizes)
        images = pad(images, (0, 0) * 3 + (0, most - images.shape[1]))  # the same number for each task
        return {"exemplars": (images * 255).round().to(torch.uint8)}

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor | None:
        """Nearest class mean (section A.4.3): the closer, the higher."""
        memory = learner.memory[self.name]
        if not self.classifies or "means" not in memory:
            return None
        closeness = -torch.cdist(self.features(learner, x, task), memory["means"])
        if not learner.outputs.scenario.task_known:
            return learner.outputs.by_unit(closeness)
        # the task is given: only its classes count; a future task has no exemplars, so the classifier's output is used
        tasks = learner.outputs.tasks_of_classes(learner.outputs.tasks, closeness.device)
        own = tasks[: closeness.shape[-1]] == task
        by_exemplars = learner.outputs.by_unit(torch.where(own, closeness, -torch.inf))
        return torch.where(own.any(), by_exemplars, learner.logits(x, task))

    def from_memory(self, learner: Learner, batch: Batch) -> Replay | None:
        """This step's draw of stored samples; the batch itself while the reservoir is empty."""
        if not self.is_reservoir:
            stored = learner.drawn.get(f"{self.name} stored")
            return Replay(stored.x, stored.y, stored.task) if stored else None
        stored, some = reservoir.drawn(learner, learner.memory[self.name], learner.drawn[f"{self.name} place"])
        x = torch.where(some, stored.x, batch.x)
        return Replay(x, torch.where(some, stored.y, batch.y), torch.where(some, stored.task, batch.task))

    def stored_samples(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        """A batch of stored samples for every step, shared equally over the earlier tasks; none in the first."""
        if self.is_reservoir:
            return {f"{self.name} {what}": Uniform((setting.batch,)) for what in ("place", "kept")}
        if not task:
            return {}
        batch, outputs = setting.batch, setting.outputs
        tasks = (torch.arange(steps * batch) % task).view(steps, batch)
        sizes = torch.tensor([outputs.size(earlier) for earlier in range(task)])
        before = torch.tensor([outputs.before(earlier) for earlier in range(task)])
        if (sizes == sizes[0]).all():
            label = torch.randint(int(sizes[0]), (steps, batch), generator=source)
        else:
            label = (torch.rand(steps, batch, generator=source) * sizes[tasks]).long()
        place = before[tasks] + label
        stored, count = memory["stored"].cpu(), memory["count"].cpu()
        slot = (torch.rand(steps, batch, generator=source) * count[place]).long()
        return {f"{self.name} stored": Samples(stored[place, slot], tasks)}


class Rehearsed(Exemplars):
    """Stored data that are sampled during training."""

    sampling: Literal["turns", "whole"] = hyper(
        "a batch of stored samples: the earlier tasks' by turns, or of all that is stored (where the task is given, of"
        " each earlier task batch / number of them, rounded up)",
        "turns",
        later=True,
    )

    def refuse(self, setting: Setting) -> str | None:
        if self.is_reservoir and self.sampling == "whole":
            return f"sampling of {self.name} is whole, as a reservoir's always is; leave it out."
        return super().refuse(setting)

    def stored_samples(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        if self.sampling == "turns" or self.is_reservoir or not task:
            return super().stored_samples(setting, task, memory, steps, source)
        outputs, stored, count = setting.outputs, memory["stored"].cpu(), memory["count"].cpu()
        ends = count.cumsum(0)
        size, first, held = setting.batch, torch.tensor(0), ends[-1]
        if outputs.scenario.task_known:
            of_task = torch.arange(task).repeat_interleave(-(-size // task))
            bounds = torch.cat([ends.new_zeros(1), ends])[torch.tensor([outputs.before(t) for t in range(task + 1)])]
            size, first, held = len(of_task), bounds[of_task], bounds.diff()[of_task]
        number = first + (torch.rand(steps, size, generator=source) * held).long()
        place = torch.searchsorted(ends, number, right=True)
        tasks = outputs.tasks_of_classes(task, torch.device("cpu"))[place]
        return {f"{self.name} stored": Samples(stored[place, number - (ends - count)[place]], tasks)}


class ER(Rehearsed):
    """Stored data, replayed during training, used as exemplars during execution, or both (appendix C)."""

    name = "er"
    citation = "rolnick2019"
    use: Literal["training", "execution", "both"] = hyper("when the stored data are used", "training")

    @property
    def classifies(self) -> bool:
        return self.use != "training"

    def refuse(self, setting: Setting) -> str | None:
        if self.is_reservoir and self.classifies:
            return (
                f"er uses a reservoir in training alone, got use={self.use}; use er:selection=reservoir,use=training."
            )
        return super().refuse(setting)

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        return {} if self.use == "execution" else self.stored_samples(setting, task, memory, steps, source)

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        return None if self.use == "execution" else self.from_memory(learner, batch)

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor:
        return classification(learner, replay.x, replay.y, replay.task)
