"""The classifier of the paper."""

from typing import cast

from torch import Tensor, nn

from threefold.networks.layers import Activation, Hidden, Layer


class MLP(nn.Module):
    """Hidden layers of equal size and an output layer; two of them in the paper (section 4.2)."""

    def __init__(self, inputs: int, hidden: int, units: int, depth: int = 2, activation: Activation = "relu") -> None:
        super().__init__()
        self.features = Hidden([inputs, *[hidden] * depth], activation)
        self.output = Layer(hidden, units)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.output(self.features(x.flatten(1))))
