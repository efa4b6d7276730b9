"""A plain convolutional network."""

from collections.abc import Sequence
from typing import Literal, cast

from torch import Tensor, nn
from torch.nn.functional import relu

from threefold.networks.layers import Hidden

Norm = Literal["none", "group", "batch"]
Last = Literal["relu", "linear"]
GROUPS = 8  # in a group norm, if they divide the channels


def normalisation(norm: Norm, channels: int) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(max(n for n in range(1, GROUPS + 1) if channels % n == 0), channels)
    return nn.Identity()


class CNN(nn.Module):
    """Convolutions of 3 × 3 with ReLU, each but the first halving the image, then fully connected layers, the last one
    linear. After a last convolution that is `linear` there is neither normalisation nor ReLU."""

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        units: int,
        norm: Norm = "none",
        hidden: Sequence[int] = (),
        last: Last = "relu",
    ) -> None:
        super().__init__()
        inputs, height, width = shape
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for place, outputs in enumerate(channels):
            stride, own = 2 if place else 1, norm
            if place == len(channels) - 1 and last == "linear":
                own = "none"
            self.convolutions.append(nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=own == "none"))
            self.norms.append(normalisation(own, outputs))
            inputs, height, width = outputs, -(-height // stride), -(-width // stride)
        sizes, self.last = [inputs * height * width, *hidden], last
        if hidden:
            self.encoding = nn.Flatten()  # its output is used as frozen features
            self.hidden = Hidden(sizes)
        self.output = nn.Linear(sizes[-1], units)

    def forward(self, x: Tensor) -> Tensor:
        for place, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = norm(convolution(x))
            x = x if self.last == "linear" and place == len(self.norms) - 1 else relu(x)
        x = self.hidden(self.encoding(x)) if hasattr(self, "encoding") else x.flatten(1)
        return cast(Tensor, self.output(x))
