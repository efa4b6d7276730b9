"""How a function of one network is applied to all replicas of a stack.

Fully connected layers are mapped: one batched product does the work of all networks. Convolutions are not: on an H200,
twenty networks one by one on several streams within a captured graph take a quarter less time than one grouped
convolution (docs/performance.md), and on a CPU grouped convolutions are slower than any loop.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_map

STREAMS = 16  # networks that a GPU works on at the same time

Mapping = Callable[..., Any]
"""`mapping(function, axes, *args)`: the function applied to each replica's slice of the arguments, results stacked.
`axes` gives for each argument (or, as a tuple, for each of its fields) the replica axis: 0, or None for none."""


def mapped(function: Callable[..., Any], axes: Any, *args: Any) -> Any:
    """For all replicas at once."""
    return vmap(function, in_dims=axes)(*args)


class OneByOne:
    """One replica after the other; on a GPU several at a time, each on its own stream."""

    def __init__(self, replicas: int, device: torch.device) -> None:
        self.replicas = replicas
        many = min(STREAMS, replicas) if device.type == "cuda" else 0
        self.streams = [torch.cuda.Stream(device) for _ in range(many)]  # type: ignore[no-untyped-call]

    def __call__(self, function: Callable[..., Any], axes: Any, *args: Any) -> Any:
        each = [partial(function, *_slice(args, axes, replica)) for replica in range(self.replicas)]
        results = self._on_streams(each) if self.streams else [one() for one in each]
        return tree_map(lambda *leaves: torch.stack(leaves), *results)

    def _on_streams(self, each: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run on the streams, which wait for earlier launches; later launches wait for all of them."""
        here = torch.cuda.current_stream()
        for stream in self.streams:
            stream.wait_stream(here)
        results = []
        for place, one in enumerate(each):
            with torch.cuda.stream(self.streams[place % len(self.streams)]):
                results.append(one())
        for stream in self.streams:
            here.wait_stream(stream)
        return results


def _slice(tree: Any, axes: Any, replica: int) -> Any:
    if axes is None:
        return tree
    if isinstance(axes, tuple):
        parts = [_slice(part, axis, replica) for part, axis in zip(tree, axes, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree_map(lambda leaf: leaf[replica] if isinstance(leaf, Tensor) else leaf, tree)
