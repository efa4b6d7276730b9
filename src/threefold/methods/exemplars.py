"""Stored data: as exemplars during execution, replayed during training, or both (sections 3.4, A.4 and C).

Stored data are indices into the training tensor: for every class of every task an ordered list, cut to the budget.
A class here is a label of a task; in Domain-IL several classes share an output unit.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, pad
from torch.nn.utils.rnn import pad_sequence

from threefold.methods.herding import herd
from threefold.methods.learner import Batch, Draws, Learner, Memory, Params, Replay, Samples, Setting, Stack
from threefold.methods.method import classification
from threefold.methods.part import Part, hyper
from threefold.randomness import generator
from threefold.streams import Task

Selection = Literal["herding", "random"]


class Exemplars(Part):
    """A memory of at most `budget` samples, divided equally over the classes seen so far."""

    budget: int = hyper("how many samples may be stored", 2000, ge=1)
    selection: Selection = hyper("how the samples to store are chosen", "herding")
    unit_length: bool = hyper("scale features and class means to unit length", True)

    def refuse(self, setting: Setting) -> str | None:
        classes = setting.outputs.tasks * setting.outputs.classes_per_task
        if self.budget >= classes:
            return None
        return f"budget of {self.name} must be at least {classes}, one sample of each class, got {self.budget}."

    @property
    def classifies(self) -> bool:
        """Are the stored samples used to classify?"""
        return False

    def features(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        found = learner.features(x, task)
        return normalize(found, dim=-1) if self.unit_length else found

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """Take in the classes of the finished task, and cut those of earlier tasks to their new share."""
        outputs = stack.setting.outputs
        budgets = torch.as_tensor(self.budget).expand(len(stack.seeds)).cpu()
        share = budgets // ((task + 1) * outputs.classes_per_task)  # m, for each replica
        most = int(share.max())
        stored, count = [], []
        for earlier in range(task * outputs.classes_per_task):
            stored.append(memory["stored"][:, earlier, :most])
            count.append(torch.minimum(memory["count"][:, earlier].cpu(), share))
        for label in range(outputs.classes_per_task):
            own = stack.own_samples(label)
            sizes = torch.tensor([len(samples) for samples in own])
            stored.append(self._select(stack, own, task, label, share.tolist()))
            count.append(torch.minimum(sizes, share))
        longest = max(s.shape[1] for s in stored)
        padded = [pad(s, (0, longest - s.shape[1])) for s in stored]
        memory = memory | {"stored": torch.stack(padded, 1), "count": torch.stack(count, 1).to(stack.device)}
        return memory | ({"means": self._means(stack, memory)} if self.classifies else {})

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

    def _means(self, stack: Stack, memory: Memory) -> Tensor:
        """The mean feature of each class's exemplars: replicas × classes × features."""
        means = []
        per_task = stack.setting.outputs.classes_per_task
        for place in range(memory["stored"].shape[1]):
            counts = memory["count"][:, place].tolist()
            stored = [row[:n] for row, n in zip(memory["stored"][:, place].cpu(), counts, strict=True)]
            pieces = [
                stack.map(lambda learner, b: self.features(learner, b.x, b.task), batch)
                for batch, _ in stack.training_data(stored, place // per_task)
            ]
            # each replica's by itself: a sum over padding would be rounded by the length of the longest
            found = zip(torch.cat(pieces, 1), counts, strict=True)
            mean = torch.stack([own[:n].mean(0) for own, n in found])
            means.append(normalize(mean, dim=-1) if self.unit_length else mean)
        return torch.stack(means, 1)

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor | None:
        """Nearest class mean (section A.4.3): the closer, the higher."""
        memory = learner.memory[self.name]
        if not self.classifies or "means" not in memory:
            return None
        closeness = -torch.cdist(self.features(learner, x, task), memory["means"])
        if not learner.outputs.scenario.task_known:
            return learner.outputs.by_unit(closeness)
        # the task is given: only its classes count; one still to come has no exemplars, and is left to the classifier
        classes = torch.arange(closeness.shape[-1], device=closeness.device)
        own = classes // learner.outputs.classes_per_task == task
        by_exemplars = learner.outputs.by_unit(torch.where(own, closeness, -torch.inf))
        return torch.where(own.any(), by_exemplars, learner.logits(x, task))

    def stored_samples(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        """A batch of stored samples for every step, shared equally over the earlier tasks; none in the first."""
        if not task:
            return {}
        per_task, batch = setting.outputs.classes_per_task, setting.batch
        tasks = (torch.arange(steps * batch) % task).view(steps, batch)
        place = tasks * per_task + torch.randint(per_task, (steps, batch), generator=source)
        stored, count = memory["stored"].cpu(), memory["count"].cpu()
        slot = (torch.rand(steps, batch, generator=source) * count[place]).long()
        return {f"{self.name} stored": Samples(stored[place, slot], tasks)}


class ER(Exemplars):
    """Stored data, replayed during training, used as exemplars during execution, or both (appendix C)."""

    name = "er"
    use: Literal["training", "execution", "both"] = hyper("when the stored data are used", "training")

    @property
    def classifies(self) -> bool:
        return self.use != "training"

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        return {} if self.use == "execution" else self.stored_samples(setting, task, memory, steps, source)

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        stored = learner.drawn.get(f"{self.name} stored")
        return Replay(stored.x, stored.y, stored.task) if stored else None

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor:
        return classification(learner, replay.x, replay.y, replay.task)


class ICaRL(Exemplars):
    """iCaRL: a feature extractor trained with binary distillation, classes told apart by nearest exemplar mean."""

    name = "icarl"
    temperature: float = hyper("temperature of the sigmoid in the distillation targets", 1.0, gt=0)

    @property
    def classifies(self) -> bool:
        return True

    def refuse(self, setting: Setting) -> str | None:
        if setting.outputs.all_compete:
            return super().refuse(setting)
        return (
            "iCaRL distils the current data on the classes of all earlier tasks, so every class needs a unit of its own"
            f" that competes with all others; in {setting.outputs.scenario.title} it has none."
        )

    def data(self, tasks: Sequence[Task], task: int, memory: Memory) -> list[tuple[int, Tensor]]:
        """The task's own data and all that is stored."""
        pool = [(task, tasks[task].train)]
        for earlier in range(task):
            per_task = len(tasks[earlier].classes)
            places = range(earlier * per_task, (earlier + 1) * per_task)
            stored = [memory["stored"][place, : int(memory["count"][place])].cpu() for place in places]
            pool.append((earlier, torch.cat(stored)))
        return pool

    def loss(self, learner: Learner, batch: Batch) -> Tensor:
        """Binary classification for the task's own classes, distillation for earlier ones (equations 15 and 16)."""
        logits, active = learner.logits(batch.x, batch.task), learner.now.active[batch.task]
        own = batch.y.unsqueeze(-1) == torch.arange(logits.shape[-1], device=logits.device)
        target = own.to(logits.dtype)
        memory = learner.memory[self.name]
        if "teacher" in memory:
            teacher = torch.sigmoid(learner.logits(batch.x, batch.task, params=memory["teacher"]) / self.temperature)
            target = torch.where(learner.now.taught[batch.task], teacher, target)
        per_class = binary_cross_entropy_with_logits(logits, target, reduction="none")
        return torch.where(active, per_class, 0).sum(-1).mean()

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        return super().consolidate(stack, memory, task) | {"teacher": stack.snapshot()}


class AGEM(Exemplars):
    """Averaged gradient episodic memory: no step along a gradient that points against that of stored data."""

    name = "a-gem"
    selection: Selection = hyper("how the samples to store are chosen", "random")

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        return self.stored_samples(setting, task, memory, steps, source)

    def adjust(self, learner: Learner, gradient: Params) -> Params | None:
        """g − (g·r / r·r) r where g·r < 0, with r the gradient on stored data (Chaudhry et al. 2019, equation 11)."""
        stored = learner.drawn.get(f"{self.name} stored")
        if stored is None:
            return None

        def loss(params: Params) -> Tensor:
            return classification(learner, stored.x, stored.y, stored.task, params)

        reference = grad(loss)(learner.params)
        along = sum((g * reference[name]).sum() for name, g in gradient.items())
        length = sum((r**2).sum() for r in reference.values())
        against = torch.clamp(torch.as_tensor(along), max=0) / torch.clamp(torch.as_tensor(length), min=1e-30)
        return {name: g - against * reference[name] for name, g in gradient.items()}
