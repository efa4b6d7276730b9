"""The gradient of a step with its elementwise work fused by PyTorch's compiler; the code is the same."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from threefold.errors import ThreefoldError


class CompiledFunction:
    """A function of trees of tensors, compiled for the shapes of its first call.

    Parts, mapping over replicas and derivatives are traced away first: the compiler sees plain tensor operations, and
    its cache serves other methods with the same ones.
    """

    def __init__(self, backend: str = "inductor") -> None:
        self.backend = backend
        self._compiled: Callable[..., list[Tensor]] | None = None
        self._used: list[int] = []
        self._result: TreeSpec | None = None
        self.broken = False

    def __call__(self, function: Callable[..., Any], *trees: Any) -> Any:
        """The function's value (it must be the same function each time); uncompiled where there is no compiler."""
        if self.broken:
            return function(*trees)
        leaves, spec = tree_flatten(trees)
        if self._compiled is None:
            try:
                result = self._first(function, leaves, spec)
            except (torch.OutOfMemoryError, ThreefoldError):
                raise
            except Exception as error:  # a missing or broken compiler may raise anything
                reason = " ".join(str(error).split())[:200]
                warnings.warn(f"steps are not compiled here, so they take longer ({reason})", stacklevel=2)
                self.broken = True
                return function(*trees)
        else:
            result = self._compiled(*[leaves[place] for place in self._used])
        assert self._result is not None
        return tree_unflatten(result, self._result)

    def _first(self, function: Callable[..., Any], leaves: list[Tensor], spec: TreeSpec) -> list[Tensor]:
        """The first call, which compiles. The compiler's own warnings are suppressed."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\._inductor")
            compiled = self._compile(function, leaves, spec)
            result = compiled(*[leaves[place] for place in self._used])
        self._compiled = compiled
        return result

    def _compile(
        self, function: Callable[..., Any], leaves: list[Tensor], spec: TreeSpec
    ) -> Callable[..., list[Tensor]]:
        def flat(*leaves: Tensor) -> list[Tensor]:
            result, self._result = tree_flatten(function(*tree_unflatten(list(leaves), spec)))
            return result

        traced = make_fx(flat)(*leaves)
        inputs = traced.graph.find_nodes(op="placeholder")
        self._used = [place for place, node in enumerate(inputs) if node.users]
        for node in inputs:
            if not node.users:  # an unused, growing memory must not cause recompilation
                traced.graph.erase_node(node)
        traced.recompile()
        compiled: Callable[..., list[Tensor]] = torch.compile(traced, backend=self.backend)
        return compiled
