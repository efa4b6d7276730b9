"""Dropout from addressed randomness: which units are dropped depends only on seed, task, step and layer.

PyTorch's dropout uses one generator for all networks, so a network would depend on the others in its stack. Here the
unit's index is hashed with the network's key: this has no state, is the same on every device, and maps over replicas
like any other arithmetic.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

MASK = 0xFFFFFFFF


@dataclass
class _Drawing:
    key: Tensor | None  # of the network at this step; None: no dropout
    calls: int = 0  # dropouts so far in this step


_drawing = _Drawing(None)


@contextmanager
def drawing(key: Tensor | None, calls: int = 0) -> Iterator[_Drawing]:
    """Dropout layers called inside this context use this key, after `calls` earlier calls."""
    global _drawing
    before, _drawing = _drawing, _Drawing(key, calls)
    try:
        yield _drawing
    finally:
        _drawing = before


class Dropout(nn.Module):
    """Silences a share of the units, or of whole channels, and scales up the others."""

    def __init__(self, share: float, *, channels: bool) -> None:
        super().__init__()
        self.share, self.channels = share, channels

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0 or _drawing.key is None:
            return x
        shape = [*x.shape[:2], *[1] * (x.dim() - 2)] if self.channels else list(x.shape)
        kept = uniform(_drawing.key, _drawing.calls, shape) >= self.share
        _drawing.calls += 1
        return torch.where(kept, x / (1 - self.share), 0) if self.share < 1 else torch.zeros_like(x)


def uniform(key: Tensor, call: int, shape: list[int]) -> Tensor:
    """Numbers in [0, 1) by hashing each index with the key (the 32-bit mixing function lowbias32)."""
    places = torch.arange(math.prod(shape), device=key.device).view(shape)
    return (_mixed(_mixed(places + call * 0x9E3779B1) ^ _mixed(key)) >> 8) * 2.0**-24


def _mixed(x: Tensor) -> Tensor:
    x = x & MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK
    return x ^ (x >> 16)


def with_addressed_dropout(net: nn.Module) -> nn.Module:
    """The network with its dropout layers replaced by ours."""
    for module in net.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
                channels = not isinstance(child, nn.Dropout)
                setattr(module, name, Dropout(child.p, channels=channels))
    return net
