"""The classifier."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from threefold.networks.layers import GateOn, Hidden, Layer


class MLP(nn.Module):
    """Two hidden layers of equal size and an output layer (section 4.2): the same for every method."""

    def __init__(self, inputs: int, hidden: int, units: int, gate_on: GateOn = "activation") -> None:
        super().__init__()
        self.features = Hidden([inputs, hidden, hidden], gate_on)
        self.output = Layer(hidden, units)

    def forward(self, x: Tensor, gates: Sequence[Tensor] | None = None) -> Tensor:
        return cast(Tensor, self.output(self.features(x, gates)))
