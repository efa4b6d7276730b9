"""FROMP: functional regularisation of the memorable past (Pan et al. 2020)."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from threefold.methods.fisher import fisher_diagonal
from threefold.methods.function_kernel import WITHIN, inverse_kernel
from threefold.methods.learner import Draws, Learner, Memory, Params, Setting, Stack, Uniform
from threefold.methods.losses import only_active
from threefold.methods.part import Part, hyper
from threefold.methods.regularization import per_replica


class FROMP(Part):
    """Functional regularisation of the memorable past: predictions on a few stored samples are held in place."""

    name = "fromp"
    citation = "pan2020"
    strength: float = hyper("weight of the penalty, τ", 1.0, ge=0)
    budget: int = hyper("how many samples of each class are stored", 100, per_replica=False, ge=1)
    prior: float = hyper("precision of the weights before any data, added to the Fisher information", 1e-3, gt=0)
    clip: float = hyper("the largest norm of a step's gradient", 1.0, gt=0)

    def refuse(self, setting: Setting) -> str | None:
        if not setting.tasks_end:
            return f"{self.name} chooses what to store when a task ends, and in this stream none does."
        if setting.structure.samples_mapped:
            return None
        return f"{self.name} needs a gradient for each sample, and network {setting.network.name} cannot be mapped."

    def size(self, setting: Setting) -> int:
        """One matrix for each past task and output unit, with a row and a column for each stored sample."""
        o, past = setting.outputs, setting.outputs.tasks - 1
        return WITHIN + sum(int(o.active(t, past).sum()) * (o.size(t) * self.budget) ** 2 for t in range(past))

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        """A random number for each stored sample: those with the largest are used."""
        return {f"{self.name} order": Uniform(tuple(memory["stored"].shape))} if task else {}

    def penalty(self, learner: Learner) -> Tensor | None:
        """τ/2 Σ_s Σ_k Δᵀ K⁻¹ Δ, Δ the change of p_k at batch / (t − 1) of the stored samples of each past task s."""
        memory, outputs = learner.memory[self.name], learner.outputs
        if "inverse" not in memory:
            return None
        past, order, total = len(memory["inverse"]), learner.drawn[f"{self.name} order"], []
        as_tested = learner.params | learner.buffers
        for task in range(past):
            stored, real = _of_task(memory, outputs.before(task), outputs.size(task))
            mine = order.narrow(0, outputs.before(task), outputs.size(task)).flatten()
            some = min(-(-learner.setting.batch // past), len(stored))
            chosen = torch.where(real, mine, -1).topk(some).indices
            x = learner.samples(stored[chosen], torch.full_like(chosen, task)).x
            now = _chances(learner, x, as_tested, task=task)[:, memory["units"][task]]
            change = torch.where(real[chosen].unsqueeze(-1), now - memory["chances"][task][chosen], 0).T
            inverse = memory["inverse"][task][:, chosen][:, :, chosen]  # summed below: TF32 has ten bits
            total.append(((inverse * change.unsqueeze(1)).sum(-1) * change).sum())
        return 0.5 * self.strength * torch.stack(total).sum()

    def adjust(self, learner: Learner, gradient: Params) -> Params:
        norm = torch.stack([(g**2).sum() for g in gradient.values()]).sum().sqrt()
        return {name: g * torch.clamp(self.clip / (norm + 1e-6), max=1) for name, g in gradient.items()}

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """F grows by Σ diag(Jᵀ H J), the Fisher information over all labels; all stored samples are re-evaluated."""
        outputs = stack.setting.outputs
        sizes = torch.tensor([float(len(own)) for own in stack.own_samples()], device=stack.device)
        fisher = {n: per_replica(sizes, f) * f for n, f in fisher_diagonal(stack, task, "expected", None).items()}
        chosen = [self._memorable(stack, label) for label in range(outputs.size(task))]
        found: Memory = {name: torch.stack([each[name] for each in chosen], 1) for name in ("stored", "count")}
        if memory:
            fisher = {name: memory["fisher"][name] + f for name, f in fisher.items()}
            found = {name: torch.cat([memory[name], each], 1) for name, each in found.items()}
        held = self._held(stack, found, fisher, task + 1) if task + 1 < outputs.tasks else {}
        return found | held | {"fisher": fisher}

    def _memorable(self, stack: Stack, label: int) -> Memory:
        """The samples of a class of the finished task with the largest Σ_k p_k (1 − p_k)."""

        def score(learner: Learner, x: Tensor, task: Tensor) -> Tensor:
            p = torch.softmax(only_active(learner.logits(x, task), learner.now.active[task]), -1)
            return (p * (1 - p)).sum(-1)

        own, scores, indices = stack.own_samples(label), [], []
        count = torch.tensor([min(self.budget, len(samples)) for samples in own], device=stack.device)
        for batch, weight in stack.training_data(own):
            scores.append(torch.where(weight > 0, stack.map(score, batch.x, batch.task), -1))
            indices.append(batch.indices)
        best = torch.cat(scores, 1).sort(dim=1, descending=True, stable=True).indices[:, : self.budget]
        stored = torch.cat(indices, 1).gather(1, best)
        return {"stored": pad(stored, (0, self.budget - best.shape[1])), "count": count}

    def _held(self, stack: Stack, found: Memory, fisher: Params, past: int) -> Memory:
        """For a past task: the units that matter, their current probabilities, and K⁻¹ of each."""
        outputs, variance = stack.setting.outputs, {n: 1 / (f + per_replica(self.prior, f)) for n, f in fisher.items()}
        held: Memory = {"units": [], "chances": [], "inverse": []}
        for task in range(past):
            stored, real = _of_task(found, outputs.before(task), outputs.size(task))
            pieces, of_task = stack.training_data(list(stored.cpu()), task), partial(_chances, task=task)
            x = torch.cat([batch.x for batch, _ in pieces], 1)[:, : stored.shape[1]]
            units = outputs.active(task, past).nonzero().flatten().to(stack.device)
            held["units"].append(units.expand(len(stack.seeds), -1))
            held["chances"].append(stack.map(of_task, x)[:, :, units])
            each = [inverse_kernel(stack, x, real, variance, of_task, unit) for unit in units.tolist()]
            held["inverse"].append(torch.stack(each, 1).to(x.dtype))
        return held


def _of_task(memory: Any, first: int, classes: int) -> tuple[Tensor, Tensor]:
    """A task's stored samples, of one network or of all, and which of them are not padding."""
    stored, count = memory["stored"], memory["count"].unsqueeze(-1)
    real = torch.arange(stored.shape[-1], device=stored.device) < count
    return stored.narrow(-2, first, classes).flatten(-2), real.narrow(-2, first, classes).flatten(-2)


def _chances(learner: Learner, x: Tensor, params: Params | None = None, *, task: int) -> Tensor:
    logits = learner.logits(x, torch.full(x.shape[:1], task, device=x.device), params)
    return torch.softmax(only_active(logits, learner.now.active[task]), -1)
