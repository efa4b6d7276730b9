"""Images shifted and mirrored at random, differently each time they are trained on."""

import torch
from torch import Tensor

PADDING = 4  # zeros on each side, before cropping to the original size
NUMBERS = 3  # random numbers per image: row, column, and whether it is mirrored


def moved(images: Tensor, numbers: Tensor) -> Tensor:
    """Images (… × channels × height × width) padded with zeros and cropped at random, half of them mirrored.

    `numbers` holds three in [0, 1) for each image (… × 3). One gather looks up the source of every pixel.
    """
    height, width = images.shape[-2:]
    down, right = ((numbers[..., n] * (2 * PADDING + 1)).long() - PADDING for n in (0, 1))
    rows = torch.arange(height, device=images.device) + down.unsqueeze(-1)
    columns = torch.arange(width, device=images.device).expand(*down.shape, width)
    columns = torch.where(numbers[..., 2:] < 0.5, columns, width - 1 - columns) + right.unsqueeze(-1)
    inside = _within(rows, height).unsqueeze(-1) & _within(columns, width).unsqueeze(-2)
    places = rows.clamp(0, height - 1).unsqueeze(-1) * width + columns.clamp(0, width - 1).unsqueeze(-2)
    flat = images.flatten(-2)
    found = flat.gather(-1, places.flatten(-2).unsqueeze(-2).expand(flat.shape))
    return torch.where(inside.flatten(-2).unsqueeze(-2), found, 0).view(images.shape)


def _within(places: Tensor, size: int) -> Tensor:
    return (places >= 0) & (places < size)
