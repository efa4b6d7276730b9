"""Fully connected layers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from threefold.errors import ThreefoldError

GateOn = Literal["activation", "input"]
NORMALISATIONS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


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
    """Initial parameters: uniform in ±1/√fan_in, weights and biases alike; normalisations begin with 1 and 0.

    Drawn from the generator, layer by layer, whatever a module would draw for itself.
    """
    buffer = next((name for name, _ in net.named_buffers()), None)
    if buffer:
        raise ThreefoldError(
            f"{type(net).__name__} has a buffer, {buffer}, and a stack of networks has parameters only; use a"
            " network without, such as one with LayerNorm instead of BatchNorm."
        )
    names = [[name for name, _ in net.named_parameters(remove_duplicate=once)] for once in (True, False)]
    if tied := sorted(set(names[1]) - set(names[0])):
        raise ThreefoldError(
            f"{tied[0]} of {type(net).__name__} is also another of its parameters; each must have its own."
        )
    params: dict[str, Tensor] = {}
    for path, module in net.named_modules():
        parameters = dict(module.named_parameters(path, recurse=isinstance(module, Layer)))
        if parameters.keys() <= params.keys():  # those of a layer are drawn together
            continue
        weight = module.weighted.weight if isinstance(module, Layer) else getattr(module, "weight", None)
        for name, parameter in parameters.items():
            if isinstance(module, NORMALISATIONS):
                params[name] = torch.full(parameter.shape, float(name.endswith("weight")))
            elif isinstance(weight, Tensor) and weight.dim() > 1:
                bound = weight[0].numel() ** -0.5
                params[name] = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
            else:
                raise ThreefoldError(
                    f"{name} of {type(net).__name__} belongs to {type(module).__name__}, which has no weights to take"
                    " its range from; use linear and convolutional layers, LayerNorm, GroupNorm"
                    " or RMSNorm."
                )
    return params
