"""MAS: memory aware synapses (Aljundi et al. 2018)."""

import torch
from torch import Tensor

from threefold.methods.by_sample import over_samples
from threefold.methods.learner import Batch, Learner, Memory, Params, Quadratic, Setting, Stack, copied
from threefold.methods.part import Part, hyper


class MAS(Part):
    """Memory aware synapses: a quadratic penalty that holds the weights that the output is sensitive to."""

    name = "mas"
    citation = "aljundi2018"
    strength: float = hyper("weight of the penalty, λ", 1.0, ge=0)

    def refuse(self, setting: Setting) -> str | None:
        if setting.tasks_end:
            return None
        return f"{self.name} measures how sensitive the output is when a task ends, and in this stream none does."

    def penalty(self, learner: Learner) -> Quadratic | None:
        """λ Σ_i Ω_i (θ_i − θ̂_i)² (equation 4 there), which has no ½."""
        memory = learner.memory[self.name]
        return Quadratic(2 * self.strength, memory["anchor"], memory["importance"]) if memory else None

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """Ω grows by the mean absolute gradient of the task's training samples (equations 2 and 3 there)."""
        importance: Params = dict(memory.get("importance", {}))
        for batch, weight in stack.training_data():
            found = stack.map(_sensitivity, batch, weight)
            importance = {name: importance[name] + f if importance else f for name, f in found.items()}
        return {"anchor": copied(stack.params["classifier"]), "importance": importance}


def _sensitivity(learner: Learner, batch: Batch, weight: Tensor) -> Params:
    """For one network: the weighted sum over samples of |∂‖f(x)‖²/∂θ|, with f the logits that are active."""

    def length(logits: Tensor, active: Tensor, chosen: Tensor) -> Tensor:
        return torch.where(active, logits, 0).square().sum(-1)

    return over_samples(learner, batch, weight, length, torch.abs, lambda logits: logits)
