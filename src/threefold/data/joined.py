"""Several datasets as one: their samples padded to one shape, their classes one after the other."""

from collections.abc import Sequence
from hashlib import sha256
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from threefold.data.dataset import Dataset
from threefold.errors import ThreefoldError
from threefold.memory import in_bytes, memory_limit


def joined(datasets: Sequence[Dataset]) -> Dataset:
    """The samples of all of them; class c of a later one has the number c plus all classes of the earlier ones.

    Images get a border of zeros up to the largest height and width, and grey ones three equal channels if others have
    colours; vectors are padded with zeros.
    """
    if not datasets:
        raise ThreefoldError("data that are joined must be two datasets or more, got none.")
    names = [data.name for data in datasets]
    kinds = {min(len(data.shape), 2) for data in datasets}
    if len(kinds) > 1 or any(len(data.shape) > 3 for data in datasets):
        shapes = ", ".join(f"{data.name} has {'×'.join(map(str, data.shape))}" for data in datasets)
        raise ThreefoldError(f"data {'+'.join(names)} must all be images or all be vectors; {shapes}.")
    if len({data.is_normalized for data in datasets}) > 1:
        raise ThreefoldError(
            f"data {'+'.join(names)} must all be normalized or none; normalize them when they are one."
        )
    shape = _common([data.shape for data in datasets])
    need, free = 4 * prod(shape) * sum(len(data.train_y) + len(data.test_y) for data in datasets), memory_limit()
    if need > free:
        raise ThreefoldError(
            f"data of {len(datasets)} datasets joined must fit into memory: they need {in_bytes(need)}, and"
            f" {in_bytes(free)} are free; use fewer, or a machine with more."
        )
    sizes = [data.classes for data in datasets]
    first = [sum(sizes[:place]) for place in range(len(sizes))]
    each = list(zip(datasets, first, strict=True))
    return Dataset(
        name="+".join(names),
        train_x=torch.cat([_padded(data.train_x, shape) for data in datasets]),
        train_y=torch.cat([data.train_y + start for data, start in each]),
        test_x=torch.cat([_padded(data.test_x, shape) for data in datasets]),
        test_y=torch.cat([data.test_y + start for data, start in each]),
        fingerprint=sha256(" + ".join(data.fingerprint for data in datasets).encode()).hexdigest(),
        is_normalized=datasets[0].is_normalized,
        parts=tuple(sizes),
    )


def _common(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The smallest shape that contains all of them, with channels if any has them."""
    if len(shapes[0]) == 1:
        return (max(shape[0] for shape in shapes),)
    channels = {shape[0] if len(shape) == 3 else 1 for shape in shapes}
    if len(channels - {1}) > 1:
        numbers = " and ".join(map(str, sorted(channels)))
        raise ThreefoldError(f"data that are joined must have one number of channels, or 1, got {numbers}.")
    size = tuple(max(shape[axis] for shape in shapes) for axis in (-2, -1))
    return (max(channels), *size) if any(len(shape) == 3 for shape in shapes) else size


def _padded(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The samples, centred and padded with zeros."""
    if len(shape) == 1:
        return pad(x, (0, shape[0] - x.shape[1]))
    if len(shape) == 3 and x.dim() == 3:
        x = x.unsqueeze(1)
    if len(shape) == 3 and x.shape[1] != shape[0]:
        x = x.expand(-1, shape[0], -1, -1)
    down, right = shape[-2] - x.shape[-2], shape[-1] - x.shape[-1]
    return pad(x, (right // 2, right - right // 2, down // 2, down - down // 2)).contiguous()
