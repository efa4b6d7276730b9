"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

import torch
from torch import Tensor
from torch.func import grad

from threefold.methods import reservoir
from threefold.methods.exemplars import Rehearsed, Selection
from threefold.methods.learner import Batch, Draws, Learner, Memory, Params, Setting
from threefold.methods.method import classification
from threefold.methods.part import hyper


class AGEM(Rehearsed):
    """Averaged gradient episodic memory: no step along a gradient that points against that of stored data."""

    name = "a-gem"
    citation = "chaudhry2019"
    selection: Selection = hyper("how the samples to store are chosen", "random")
    damping: float = hyper("added to the squared length of the gradient on stored data", 0.0, ge=0, later=True)

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        return self.stored_samples(setting, task, memory, steps, source)

    def adjust(self, learner: Learner, gradient: Params) -> Params | None:
        """g − (g·r / r·r) r where g·r < 0, with r the gradient on stored data (Chaudhry et al. 2019, equation 11)."""
        some: Tensor | None = None
        stored: Batch | None = learner.drawn.get(f"{self.name} stored")
        if self.is_reservoir:
            stored, some = reservoir.drawn(learner, learner.memory[self.name], learner.drawn[f"{self.name} place"])
        if stored is None:
            return None

        x, y, task, _ = stored

        def loss(params: Params) -> Tensor:
            return classification(learner, x, y, task, params)

        reference = grad(loss)(learner.params)
        along = sum((g * reference[name]).sum() for name, g in gradient.items())
        length = sum((r**2).sum() for r in reference.values())
        against = torch.clamp(torch.as_tensor(along), max=0) / (
            torch.clamp(torch.as_tensor(length), min=1e-30) + self.damping
        )
        against = against if some is None else torch.where(some, against, 0)  # an empty reservoir constrains nothing
        return {name: g - against * reference[name] for name, g in gradient.items()}
