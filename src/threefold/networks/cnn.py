"""A plain convolutional network."""

from collections.abc import Sequence
from typing import Literal, cast

from torch import Tensor, nn
from torch.nn.functional import relu

Norm = Literal["none", "group", "batch"]
GROUPS = 8  # of channels in a group norm, where they divide them


def normalisation(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(max(n for n in range(1, GROUPS + 1) if channels % n == 0), channels)
    return nn.Identity()


class CNN(nn.Module):
    """Convolutions of 3 × 3 with ReLU, each but the first halving the image, then a linear output layer."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int], units: int, norm: Norm = "none") -> None:
        super().__init__()
        inputs, height, width = shape
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for place, outputs in enumerate(channels):
            stride = 2 if place else 1
            self.convolutions.append(nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=norm == "none"))
            self.norms.append(normalisation(norm, outputs))
            inputs, height, width = outputs, -(-height // stride), -(-width // stride)
        self.output = nn.Linear(inputs * height * width, units)

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = relu(norm(convolution(x)))
        return cast(Tensor, self.output(x.flatten(1)))
