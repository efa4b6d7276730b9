"""Checks of what hooks return: a step's kernels address tensors by position, and check no shapes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves

from threefold.errors import ThreefoldError
from threefold.methods import Part, Quadratic
from threefold.methods.learner import Memory, Params


def gradient(part: Part, given: Any, params: Params) -> Params:
    """The gradient that `adjust` returned, in the order of the parameters."""
    found = _for_each(f"what adjust of {part.name} returns", given, params)
    if extra := sorted(map(str, given.keys() - params.keys())):
        raise ThreefoldError(
            f"adjust of {part.name} must return a tensor for each parameter of the classifier and no other, got one for"
            f" '{extra[0]}'."
        )
    return found


def memory(hook: str, part: Part, given: Any) -> Memory:
    """What a hook returned to be remembered or kept: tensors by name, nested in dictionaries or lists."""
    what = f"{hook} of {part.name}"
    if not isinstance(given, Mapping):
        raise ThreefoldError(f"{what} must return a dictionary of tensors, got {_kind(given)}.")
    for name, value in given.items():
        for leaf in tree_leaves(value):
            if not isinstance(leaf, Tensor):
                raise ThreefoldError(f"{what} must return tensors, got {_kind(leaf)} for '{name}'.")
    return dict(given)


def write(part: Part, entry: str, mine: Any, value: Any) -> None:
    """Write a stacked value that `after_step` returned into an entry of the memory of the same structure."""
    what = f"after_step of {part.name}"
    if mine is None:
        raise ThreefoldError(f"{what} writes '{entry}', which is not in its memory; return it from start first.")
    (old, shape), (new, its) = tree_flatten(mine), tree_flatten(_ordered(value, mine))
    if shape != its or any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(old, new, strict=True)):
        raise ThreefoldError(
            f"{what} writes '{entry}' with other shapes or types than it has; they must stay the same."
        )
    for a, b in zip(old, new, strict=True):
        a.copy_(b)


def _ordered(given: Any, like: Any) -> Any:
    """The same tree, with its dictionaries in the order of `like`."""
    if isinstance(given, Mapping) and isinstance(like, Mapping) and given.keys() == like.keys():
        return {name: _ordered(given[name], value) for name, value in like.items()}
    return given


def networks(part: Part, given: Any) -> dict[str, nn.Module]:
    """The networks that a part trains in addition to the classifier."""
    if not isinstance(given, Mapping) or not all(isinstance(net, nn.Module) for net in given.values()):
        kind = _kind(given) if not isinstance(given, Mapping) else "what is no module"
        raise ThreefoldError(f"networks of {part.name} must return a dictionary of modules by name, got {kind}.")
    if "classifier" in given:
        raise ThreefoldError(
            f"networks of {part.name} must not name a 'classifier'; give a network of your own as network=."
        )
    for name, net in given.items():
        for buffer, _ in net.named_buffers():
            raise ThreefoldError(
                f"networks of {part.name} must have no buffers, and '{name}' has {buffer}; use LayerNorm or GroupNorm."
            )
    return dict(given)


def weights(part: Part, given: Any, nets: Mapping[str, Params]) -> dict[str, Params]:
    """The weights with which some of a part's networks begin a task."""
    if not isinstance(given, Mapping):
        raise ThreefoldError(
            f"begin of {part.name} must return a dictionary of weights by network, got {_kind(given)}."
        )
    if extra := sorted(map(str, given.keys() - nets.keys())):
        raise ThreefoldError(f"begin of {part.name} gives weights for '{extra[0]}', which is no network of its own.")
    return {name: _for_each(f"what begin of {part.name} returns for {name}", given[name], nets[name]) for name in given}


def path(part: Part, given: Any, params: Params) -> Params:
    """The tensors in which the path integral of each stacked parameter is summed."""
    return _for_each(f"path integral of {part.name}", given, params)


def quadratic(part: Part, given: Any, params: Params) -> Quadratic:
    """A quadratic with one tensor for its strength, and for each parameter an anchor and a precision of its shape."""
    what = f"quadratic penalty of {part.name}"
    if not isinstance(given, Quadratic):
        raise ThreefoldError(f"penalty of {part.name} must return a Quadratic at every step of a task or at none.")
    strength = given.strength
    if not hasattr(strength, "__float__"):
        raise ThreefoldError(f"strength in the {what} must be one number, got {_kind(strength)}.")
    if not isinstance(strength, Tensor):  # filled on the device: a CUDA graph cannot capture a copy from the host
        strength = torch.full((), float(strength), device=next(iter(params.values())).device)
    if strength.numel() != 1:
        raise ThreefoldError(f"strength in the {what} must be one number, got shape {tuple(strength.shape)}.")
    anchor, precision = (
        _for_each(f"{field} in the {what}", tree, params, broadcast=True)
        for field, tree in (("anchor", given.anchor), ("precision", given.precision))
    )
    return Quadratic(strength.reshape(()), anchor, precision)


def kept(given: dict[str, Tensor], before: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What parts keep after a task: under the same names and of the same shapes as after earlier ones."""
    form = {name: f"{tuple(value.shape[1:])} of {value.dtype}" for name, value in given.items()}
    for first in before[:1]:
        had = {name: f"{tuple(value.shape[1:])} of {value.dtype}" for name, value in first.items()}
        for name in sorted(form.keys() | had.keys()):
            if form.get(name) != had.get(name):
                raise ThreefoldError(
                    f"keep returns '{name}' of shape {form.get(name, 'nothing')}, and {had.get(name, 'nothing')} after"
                    " the first task; it must return tensors of the same names, shapes and types after each."
                )
    return given


def _for_each(what: str, given: Any, params: Params, broadcast: bool = False) -> Params:
    if not isinstance(given, Mapping):
        raise ThreefoldError(f"{what} must be a dictionary with a tensor for each parameter, got {_kind(given)}.")
    return {name: _one(what, name, given.get(name), param, broadcast) for name, param in params.items()}


def _one(what: str, name: str, tensor: Any, param: Tensor, broadcast: bool) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise ThreefoldError(f"{what} must hold a tensor for '{name}', got {_kind(tensor)}.")
    if broadcast and _broadcasts(tensor.shape, param.shape):
        return tensor.broadcast_to(param.shape)
    if tensor.shape != param.shape:
        shape, its = tuple(param.shape), tuple(tensor.shape)
        raise ThreefoldError(f"{what} must have the parameter's shape {shape} for '{name}', got {its}.")
    return tensor


def _broadcasts(small: Size, large: Size) -> bool:
    last = large[len(large) - len(small) :]
    return len(small) <= len(large) and all(a in (1, b) for a, b in zip(small, last, strict=True))


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return "nothing" if value is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
