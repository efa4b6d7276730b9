"""Regularised optimisation: a quadratic penalty on changes to weights that mattered (sections 3.2 and A.2)."""

import torch
from torch import Tensor

from threefold.methods.fisher import Labels, fisher_diagonal
from threefold.methods.part import Leash, Memory, Params, Part, Setting, Stack, hyper


class EWC(Part):
    """Elastic weight consolidation: a quadratic leash on the weights that mattered (section A.2.1)."""

    name = "ewc"
    strength: float = hyper("weight of the penalty, λ", later=True, ge=0)
    labels: Labels = hyper("label at which the Fisher information is taken", "predicted")
    fisher_samples: int | None = hyper(
        "training samples used for the Fisher information; all of a task's if not given", per_replica=False, ge=1
    )

    @property
    def scenario_in_masks(self) -> bool:
        return True

    def leash(self, memory: Memory) -> Leash:
        """λ/2 Σ_k Σ_i F_i^(k) (θ_i − θ̂_i^(k))² (equation 4), up to a constant that has no gradient."""
        return Leash(self.strength, memory["anchor"], memory["precision"])

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        fisher = fisher_diagonal(stack, task, self.labels, self.fisher_samples)
        return absorb(memory, fisher, stack.params["classifier"])


def absorb(memory: Memory, fisher: Params, params: Params) -> Memory:
    """A sum of quadratics is one quadratic: Σ_k F_k(θ−θ_k)² = A(θ−θ̄)² + const, A = ΣF_k, θ̄ = ΣF_kθ_k / A.

    So the cost does not grow with the number of tasks. Written as a step of θ̄ towards θ_k, it does not cancel.
    """
    if not memory:
        return {"anchor": {n: p.clone() for n, p in params.items()}, "precision": fisher}
    precision = {n: memory["precision"][n] + f for n, f in fisher.items()}
    anchor = {}
    for name, old in memory["anchor"].items():
        share = torch.where(precision[name] > 0, fisher[name] / precision[name], 1)
        anchor[name] = old + share * (params[name] - old)
    return {"anchor": anchor, "precision": precision}


class OnlineEWC(EWC):
    """EWC with one running penalty, anchored at the latest task (section A.2.2)."""

    name = "online-ewc"
    decay: float = hyper("how much of the earlier tasks' Fisher information is kept, γ", later=True, gt=0, le=1)

    def leash(self, memory: Memory) -> Leash:
        """λ · ½ · γ · Σ_i F̃_i (θ_i − θ̂_i)² (equation 7, in the convention under which λ was chosen)."""
        return Leash(self.decay * self.strength, memory["anchor"], memory["precision"])

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """F̃^(k) = γ F̃^(k−1) + F^(k)."""
        fisher = fisher_diagonal(stack, task, self.labels, self.fisher_samples)
        if memory:
            fisher = {n: per_replica(self.decay, f) * memory["precision"][n] + f for n, f in fisher.items()}
        return {"anchor": {n: p.clone() for n, p in stack.params["classifier"].items()}, "precision": fisher}


def per_replica(number: float | Tensor, like: Tensor) -> float | Tensor:
    """A number for each replica, shaped to multiply a stacked tensor."""
    return number.view(-1, *[1] * (like.dim() - 1)) if isinstance(number, Tensor) else number


class SI(Part):
    """Synaptic intelligence: importance as the path integral of a weight's share in the loss (section A.2.3)."""

    name = "si"
    strength: float = hyper("weight of the penalty, c", later=True, ge=0)
    damping: float = hyper("dampening term ξ", 0.1, later=True, gt=0)

    @property
    def scenario_in_masks(self) -> bool:
        return True

    def begin(self, setting: Setting, seed: int, params: Params) -> Memory:
        nothing = {n: torch.zeros_like(p) for n, p in params.items()}
        return {
            "omega": nothing,
            "importance": {n: p.clone() for n, p in nothing.items()},
            "anchor": {n: p.clone() for n, p in params.items()},  # the weights when the current task began
        }

    def leash(self, memory: Memory) -> Leash:
        """c Σ_i Ω_i (θ_i − θ̂_i)² (equation 10), which has no ½."""
        return Leash(2 * self.strength, memory["anchor"], memory["importance"])

    def path(self, memory: Memory) -> Params:
        """ω_i grows by (θ_i[t] − θ_i[t−1]) · −∂L/∂θ_i, the gradient of the whole loss (equation 8)."""
        omega: Params = memory["omega"]
        return omega

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """Ω_i grows by ω_i / (Δ_i² + ξ) (equation 9)."""
        params, importance = stack.params["classifier"], {}
        for name, omega in memory["omega"].items():
            change = params[name] - memory["anchor"][name]
            importance[name] = memory["importance"][name] + omega / (change**2 + per_replica(self.damping, omega))
        return {
            "omega": {n: torch.zeros_like(o) for n, o in memory["omega"].items()},
            "importance": importance,
            "anchor": {n: p.clone() for n, p in params.items()},
        }
