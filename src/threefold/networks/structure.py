"""The structure of a classifier: its hidden layers and features, determined by a trial forward pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from threefold.errors import ThreefoldError
from threefold.networks.gradients import check_each_by_itself, check_gradient, maps, maps_samples
from threefold.networks.layers import NORMALISATIONS, Shift, check_dtype, check_parameters

GateOn = Literal["activation", "input"]
Weighted = (nn.Linear, nn.modules.conv._ConvNd)


@dataclass(frozen=True)
class HiddenLayer:
    """A layer whose units can be gated."""

    path: str  # of its weights
    end: str  # of the last module before the activation: itself, its bias or a normalisation
    units: int
    last: bool  # are its units the last axis of its output, as a linear layer's, not the channels?
    by_sample: bool = True  # does its output have a row for each sample, so that samples can be gated separately?


@dataclass(frozen=True)
class Tap:
    """A layer with its own parameters alone, and the shape of its output for one sample."""

    path: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """A classifier's layers, by the paths of its modules, in the order in which they are called."""

    hidden: tuple[HiddenLayer, ...]
    output: str | None  # the last linear layer
    features: str | None  # the module whose output is the features; None: they are the input of the output layer
    feature_size: int
    activations: int  # numbers that a sample becomes on its way through all layers
    taps: tuple[Tap, ...]  # layers whose gradients for each sample are products
    convolutional: bool
    channels_last: bool  # are its convolutions quicker so on a GPU? Normalisations are slower
    mapped: bool  # can one call do the work of all networks of a stack? For convolutions that is slower
    samples_mapped: bool  # can the gradients for several samples be taken at once?
    capturable: bool  # does it compute without asking for values, so that a step can be captured as a CUDA graph?
    has_modes: bool  # may it compute something different in training mode?

    @classmethod
    def of(
        cls, net: nn.Module, name: str, shape: tuple[int, ...], units: int, device: str = "meta", *, own: bool = False
    ) -> "Structure":
        """The structure of a classifier from inputs of this shape to `units` logits. `own`: it is a user's, and may do
        anything."""
        check_parameters(net)
        features = "features" if isinstance(getattr(net, "features", None), nn.Module) else None
        with _recorded(net, name) as (calls, operations):
            logits = net(torch.zeros(2, *shape, device=device))
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if found != (2, units):
            raise ThreefoldError(f"network {name} must give {units} logits for each sample, got {found} for two.")
        check_dtype(f"logits of network {name} must be", logits)
        with _recorded(net, name) as (in_use, others):
            _use(net, name, torch.zeros(3, *shape, device=device))
        folded = {c.path for c in calls if c.rows != 2} | {c.path for c in in_use if c.rows != 3}
        weighted, _ = _weighted(calls, name), _weighted(in_use, name)
        output = next((call for call in reversed(weighted) if isinstance(call.module, nn.Linear)), None)
        size = _feature_size(calls, features, output, folded, name)
        last = weighted[-1:] if weighted and not f"{weighted[-1].path}.".startswith("features.") else []
        convolutional = any(isinstance(call.module, nn.modules.conv._ConvNd) for call in weighted)
        no_products = folded | operations.elsewhere | others.elsewhere
        taps = tuple(Tap(c.path, c.shape) for c in in_use if _by_products(c) and c.path not in no_products)
        if own:
            check_each_by_itself(net, name, shape, device)
            check_gradient(net, name, shape, device)
        can_map = not own or maps(net, shape, device)
        mapped = can_map and not convolutional
        rest = [path for path, _ in net.named_parameters() if path.rpartition(".")[0] not in {tap.path for tap in taps}]
        return cls(
            hidden=tuple(_hidden(calls, call, call.path not in folded) for call in weighted if call not in last),
            output=output.path if output else None,
            features=features,
            feature_size=size,
            activations=sum(prod(call.shape) for call in calls if call.is_leaf),
            taps=taps,
            convolutional=convolutional,
            channels_last=convolutional and not any(isinstance(module, NORMALISATIONS) for module in net.modules()),
            mapped=mapped,
            samples_mapped=can_map and (not own or not rest or maps_samples(net, shape, device, rest, mapped=mapped)),
            capturable=not operations.asks_for_values,
            has_modes=any(True for _ in net.buffers()) or any(map(_may_have_modes, net.modules())),
        )

    @contextmanager
    def gated(self, net: nn.Module, gates: Sequence[Tensor], on: GateOn) -> Iterator[None]:
        """The network with its hidden units multiplied by gates: for each layer one factor per unit, or per sample too.

        Before the activation, which need not be a module: what is zero there is zero after each of ours.
        """
        with ExitStack() as hooks:
            for layer, gate in zip(self.hidden, gates, strict=True):
                module = net.get_submodule(layer.end if on == "activation" else layer.path)
                hooks.callback(module.register_forward_hook(_gate(layer, gate, keeps_bias=on == "input")).remove)
            yield

    @contextmanager
    def tapped(self, net: nn.Module) -> Iterator[list[Tensor]]:
        """Collects the features of inputs sent through the network in this context, a row for each sample."""
        found: list[Tensor] = []
        if self.features:
            module = net.get_submodule(self.features)
            hook = module.register_forward_hook(lambda module, args, output: found.append(output.flatten(1)))
        else:
            module = net.get_submodule(self.output or "")
            hook = module.register_forward_pre_hook(lambda module, args: found.append(args[0].flatten(1)))
        try:
            yield found
        finally:
            hook.remove()

    @property
    def units(self) -> tuple[int, ...]:
        """How many units (or channels) each hidden layer has."""
        return tuple(layer.units for layer in self.hidden)


def _gate(layer: HiddenLayer, gate: Tensor, *, keeps_bias: bool) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        factor = _along_units(layer, gate, output)
        bias: Tensor | None = getattr(module, "bias", None)
        if not keeps_bias or bias is None:
            return output * factor
        bias = _along_units(layer, bias, output)
        return (output - bias) * factor + bias

    return hook


def _along_units(layer: HiddenLayer, factors: Tensor, output: Tensor) -> Tensor:
    """Factors per unit, or per sample and unit, shaped to broadcast over an output's positions."""
    places = [1] * (output.dim() - 2)
    if not layer.last:
        return factors.view(*factors.shape, *places)
    return factors.view(len(factors), *places, -1) if factors.dim() == 2 else factors


@dataclass(frozen=True, eq=False)
class _Call:
    path: str
    module: nn.Module
    inputs: int  # numbers of one row
    rows: int  # of its output: samples, as a rule
    shape: tuple[int, ...]  # of one row of its output

    @property
    def channels(self) -> int:
        """The number of units; a linear module may be applied at several positions of a sample."""
        return self.shape[-1] if isinstance(self.module, nn.Linear) else self.shape[0]

    @property
    def is_leaf(self) -> bool:
        """Is it a layer, including one whose weights its own submodules compute (parametrisation)?"""
        return isinstance(self.module, Weighted) or not list(self.module.children())


def _weighted(calls: list[_Call], name: str) -> list[_Call]:
    """The calls of layers with weights, in order."""
    found = [call for call in calls if isinstance(call.module, Weighted)]
    for call in found:
        if sum(call.module is other.module for other in found) > 1:
            raise ThreefoldError(f"network {name} must call each layer once, and calls {call.path} twice.")
    return found


def _feature_size(calls: list[_Call], features: str | None, output: _Call | None, folded: set[str], name: str) -> int:
    """How many features a sample has; that there is a row of them for each."""
    if features:
        own = [call for call in calls if call.path == features]
        if len(own) != 1 or features in folded:
            raise ThreefoldError(
                f"network {name} must call its submodule {features} once, which must give a tensor with a row for each"
                " sample."
            )
        return prod(own[0].shape)
    if not output:
        raise ThreefoldError(
            f"network {name} must have a linear layer, whose input is its features, or an attribute `features`."
        )
    if output.path in folded:
        raise ThreefoldError(
            f"network {name} must give {output.path} a row for each sample, since its input is the features; or name a"
            " submodule `features`."
        )
    return output.inputs


def _hidden(calls: list[_Call], call: _Call, by_sample: bool) -> HiddenLayer:
    """The hidden layer of a call, including a following bias or normalisation of its channels."""
    leaves = [each for each in calls if each.is_leaf]
    after = leaves[leaves.index(call) + 1 :]
    end = call
    if after and isinstance(after[0].module, (Shift, *NORMALISATIONS)) and after[0].shape == call.shape:
        end = after[0]
    return HiddenLayer(call.path, end.path, call.channels, isinstance(call.module, nn.Linear), by_sample)


def _use(net: nn.Module, name: str, x: Tensor) -> None:
    """Run the network in eval mode and check that no buffer changes, as training would then depend on tests."""

    def versions() -> dict[str, tuple[int, int]]:
        return {path: (id(buffer), buffer._version) for path, buffer in net.named_buffers()}

    training, before = net.training, versions()
    net.eval()(x)
    net.train(training)
    if changed := [path for path, version in versions().items() if before.get(path) != version]:
        raise ThreefoldError(
            f"network {name} must leave its buffer {changed[0]} as it is in eval mode; change it in training alone."
        )


def _by_products(call: _Call) -> bool:
    """Is a sample's gradient of this layer's weights a matrix product? Not if a user's class or hook may change it."""
    module = call.module
    if module._forward_hooks:
        return False
    if type(module) is nn.Conv2d:
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return type(module) is nn.Linear or isinstance(module, Shift)


def _may_have_modes(module: nn.Module) -> bool:
    """May a module depend on `self.training`? A user's module may."""
    from threefold.networks.dropout import Dropout

    return isinstance(module, Dropout) or not type(module).__module__.startswith(("torch.nn.", "threefold.networks."))


@contextmanager
def _recorded(net: nn.Module, name: str) -> Iterator[tuple[list[_Call], "_Operations"]]:
    """Record the calls of a network's modules, and its operations; randomness that is not addressed is an error."""
    calls: list[_Call] = []
    inside: list[str] = [""]

    def enter(path: str) -> Any:
        return lambda module, args: inside.append(path)

    def leave(path: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            inside.pop()
            if isinstance(output, Tensor) and args and isinstance(args[0], Tensor) and output.dim() > 1:
                calls.append(_Call(path, module, args[0][0].numel(), len(output), tuple(output.shape[1:])))

        return hook

    with ExitStack() as hooks:
        for path, module in net.named_modules():
            if path:
                hooks.callback(module.register_forward_pre_hook(enter(path)).remove)
                hooks.callback(module.register_forward_hook(leave(path)).remove)
        owners = {id(p): path for path, module in net.named_modules() for p in module.parameters(recurse=False)}
        yield calls, hooks.enter_context(_Operations(name, inside, owners))


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Checks each operation for three things.

    Drawing from PyTorch's generator would make a network depend on the others in its stack; reading a value (`if
    x.mean() > 0:`) synchronises with the GPU; using a layer's weights elsewhere adds to their gradient.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Overridden, as PyTorch would import its compiler for this, which takes seconds."""
        return False

    def __init__(self, name: str, inside: list[str], owners: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.inside, self.owners = name, inside, owners
        self.asks_for_values = False
        self.elsewhere: set[str] = set()  # modules whose parameters are used outside of them

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and not _without_dropout(func, args, kwargs or {}):
            where = self.inside[-1] or "its forward"
            raise ThreefoldError(
                f"network {self.name} draws random numbers in {where} ({func.overloadpacket.__name__}), which no seed"
                " decides; use nn.Dropout modules, or none."
            )
        if {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}:
            self.asks_for_values = True
        used = {self.owners.get(id(leaf)) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        self.elsewhere |= {path for path in used if path is not None and path != self.inside[-1]}
        return func(*args, **(kwargs or {}))


def _without_dropout(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is this attention without dropout? PyTorch marks attention as random in any case."""
    given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | dict(kwargs)
    has_one = any(each.name == "dropout_p" for each in func._schema.arguments)
    return has_one and not given.get("dropout_p", 0.0)
