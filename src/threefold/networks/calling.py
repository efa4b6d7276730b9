"""A module with parameters and buffers that are not its own."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from torch import Tensor, nn
from torch.func import functional_call


def called(net: nn.Module, values: dict[str, Tensor], x: Tensor) -> Tensor:
    """What the network gives with these values, as `functional_call` does, which looks for their places at each call:
    on a CPU a thirtieth of a small network's step."""
    if x.is_cuda:  # where steps are captured or compiled
        return cast(Tensor, functional_call(net, values, (x,)))
    given = [(own, key, values[name]) for own, key, name in _places(net) if name in values]
    before = [own[key] for own, key, _ in given]
    try:
        for own, key, value in given:
            own[key] = value
        return cast(Tensor, net(x))
    finally:
        for (own, key, _), tensor in zip(given, before, strict=True):
            own[key] = tensor


def put_values(net: nn.Module, values: Mapping[str, Tensor]) -> nn.Module:
    """The network, which may have shapes only, with these parameters and buffers as its own."""
    for own, key, name in _places(net):
        given = values[name]
        own[key] = nn.Parameter(given, given.is_floating_point()) if isinstance(own[key], nn.Parameter) else given
    return net


@lru_cache(16)
def _places(net: nn.Module) -> list[tuple[dict[str, Any], str, str]]:
    """Where a module holds its tensors, and their names; one that it holds twice has the first for both."""
    found, names = [], dict[Tensor, str]()
    for path, module in net.named_modules():
        for own in (module._parameters, module._buffers):
            for key, tensor in own.items():
                if tensor is not None:
                    found.append((own, key, names.setdefault(tensor, f"{path}.{key}" if path else key)))
    return found
