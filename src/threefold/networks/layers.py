"""Fully connected layers, and the initial values of parameters."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from threefold.errors import ThreefoldError

Activation = Literal["relu", "gelu", "tanh", "elu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
    "elu": functional.elu,
}
NORMALISATIONS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._BatchNorm)


class Shift(nn.Module):
    """Adds a bias."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(units))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class Layer(nn.Module):
    """Weighted input, then bias, as two modules: a gate can be put between them, and each can be tapped separately."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.weighted = nn.Linear(inputs, units, bias=False)
        self.shift = Shift(units)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.shift(self.weighted(x)))


class Normal(nn.Module):
    """Trainable numbers, initialised from a standard normal distribution."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.empty(rows, columns))


class Hidden(nn.Module):
    """Fully connected layers, each with an activation."""

    def __init__(self, sizes: Sequence[int], activation: Activation = "relu") -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(inputs, units) for inputs, units in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


def initial_params(net: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Initial parameters: weights and biases uniform in ±1/√fan_in; normalisations 1 and 0.

    They are drawn from the generator, layer by layer, whatever a module's own initialisation.
    """
    check_parameters(net)
    params: dict[str, Tensor] = {}
    for path, module in net.named_modules():
        parameters = dict(module.named_parameters(path, recurse=isinstance(module, Layer)))
        if parameters.keys() <= params.keys():  # a layer's parameters are drawn together
            continue
        weight = module.weighted.weight if isinstance(module, Layer) else getattr(module, "weight", None)
        for name, parameter in parameters.items():
            if isinstance(module, Normal):
                params[name] = torch.randn(parameter.shape, generator=generator)
            elif isinstance(module, NORMALISATIONS):
                params[name] = torch.full(parameter.shape, float(name.endswith("weight")))
            elif isinstance(weight, Tensor) and weight.dim() > 1:
                bound = weight[0].numel() ** -0.5
                params[name] = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
            else:
                raise ThreefoldError(
                    f"{name} of {type(net).__name__} belongs to {type(module).__name__}, which has no weights to take"
                    " its range from; use linear and convolutional layers and normalisations."
                )
    return params


def check_parameters(net: nn.Module) -> None:
    """Check that each parameter is a separate tensor of the default type, and that all are trained."""
    names = [[name for name, _ in net.named_parameters(remove_duplicate=once)] for once in (True, False)]
    if tied := sorted(set(names[1]) - set(names[0])):
        raise ThreefoldError(
            f"{tied[0]} of {type(net).__name__} is also another of its parameters; each must have its own."
        )
    for name, parameter in net.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ThreefoldError(f"{name} of {type(net).__name__} must have a shape when it is built; give all sizes.")
        check_dtype(f"{name} of {type(net).__name__} must be", parameter)
        if not parameter.requires_grad:
            raise ThreefoldError(
                f"{name} of {type(net).__name__} must require its gradient, since all parameters are trained; make it a"
                " buffer to keep it as it is."
            )


def check_dtype(beginning: str, tensor: Tensor) -> None:
    """Refuse a tensor that is not of PyTorch's default type, float32; `beginning` starts the error."""
    usual, found = (str(kind).removeprefix("torch.") for kind in (torch.get_default_dtype(), tensor.dtype))
    if found != usual:
        raise ThreefoldError(f"{beginning} {usual}, got {found}.")
