"""Losses of samples, over their active units."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

Reduction = Literal["sum", "mean"]


def only_active(values: Tensor, active: Tensor) -> Tensor:
    """Masks, not slices: −inf on inactive units keeps every shape the same for every task."""
    return torch.where(active, values, -torch.inf)


def cross_entropy(logits: Tensor, y: Tensor, active: Tensor) -> Tensor:
    """−log p(y) of each sample, with p over the active units (equation 1).

    PyTorch's own handles an index to ignore: mapped over replicas, that costs a dozen more kernels.
    """
    log_chance = log_softmax(only_active(logits, active), -1)
    return -log_chance.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def distillation(
    logits: Tensor, soft: Tensor, active: Tensor, temperature: float, reduction: Reduction, *, t_squared: bool = True
) -> Tensor:
    """−T² Σ_c ỹ_c log p^T(c), of each sample (equation 3); without `t_squared` T² is left out.

    `reduction="mean"` divides the sum over classes by the number of active classes: not what the equation says, but
    what the published LwF row was made with.
    """
    log_chance = log_softmax(only_active(logits, active) / temperature, -1)
    per_sample = torch.where(active, soft * log_chance, 0).sum(-1)
    weight = -(temperature**2) if t_squared else -1.0
    return per_sample * (weight / active.sum(-1) if reduction == "mean" else weight)
