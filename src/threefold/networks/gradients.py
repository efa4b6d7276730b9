"""Checks of a user's module before training: gradients of one network, of several at once, and of single samples."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_map

from threefold.errors import ThreefoldError


def check_each_by_itself(net: nn.Module, name: str, shape: tuple[int, ...], device: str) -> None:
    """Check that samples of a batch are independent, as batches are padded and gradients are taken per sample."""
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    training = net.training
    net.eval()
    three, two = _outputs(net, x), _outputs(net, x[:2])
    net.train(training)
    if _same_rows(three[-1].output, two[-1].output):  # the last is the network itself
        return
    pairs = zip(three, two, strict=False)
    calls = (a.path for a, b in pairs if _same_rows(a.given, b.given) and not _same_rows(a.output, b.output))
    where = next(calls, "") or "its forward"
    raise ThreefoldError(
        f"network {name} must treat each sample by itself in eval mode; in {where} it depends on those beside it."
    )


class _Done(NamedTuple):
    path: str
    given: Tensor
    output: Tensor


def _outputs(net: nn.Module, x: Tensor) -> list[_Done]:
    """The inputs and outputs of its modules, in the order in which they finish."""
    found: list[_Done] = []

    def noted(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor) and args and isinstance(args[0], Tensor):
                found.append(_Done(path, args[0], output))

        return hook

    with ExitStack() as hooks, torch.no_grad():
        for path, module in net.named_modules():
            hooks.callback(module.register_forward_hook(noted(path)).remove)
        net(x)
    return found


def _same_rows(three: Tensor, two: Tensor) -> bool:
    """Are the rows of the first two of three samples the same? True if there is no row for each sample."""
    if len(three) != 3 or three.shape[1:] != two.shape[1:]:
        return True
    one, other = three[:2].nan_to_num(), two.nan_to_num()
    return bool(((one - other).abs() <= 1e-3 * other.abs() + 1e-4 * other.abs().max()).all())


def check_gradient(net: nn.Module, name: str, shape: tuple[int, ...], device: str) -> None:
    """Check that torch.func can compute the gradient, which PyTorch does not support for every operation."""
    try:
        _gradient(net, _vectors(net))(*_values(net), torch.zeros(2, *shape, device=device))
    except Exception as error:  # a user's module may raise anything
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise ThreefoldError(f"network {name} must have a gradient, which torch.func.grad takes: {reason}.") from error


def maps(net: nn.Module, shape: tuple[int, ...], device: str) -> bool:
    """Can logits and gradients of several networks be computed at once? A user's module may read values, or write into
    its inputs."""
    x = torch.zeros(2, 3, *shape, device=device)

    def logits(params: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Any:
        return functional_call(net, {**params, **buffers}, (x,))

    given, gradient = (*_twice(_values(net)), x), _gradient(net, _vectors(net))
    return _works(lambda: vmap(logits)(*given)) and _works(lambda: vmap(gradient)(*given))


def maps_samples(net: nn.Module, shape: tuple[int, ...], device: str, names: list[str], *, mapped: bool) -> bool:
    """Can the gradients of these parameters be computed for several samples at once (and several networks, if mapped)?
    The two numbers differ in the test, as PyTorch has layers (PReLU) that confuse one axis with another."""
    each = vmap(_gradient(net, names), (None, None, 0))
    x, training = torch.zeros(2, 3, 1, *shape, device=device), net.training
    net.eval()
    works = _works(lambda: vmap(each)(*_twice(_values(net)), x) if mapped else each(*_values(net), x[0]))
    net.train(training)
    return works


def _gradient(net: nn.Module, names: Sequence[str]) -> Callable[..., dict[str, Tensor]]:
    """The gradient of a network's logits with respect to some parameters, computed as in training."""

    def one(params: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        def total(some: dict[str, Tensor]) -> Tensor:
            fresh = {name: buffer.clone() for name, buffer in buffers.items()}  # buffers are written in place
            logits: Tensor = functional_call(net, {**params, **some, **fresh}, (x,))
            return logits.sum()

        found: dict[str, Tensor] = grad(total)({name: params[name] for name in names})
        return found

    return one


def _vectors(net: nn.Module) -> list[str]:
    """The vector parameters, whose gradients are the cheapest; all if there are none."""
    shapes = {name: p.dim() for name, p in net.named_parameters()}
    return [name for name, dim in shapes.items() if dim < 2] or list(shapes)


def _values(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    params, buffers = ({n: value.detach() for n, value in own} for own in (net.named_parameters(), net.named_buffers()))
    return params, buffers


def _twice(tree: Any) -> Any:
    return tree_map(lambda leaf: torch.stack([leaf] * 2), tree)


def _works(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:  # a user's module may raise anything under vmap
        return False
    return True
