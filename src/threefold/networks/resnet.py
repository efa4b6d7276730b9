"""The reduced ResNet-18 of the continual-learning literature (Lopez-Paz & Ranzato 2017)."""

from typing import cast

from torch import Tensor, nn
from torch.nn.functional import relu


class Block(nn.Module):
    """Two convolutions, with the input added to their output."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for small images: no pooling at the start, `width` channels in the first of four stages (20 there)."""

    def __init__(self, channels: int, width: int, units: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage in range(4):
            for place in range(2):
                outputs = width * 2**stage
                blocks.append(Block(inputs, outputs, stride=2 if stage and not place else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(inputs, units)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(relu(self.norm(self.conv(x))))
        return cast(Tensor, self.output(x.mean((2, 3))))
