"""A plain convolutional network."""

from collections.abc import Sequence
from typing import Literal, Self, cast

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


class Convolutions(nn.Module):
    """The convolutions of a CNN alone, as a module to call with the CNN's values; its output is flat."""

    def __init__(self, cnn: "CNN") -> None:
        super().__init__()
        self.convolutions, self.norms, self.last = cnn.convolutions, cnn.norms, cnn.last

    def forward(self, x: Tensor) -> Tensor:
        return convolved(self, x)


def convolved(net: "Convolutions | CNN", x: Tensor) -> Tensor:
    for place, (convolution, norm) in enumerate(zip(net.convolutions, net.norms, strict=True)):
        x = norm(convolution(x))
        x = x if net.last == "linear" and place == len(net.norms) - 1 else relu(x)
    return x.flatten(1)


class CNN(nn.Module):
    """Convolutions of 3 × 3 with ReLU, each but the first halving the image, then fully connected layers, the last one
    linear. After a last convolution that is `linear` there is neither normalisation nor ReLU. Convolutions that are
    `frozen`, and their normalisations, have buffers in place of parameters and are always in eval mode."""

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        units: int,
        norm: Norm = "none",
        hidden: Sequence[int] = (),
        last: Last = "relu",
        *,
        frozen: bool = False,
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
        self.frozen = frozen
        for layer in [*self.convolutions, *self.norms] if frozen else ():
            for name, parameter in list(layer.named_parameters(recurse=False)):
                delattr(layer, name)
                layer.register_buffer(name, parameter.detach())
        self.norms.train(not frozen)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.norms.train(mode and not self.frozen)
        return self

    def forward(self, x: Tensor) -> Tensor:
        x = convolved(self, x)
        x = self.hidden(self.encoding(x)) if hasattr(self, "encoding") else x
        return cast(Tensor, self.output(x))
