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
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

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
        each = [partial(function, *own) for own in _slices(args, axes, self.replicas)]
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


def _slices(tree: Any, axes: Any, replicas: int) -> list[Any]:
    """Each replica's slice of a tree."""
    if axes is None:
        return [tree] * replicas
    if isinstance(axes, tuple):
        parts = zip(*(_slices(part, axis, replicas) for part, axis in zip(tree, axes, strict=True)), strict=True)
        return [type(tree)(*each) if hasattr(tree, "_fields") else each for each in parts]
    if isinstance(tree, Tensor):
        return list(tree.unbind())
    if type(tree) is dict and tree:  # as below, in half the time
        values = zip(*(_slices(value, 0, replicas) for value in tree.values()), strict=True)
        return [dict(zip(tree, each, strict=True)) for each in values]
    leaves, kind = tree_flatten(tree)
    rows = [leaf.unbind() if isinstance(leaf, Tensor) else [leaf] * replicas for leaf in leaves]
    return [tree_unflatten([row[replica] for row in rows], kind) for replica in range(replicas)]
