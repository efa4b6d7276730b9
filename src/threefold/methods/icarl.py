"""iCaRL: incremental classifier and representation learning (section A.4)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, one_hot

from threefold.methods.exemplars import Exemplars
from threefold.methods.learner import Batch, Draws, Learner, Memory, Replay, Setting, Stack
from threefold.methods.part import hyper
from threefold.streams import Task


class ICaRL(Exemplars):
    """iCaRL: a feature extractor trained with binary distillation, classes chosen by the nearest mean of exemplars."""

    name = "icarl"
    citation = "rebuffi2017"
    over_seen = True
    temperature: float = hyper("temperature of the sigmoid in the distillation targets", 1.0, gt=0)

    @property
    def classifies(self) -> bool:
        return True

    def refuse(self, setting: Setting) -> str | None:
        if setting.outputs.recurring and not self.is_reservoir:
            return "iCaRL stores a class when its task ends, and in this stream classes come again in later tasks."
        if setting.outputs.all_compete:
            return super().refuse(setting)
        return (
            "iCaRL distils the current data on the classes of all earlier tasks, so every class needs a unit of its own"
            f" that competes with all others; in {setting.outputs.scenario.title} it has none."
        )

    def data(self, tasks: Sequence[Task], task: int, memory: Memory) -> list[tuple[int, Tensor]] | None:
        """The task's own data and everything stored. A reservoir is replayed instead."""
        if self.is_reservoir:
            return None
        pool, place = [(task, tasks[task].train)], 0
        for earlier in range(task):
            places = range(place, place := place + len(tasks[earlier].classes))
            stored = [memory["stored"][each, : int(memory["count"][each])].cpu() for each in places]
            pool.append((earlier, torch.cat(stored)))
        return pool

    def loss(self, learner: Learner, batch: Batch) -> Tensor:
        """Binary classification for the task's own classes, distillation for earlier ones (equations 15 and 16)."""
        teacher, memory = None, learner.memory[self.name]
        if "teacher" in memory:
            teacher = torch.sigmoid(learner.logits(batch.x, batch.task, params=memory["teacher"]) / self.temperature)
        return self._binary(learner, batch, teacher)

    def _binary(self, learner: Learner, batch: Batch | Replay, teacher: Tensor | None = None) -> Tensor:
        logits, active = learner.logits(batch.x, batch.task), learner.now.active[batch.task]
        own = batch.y.unsqueeze(-1) == torch.arange(logits.shape[-1], device=logits.device)
        target = own.to(logits.dtype)
        if teacher is not None:
            target = torch.where(learner.now.taught[batch.task], teacher, target)
        per_class = binary_cross_entropy_with_logits(logits, target, reduction="none")
        return torch.where(active, per_class, 0).sum(-1).mean()

    # with a reservoir: its samples are replayed with their labels, not distilled, and class means are taken over it

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        return self.stored_samples(setting, task, memory, steps, source) if self.is_reservoir else {}

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        return self.from_memory(learner, batch) if self.is_reservoir else None

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor:
        return self._binary(learner, replay)

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        if self.is_reservoir:
            return memory | self._means_of_units(stack, memory)
        return super().consolidate(stack, memory, task) | {"teacher": stack.snapshot()}

    def _means_of_units(self, stack: Stack, memory: Memory) -> Memory:
        """The mean feature of the stored samples of each output unit, and which units have any."""
        held = memory["come"].clamp(max=self.budget).tolist()
        stored, task = (
            [row[:n] for row, n in zip(memory[name].cpu(), held, strict=True)] for name in ("reservoir", "of_task")
        )
        units, features, of_unit = stack.setting.outputs.units, [], []
        for batch, weight in stack.training_data(stored, task):
            features.append(stack.map(lambda learner, b: self.features(learner, b.x, b.task), batch))
            of_unit.append(one_hot(batch.y.clamp(min=0), units) * (weight > 0).unsqueeze(-1))
        belongs = torch.cat(of_unit, 1).to(features[0].dtype)
        counts = belongs.sum(1)
        means = belongs.mT @ torch.cat(features, 1) / counts.clamp(min=1).unsqueeze(-1)
        return {"means": normalize(means, dim=-1) if self.unit_length else means, "known": counts > 0}

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor | None:
        memory = learner.memory[self.name]
        if not self.is_reservoir:
            return super().scores(learner, x, task)
        if "means" not in memory:
            return None
        return torch.where(memory["known"], -torch.cdist(self.features(learner, x, task), memory["means"]), -torch.inf)
