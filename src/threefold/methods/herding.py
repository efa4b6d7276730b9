"""Herding: chooses the samples that best represent all (section A.4.2)."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

FEW = {"cpu": 8, "cuda": 128}  # below one chosen sample in so many, only products with the chosen are computed
MOST = 1 << 14  # samples that the kernel can choose from
PRODUCTS = 1 << 30  # pairwise products of samples held at once: 4 GB in float32


def herd(features: Tensor, real: Tensor, counts: Sequence[int]) -> Tensor:
    """The first samples chosen by herding, `counts[i]` of replica i; rows are as long as the largest count.

    Each choice brings the mean of the chosen closest to the mean of all: p_n minimises ‖μ − (ψ(x) + Σ ψ(p_j)) / n‖.
    With t = nμ − Σψ(p_j) that is the smallest ‖ψ(x)‖² − 2 ψ(x)·t, and ψ(x)·t changes by ψ(x)·μ − ψ(x)·ψ(p_n) from one
    choice to the next. No sample is chosen twice.

    Rounding decides between samples that are almost equally good. So on a CPU each replica is herded separately and
    without padding: its choices do not depend on the stack that it is in. On a GPU all are herded together.
    """
    if features.device.type != "cpu":
        return _herd(features, real, min(max(counts), real.shape[1]))
    chosen = []
    for own, its, count in zip(features, real, counts, strict=True):
        places = torch.nonzero(its).flatten()
        chosen.append(places[_herd(own[places][None], its[places][None], min(count, len(places)))[0]])
    return pad_sequence(chosen, batch_first=True)


def _herd(features: Tensor, real: Tensor, count: int) -> Tensor:
    features = features * real.unsqueeze(-1)
    mean = features.sum(1) / real.sum(1, keepdim=True)
    towards = (features @ mean.unsqueeze(-1)).squeeze(-1)
    cost = torch.where(real, (features**2).sum(-1) - 2 * towards, torch.inf)
    samples = features.shape[1]
    few = FEW[features.device.type] if samples <= MOST else FEW["cpu"]
    if count * few < samples or samples**2 > PRODUCTS:
        return _by_the_chosen(features, cost, towards, count)
    group = PRODUCTS // samples**2
    groups = [slice(start, start + group) for start in range(0, len(features), group)]
    return torch.cat([_by_products(features[g] @ features[g].mT, cost[g], towards[g], count) for g in groups])


def _by_the_chosen(features: Tensor, cost: Tensor, towards: Tensor, count: int) -> Tensor:
    """After each choice, the products of the chosen sample with all are computed."""
    replica = torch.arange(len(features), device=features.device)
    chosen = []
    for _ in range(count):
        pick = cost.argmin(1)
        chosen.append(pick)
        row = (features @ features[replica, pick].unsqueeze(-1)).squeeze(-1)
        cost = cost - 2 * (towards - row)
        cost[replica, pick] = torch.inf
    return torch.stack(chosen, dim=1)


def _by_products(products: Tensor, cost: Tensor, towards: Tensor, count: int) -> Tensor:
    """Each choice looks up its products with all. On a GPU that is so little work that launches would dominate."""
    if products.device.type == "cuda" and (chosen := _at_once(products, cost, towards, count)) is not None:
        return chosen
    replica = torch.arange(len(products), device=products.device)
    picks = []
    for _ in range(count):
        pick = cost.argmin(1)
        picks.append(pick)
        cost = cost - 2 * (towards - products[replica, pick])
        cost[replica, pick] = torch.inf
    return torch.stack(picks, dim=1)


def _at_once(products: Tensor, cost: Tensor, towards: Tensor, count: int) -> Tensor | None:
    """All choices by one kernel; None where that is not possible."""
    if products.shape[-1] > MOST:
        return None
    try:
        chosen: Tensor = _kernel().choose(products, cost, towards, count)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a missing or broken compiler may raise anything
        reason = " ".join(str(error).split())[:200]
        warnings.warn(f"exemplars are chosen one by one here, which takes longer ({reason})", stacklevel=2)
        return None
    return chosen


def _kernel() -> Any:
    """Triton is only available where there is a GPU."""
    from threefold.methods import herding_kernel

    return herding_kernel
