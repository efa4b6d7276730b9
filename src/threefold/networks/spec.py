"""Networks as values: a name and hyperparameters, or a user's function."""

from collections.abc import Callable
from typing import Annotated, Any, Protocol

from pydantic import BeforeValidator, ConfigDict, InstanceOf, PositiveInt
from torch import nn

from threefold.errors import ThreefoldError, unknown
from threefold.networks.cnn import CNN, Last, Norm
from threefold.networks.layers import Activation
from threefold.networks.mlp import MLP
from threefold.networks.resnet import ResNet18
from threefold.networks.weights import Weights, load_weights
from threefold.own_code import own_code
from threefold.values import Value, as_text, build, check_name, hyper, known, listed, pairs_of


class Shapes(Protocol):
    """The shapes that a network is built for; a method's `Setting` has them."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # of one sample: channels × height × width, or a number of features

    @property
    def units(self) -> int: ...  # logits


class Network(Value):
    """A classifier by name."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    init: InstanceOf[Weights] | None = hyper(
        "FILE.pt with the weights to begin with, its output layer left out where it is of another shape", exclude=True
    )

    def build(self, setting: Shapes) -> nn.Module:
        raise NotImplementedError

    def written(self) -> str:
        text = super().written()
        if self.init is None:
            return text
        return f"{text}{',' if ':' in text else ':'}init={self.init.file or self.init.sum[:12]}"

    def refuse(self, shape: tuple[int, ...]) -> str | None:
        """Why it cannot work on inputs of this shape; None if it can."""
        return None


class MLPNetwork(Network):
    """Fully connected layers: the paper's network."""

    name = "mlp"
    depth: int = hyper("hidden layers", 2, ge=1, le=100)
    width: int | None = hyper("units in each hidden layer; the paper's for the stream if not given", ge=1)
    activation: Activation = hyper("what follows each hidden layer", "relu")

    def build(self, setting: Shapes) -> nn.Module:
        inputs = 1
        for size in setting.shape:
            inputs *= size
        assert self.width is not None
        return MLP(inputs, self.width, setting.units, self.depth, self.activation)


class _OfImages(Network):
    def refuse(self, shape: tuple[int, ...]) -> str | None:
        if len(shape) == 3:
            return None
        return f"network {self.name} needs images, channels × height × width, and the data have {written_shape(shape)}."


class CNNNetwork(_OfImages):
    """Convolutions of 3 × 3, each but the first halving the image, and a linear output layer."""

    name = "cnn"
    channels: Annotated[tuple[PositiveInt, ...], BeforeValidator(listed)] = hyper(
        "channels of each convolution", (16, 32, 64, 128, 256), min_length=1, max_length=100
    )
    norm: Norm = hyper("normalisation after each convolution", "none")
    hidden: Annotated[tuple[PositiveInt, ...], BeforeValidator(listed)] | None = hyper(
        "units of fully connected layers after the convolutions, as in 2000-2000", later=True, min_length=1
    )
    last: Last = hyper("what follows the last convolution: what follows the others, or nothing", "relu", later=True)
    frozen: bool = hyper(
        "the convolutions keep the weights of init=FILE.pt, and all other layers begin anew", False, later=True
    )

    def refuse(self, shape: tuple[int, ...]) -> str | None:
        if self.frozen and self.init is None:
            return f"network {self.written()} freezes convolutions that were never trained; give init=FILE.pt too."
        return super().refuse(shape)

    def build(self, setting: Shapes) -> nn.Module:
        how = self.norm, self.hidden or (), self.last
        return CNN(setting.shape, self.channels, setting.units, *how, frozen=self.frozen)


class ResNetNetwork(_OfImages):
    """The reduced ResNet-18 of the field: batch norm, global average pooling, linear output."""

    name = "resnet18"
    width: int = hyper("channels of the first stage; each of the four has twice as many as the last", 20, ge=1)

    def build(self, setting: Shapes) -> nn.Module:
        return ResNet18(setting.shape[0], self.width, setting.units)


NETWORKS: dict[str, type[Network]] = {kind.name: kind for kind in (MLPNetwork, CNNNetwork, ResNetNetwork)}


REGISTERED: dict[str, Callable[[Any], nn.Module]] = {}


def register_network(name: str, function: Callable[[Any], nn.Module]) -> None:
    """Make a network of your own known by a name: `--network NAME`."""
    check_name("name of a network", name, NETWORKS)
    if not callable(function):
        raise ThreefoldError(f"network must be a class or function that takes the setting, got {function!r}.")
    REGISTERED[name] = function


class OwnNetwork:
    """A user's network: a class or function that takes the setting and returns a module.

    It is identified by its own name, however it was imported; `text` is its text on the command line, such as
    `my_nets.py:Net`.
    """

    init = None  # the function sets its weights

    def __init__(self, function: Callable[[Any], nn.Module], text: str | None = None) -> None:
        self.function, self.text = function, text
        self.name = str(getattr(function, "__qualname__", type(function).__name__))

    def build(self, setting: Shapes) -> nn.Module:
        net = self.function(setting)
        if not isinstance(net, nn.Module):
            raise ThreefoldError(f"network {self.name} must give an nn.Module, got a {type(net).__name__}.")
        return net

    def refuse(self, shape: tuple[int, ...]) -> str | None:
        return None

    def model_dump(self, **how: Any) -> dict[str, Any]:
        return {}

    def written(self) -> str:
        return self.text or self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnNetwork) and self.function is other.function

    def __hash__(self) -> int:
        return hash(self.function)


AnyNetwork = Network | OwnNetwork


def find_network(given: Any) -> AnyNetwork:
    """The network for `cnn:norm=group`, `my_nets.py:Net`, `package.module:Net`, or a class or function."""
    if isinstance(given, OwnNetwork):
        return given
    if isinstance(given, Network):
        return known(NETWORKS, "network", given, "; give a function of the setting, or a class of modules")
    if callable(given):
        return OwnNetwork(given)
    if not isinstance(given, str):
        raise ThreefoldError(
            f"network must be a name such as 'cnn:norm=group', or a function of the setting, got {given!r}."
        )
    if given in REGISTERED:
        return OwnNetwork(REGISTERED[given], given)
    if own := own_code(given, "network", NETWORKS):
        return OwnNetwork(own, given)
    name, values = pairs_of(given, "network")
    if name not in NETWORKS:
        raise unknown("network", name, [*NETWORKS, *REGISTERED])
    if name in NETWORKS and "init" in values:
        return build(NETWORKS, "network", name, {**values, "init": load_weights(values["init"])})
    return build(NETWORKS, "network", name, values)


def written_shape(shape: tuple[int, ...]) -> str:
    """The shape of a sample, in words."""
    return f"{shape[0]} features" if len(shape) == 1 else f"the shape {as_text(list(shape))}"
