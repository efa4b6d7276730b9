"""GEM: gradient episodic memory (Lopez-Paz & Ranzato 2017)."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import pad

from threefold.methods.exemplars import Exemplars
from threefold.methods.learner import Learner, Params, Setting
from threefold.methods.losses import cross_entropy
from threefold.methods.part import hyper

MOST_NEGATIVE, PIVOTS = 2, 6  # times the number of tasks: pivots by the most negative variable, and pivots overall


class GEM(Exemplars):
    """Gradient episodic memory: no step along a gradient that points against that of any earlier task's stored data.

    Every step uses all stored samples.
    """

    name = "gem"
    citation = "lopezpaz2017"
    budget: int = hyper("how many samples may be stored", 2000, per_replica=False, ge=1)
    selection: Literal["random", "herding"] = hyper("how the samples to store are chosen", "random")
    margin: float = hyper("least weight of each earlier task's gradient in one that is changed, γ", 0.5, ge=0)

    def refuse(self, setting: Setting) -> str | None:
        if not setting.tasks_end:
            return f"{self.name} has a gradient for each task that has ended, and in this stream none does."
        return super().refuse(setting)

    def size(self, setting: Setting) -> int:
        """All of the budget are the inputs of a step, also the rows that hold no sample."""
        return self.budget * setting.inputs if setting.outputs.tasks > 1 else 0

    def adjust(self, learner: Learner, gradient: Params) -> Params | None:
        """g + Σ_k v_k g_k, with the v ≥ γ nearest to g (equation 11 there), where g points against any g_k."""
        memory, outputs = learner.memory[self.name], learner.outputs
        if "stored" not in memory:
            return None
        tasks = next(seen for seen in range(outputs.tasks + 1) if outputs.before(seen) == len(memory["stored"]))
        each = [self._gradient(learner, task) for task in range(tasks)]
        references = {name: torch.stack([one[name] for one in each]).flatten(1) for name in gradient}
        gram = _sum([r @ r.T for r in references.values()])
        along = _sum([r @ gradient[name].flatten() for name, r in references.items()])
        v = torch.where((along < 0).any(), nearest(gram, along, torch.as_tensor(self.margin)), 0).to(along.dtype)
        return {name: g + (v @ references[name]).view_as(g) for name, g in gradient.items()}

    def _gradient(self, learner: Learner, task: int) -> Params:
        """The gradient on all stored samples of a task; the number of rows is fixed, so some may be padding."""
        memory, outputs = learner.memory[self.name], learner.outputs
        classes = slice(outputs.before(task), outputs.before(task + 1))
        share = self.budget // len(memory["stored"])
        stored = pad(memory["stored"][classes], (0, share - memory["stored"].shape[-1]))
        count = memory["count"][classes].unsqueeze(-1)
        real = (torch.arange(share, device=stored.device) < count).flatten()
        indices = stored.flatten()
        x, y, number, _ = learner.samples(indices, torch.full_like(indices, task))

        def loss(params: Params) -> Tensor:
            logits, active = learner.logits(x, number, params), learner.now.active[number]
            mean: Tensor = torch.where(real, cross_entropy(logits, y.clamp(min=0), active), 0).sum() / real.sum()
            return mean

        found: Params = grad(loss)(learner.params)
        return found


def nearest(gram: Tensor, along: Tensor, least: Tensor) -> Tensor:
    """The v ≥ least at which ½ vᵀ G v + v · along is smallest, for a Gram matrix G: the dual of the projection.

    At the optimum w = G v + along ≥ 0, and w_k = 0 where v_k > least. Principal pivoting finds it exactly, in about as
    many pivots as there are tasks: the most negative basic variable leaves; in case that cycles, later pivots take the
    first negative one, which cannot cycle (Murty 1974). The number of pivots is fixed (the last ones change nothing),
    so the host is never synchronised. Gradients are scaled to unit length; a ridge of the size of rounding errors keeps
    the matrix regular when two are equal.
    """
    size, order = len(along), torch.arange(len(along), device=along.device)
    ridge = 64 * torch.finfo(gram.dtype).eps
    gram, along = gram.double(), along.double()
    length = gram.diagonal().sqrt()
    unit = torch.where(length > 0, 1 / length, 0)
    unit_gram = gram * unit * unit.unsqueeze(1) + ridge * (order == order.unsqueeze(1))
    start = (along + gram @ least.double().expand(size)) * unit
    scale = start.abs().amax().clamp(min=1e-300)
    table = torch.cat([unit_gram, (start / scale).unsqueeze(1)], 1)  # basic variables by the others, and their values
    entered = torch.zeros_like(order, dtype=torch.bool)  # is v_k basic, not w_k?
    for pivots in range(PIVOTS * size):
        value = table[:, -1]
        negative = value < -1e-12
        first = value.argmin() if pivots < MOST_NEGATIVE * size else negative.long().argmax()
        chosen = (order == first) & negative
        one = chosen.double()
        column, row = table[:, :-1] @ one, one @ table  # zero if none is chosen
        pivot = torch.where(chosen.any(), one @ column, 1)
        columns = torch.cat([chosen, chosen[:1] & False])
        table = table - column.unsqueeze(1) * row / pivot
        table = torch.where(columns, (column / pivot).unsqueeze(1), table)
        inverse = torch.where(columns, 1 / pivot, -row / pivot)
        table = torch.where(chosen.unsqueeze(1), inverse, table)
        entered = entered ^ chosen
    return least + torch.where(entered, table[:, -1], 0).clamp(min=0) * scale * unit


def _sum(terms: Sequence[Any]) -> Tensor:
    return torch.stack(list(terms)).sum(0)
