"""DER and DER++: a reservoir of samples with the logits they had when they were stored (Buzzega et al. 2020)."""

import torch
from torch import Tensor

from threefold.methods import reservoir
from threefold.methods.learner import Draws, Learner, Memory, Params, Setting, Step, Uniform
from threefold.methods.losses import cross_entropy
from threefold.methods.part import Part, hyper


class DER(Part):
    """Dark experience replay: stored samples keep the logits that they had when they came."""

    name = "der"
    citation = "buzzega2020"
    budget: int = hyper("how many samples are stored, in a reservoir", 2000, per_replica=False, ge=1)
    alpha: float = hyper("weight of the stored logits, α", 0.3, ge=0)

    def size(self, setting: Setting) -> int:
        """Of each place the logits, and two indices of eight bytes."""
        return self.budget * (setting.outputs.units + 4)

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        return reservoir.empty(self.budget) | {"logits": torch.zeros(self.budget, setting.outputs.units)}

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        return {f"{self.name} {what}": Uniform((setting.batch,)) for what in ("kept", "logits")}

    def penalty(self, learner: Learner) -> Tensor:
        """α ‖z − h(x)‖², averaged over samples and all output units; nothing while nothing is stored."""
        memory = learner.memory[self.name]
        place, some = reservoir.places(memory, learner.drawn[f"{self.name} logits"])
        stored = reservoir.stored(learner, memory, place)
        apart = learner.logits(stored.x, stored.task) - memory["logits"][place]
        return self.alpha * torch.where(some, (apart**2).mean(), 0)

    def after_step(self, learner: Learner, step: Step) -> Memory:
        """Add the batch to the reservoir, with the logits from before the step."""
        batch = step.batch
        logits = learner.logits(batch.x, batch.task, params=step.before)
        memory, uniform = learner.memory[self.name], learner.drawn[f"{self.name} kept"]
        return reservoir.taken_in(memory, batch, uniform, logits=logits)


class DERpp(DER):
    """Dark experience replay with labels: further stored samples are replayed with their labels."""

    name = "der-pp"
    alpha: float = hyper("weight of the stored logits, α", 0.2, ge=0)
    beta: float = hyper("weight of the stored labels, β", 0.5, ge=0)

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        wishes = super().draws(setting, task, memory, steps, source)
        return wishes | {f"{self.name} labels": Uniform((setting.batch,))}

    def penalty(self, learner: Learner) -> Tensor:
        """α ‖z − h(x)‖² + β · cross entropy, each on a draw of its own."""
        stored, some = reservoir.drawn(learner, learner.memory[self.name], learner.drawn[f"{self.name} labels"])
        active = learner.now.active[stored.task] | ~some  # while nothing is stored, any label has a finite loss
        labels = cross_entropy(learner.logits(stored.x, stored.task), stored.y, active).mean()
        return super().penalty(learner) + self.beta * torch.where(some, labels, 0)
