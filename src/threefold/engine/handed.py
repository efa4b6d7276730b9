"""What parts hand back for each parameter. The kernels of a step know tensors by their places and ask no shapes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.utils._pytree import tree_leaves

from threefold.errors import ThreefoldError
from threefold.methods import Leash, Part
from threefold.methods.part import Memory, Params


def gradient(part: Part, given: Any, params: Params) -> Params:
    """What `adjust` made of the gradient, in the order of the parameters."""
    found = _for_each(f"adjust of {part.name}", given, params)
    if extra := sorted(map(str, given.keys() - params.keys())):
        raise ThreefoldError(
            f"adjust of {part.name} gives '{extra[0]}', which is no parameter of the classifier; right would be a"
            " tensor for each of its parameters and no other."
        )
    return found


def memory(hook: str, part: Part, given: Any) -> Memory:
    """What `begin` or `consolidate` wants to be remembered, or `keepsakes` to be kept: tensors by name, in dictionaries
    or lists at will."""
    what = f"{hook} of {part.name}"
    if not isinstance(given, Mapping):
        raise ThreefoldError(f"{what} gives {_kind(given)}; right would be a dictionary of tensors.")
    for name, value in given.items():
        for leaf in tree_leaves(value):
            if not isinstance(leaf, Tensor):
                raise ThreefoldError(f"{what} gives {_kind(leaf)} for '{name}'; right would be a tensor.")
    return dict(given)


def networks(part: Part, given: Any) -> dict[str, nn.Module]:
    """The networks that a part wants beside the classifier."""
    if not isinstance(given, Mapping) or not all(isinstance(net, nn.Module) for net in given.values()):
        kind = _kind(given) if not isinstance(given, Mapping) else "what is no module"
        raise ThreefoldError(f"networks of {part.name} gives {kind}; right would be a dictionary of modules by name.")
    return dict(given)


def path(part: Part, given: Any, params: Params) -> Params:
    """Where the path of each stacked parameter is summed up."""
    return _for_each(f"path of {part.name}", given, params)


def leash(part: Part, given: Any, params: Params) -> Leash:
    """A leash with one tensor for its strength, and for each parameter an anchor and a precision of its shape."""
    if not isinstance(given, Leash):
        raise ThreefoldError(f"leash of {part.name} gives {_kind(given)}; right would be a Leash, or None.")
    strength = given.strength
    if not hasattr(strength, "__float__"):
        raise ThreefoldError(f"strength in the leash of {part.name} is {_kind(strength)}; right would be one number.")
    if not isinstance(strength, Tensor):  # filled on the device: a CUDA graph cannot capture a copy from the host
        strength = torch.full((), float(strength), device=next(iter(params.values())).device)
    if strength.numel() != 1:
        raise ThreefoldError(
            f"strength in the leash of {part.name} has shape {_told(strength.shape)}; right would be one number."
        )
    anchor, precision = (
        _for_each(f"{what} in the leash of {part.name}", tree, params, broadcast=True)
        for what, tree in (("anchor", given.anchor), ("precision", given.precision))
    )
    return Leash(strength.reshape(()), anchor, precision)


def _for_each(what: str, given: Any, params: Params, broadcast: bool = False) -> Params:
    if not isinstance(given, Mapping):
        raise ThreefoldError(f"{what} gives {_kind(given)}; right would be a dictionary with a tensor by parameter.")
    return {name: _one(what, name, given.get(name), param, broadcast) for name, param in params.items()}


def _one(what: str, name: str, tensor: Any, param: Tensor, broadcast: bool) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise ThreefoldError(f"{what} gives {_kind(tensor)} for '{name}'; right would be a tensor.")
    if broadcast and _broadcasts(tensor.shape, param.shape):
        return tensor.broadcast_to(param.shape)
    if tensor.shape != param.shape:
        raise ThreefoldError(
            f"{what} gives shape {_told(tensor.shape)} for '{name}'; right would be {_told(param.shape)}, the"
            " parameter's."
        )
    return tensor


def _broadcasts(small: Size, large: Size) -> bool:
    last = large[len(large) - len(small) :]
    return len(small) <= len(large) and all(a in (1, b) for a, b in zip(small, last, strict=True))


def _told(shape: Size) -> str:
    return str(tuple(shape))


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return "nothing" if value is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
