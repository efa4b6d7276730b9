"""Fully connected layers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

GateOn = Literal["activation", "input"]


class Shift(nn.Module):
    """Adds a bias."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(units))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class Layer(nn.Module):
    """Weighted input, then bias, as two modules: a gate can stand between them, and each can be tapped on its own."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.weighted = nn.Linear(inputs, units, bias=False)
        self.shift = Shift(units)

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        weighted = self.weighted(x)
        return cast(Tensor, self.shift(weighted if gate is None else weighted * gate))


class Hidden(nn.Module):
    """Fully connected layers with ReLU.

    `gates` (XdG) holds for each layer a factor per unit, 1 or 0. `gate_on` says what a zero silences: the unit's
    "activation" (the paper's text), or its weighted "input" while the bias still counts.
    """

    def __init__(self, sizes: Sequence[int], gate_on: GateOn = "activation") -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(inputs, units) for inputs, units in pairwise(sizes))
        self.sizes = tuple(sizes[1:])
        self.gate_on = gate_on

    def forward(self, x: Tensor, gates: Sequence[Tensor] | None = None) -> Tensor:
        for depth, layer in enumerate(self.layers):
            if gates is None:
                x = relu(layer(x))
            elif self.gate_on == "input":
                x = relu(layer(x, gates[depth]))
            else:
                x = relu(layer(x)) * gates[depth]
        return x


def initial_params(net: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Initial parameters: uniform in ±1/√fan_in, weights and biases alike."""
    params = {}
    for path, layer in net.named_modules():
        if isinstance(layer, Layer):
            bound = layer.weighted.in_features**-0.5
            for name, parameter in layer.named_parameters():
                uniform = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
                params[f"{path}.{name}" if path else name] = uniform
    return params
