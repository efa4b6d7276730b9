"""Regularised optimisation: a quadratic penalty on changes to weights that mattered (sections 3.2 and A.2)."""

import torch
from torch import Tensor

from threefold.methods.fisher import Labels, fisher_diagonal
from threefold.methods.learner import Learner, Memory, Params, PathIntegral, Quadratic, Setting, Stack, Step, copied
from threefold.methods.part import Part, hyper


class EWC(Part):
    """Elastic weight consolidation: a quadratic penalty that holds the weights that mattered (section A.2.1)."""

    name = "ewc"
    citation = "kirkpatrick2017"
    strength: float = hyper("weight of the penalty, λ", ge=0)
    labels: Labels = hyper("label at which the Fisher information is taken", "predicted")
    fisher_samples: int | None = hyper(
        "training samples used for the Fisher information; all of a task's if not given", per_replica=False, ge=1
    )

    def refuse(self, setting: Setting) -> str | None:
        if setting.tasks_end:
            return None
        return f"{self.name} takes the Fisher information of a task when it ends, and in this stream none does."

    def penalty(self, learner: Learner) -> Quadratic | None:
        """λ/2 Σ_k Σ_i F_i^(k) (θ_i − θ̂_i^(k))² (equation 4), up to a constant that has no gradient."""
        memory = learner.memory[self.name]
        return Quadratic(self.strength, memory["anchor"], memory["precision"]) if memory else None

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        fisher = fisher_diagonal(stack, task, self.labels, self.fisher_samples)
        return absorb(memory, fisher, stack.params["classifier"])


def absorb(memory: Memory, fisher: Params, params: Params) -> Memory:
    """A sum of quadratics is one quadratic: Σ_k F_k(θ−θ_k)² = A(θ−θ̄)² + const, A = ΣF_k, θ̄ = ΣF_kθ_k / A.

    So the cost does not grow with the number of tasks. Written as a step of θ̄ towards θ_k to avoid cancellation.
    """
    if not memory:
        return {"anchor": copied(params), "precision": fisher}
    precision = {n: memory["precision"][n] + f for n, f in fisher.items()}
    anchor = {}
    for name, old in memory["anchor"].items():
        share = torch.where(precision[name] > 0, fisher[name] / precision[name], 1)
        anchor[name] = old + share * (params[name] - old)
    return {"anchor": anchor, "precision": precision}


class OnlineEWC(EWC):
    """EWC with one running penalty, anchored at the latest task (section A.2.2)."""

    name = "online-ewc"
    citation = "schwarz2018"
    decay: float = hyper("how much of the earlier tasks' Fisher information is kept, γ", gt=0, le=1)

    def penalty(self, learner: Learner) -> Quadratic | None:
        """λ · ½ · γ · Σ_i F̃_i (θ_i − θ̂_i)² (equation 7, in the convention under which λ was chosen)."""
        memory = learner.memory[self.name]
        return Quadratic(self.decay * self.strength, memory["anchor"], memory["precision"]) if memory else None

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """F̃^(k) = γ F̃^(k−1) + F^(k)."""
        fisher = fisher_diagonal(stack, task, self.labels, self.fisher_samples)
        if memory:
            fisher = {n: per_replica(self.decay, f) * memory["precision"][n] + f for n, f in fisher.items()}
        return {"anchor": copied(stack.params["classifier"]), "precision": fisher}


def per_replica(number: float | Tensor, like: Tensor) -> float | Tensor:
    """One number for each replica, shaped to broadcast over a stacked tensor."""
    return number.view(-1, *[1] * (like.dim() - 1)) if isinstance(number, Tensor) else number


class SI(Part):
    """Synaptic intelligence: importance as the path integral of a weight's share in the loss (section A.2.3)."""

    name = "si"
    citation = "zenke2017"
    strength: float = hyper("weight of the penalty, c", ge=0)
    damping: float = hyper("dampening term ξ", 0.1, gt=0)

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        return {
            "omega": {n: torch.zeros_like(p) for n, p in params.items()},
            "anchor": copied(params),  # the weights when the current task began
        }

    def penalty(self, learner: Learner) -> Quadratic | None:
        """c Σ_i Ω_i (θ_i − θ̂_i)² (equation 10), which has no ½."""
        memory = learner.memory[self.name]
        if "importance" not in memory:
            return None
        return Quadratic(2 * self.strength, memory["anchor"], memory["importance"])

    def after_step(self, learner: Learner, step: Step) -> PathIntegral:
        """ω_i grows by (θ_i[t] − θ_i[t−1]) · −∂L/∂θ_i, the gradient of the whole loss (equation 8)."""
        return PathIntegral("omega")

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """Ω_i grows by ω_i / (Δ_i² + ξ) (equation 9)."""
        params, before, importance = stack.params["classifier"], memory.get("importance"), {}
        for name, omega in memory["omega"].items():
            change = params[name] - memory["anchor"][name]
            grown = omega / (change**2 + per_replica(self.damping, omega))
            importance[name] = before[name] + grown if before else grown
        return {
            "omega": {n: torch.zeros_like(o) for n, o in memory["omega"].items()},
            "importance": importance,
            "anchor": copied(params),
        }
