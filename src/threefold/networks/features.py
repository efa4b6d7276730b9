"""Frozen features by name: of a user's function, or of a pretrained network."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from threefold.data import Encoder
from threefold.errors import ThreefoldError
from threefold.networks.spec import NETWORKS, written_shape
from threefold.networks.structure import Structure
from threefold.networks.weights import Weights, load_weights
from threefold.own_code import imported
from threefold.values import build


def encoder(given: Any, device: str = "cpu") -> Encoder:
    """The encoder for `my_encoder.py:encode`, `package.module:encode`, `conv.pt`, `conv.pt:3` or a function.

    `conv.pt:3` is the network of seed 3; with `conv.pt:each` every seed has its own. `device`: where a network from a
    file computes; your own function chooses its device itself.
    """
    if isinstance(given, Encoder):
        return given
    if not isinstance(given, str):
        return Encoder.of(given)
    file, _, last = given.rpartition(":")
    if given.endswith(".pt"):
        return _pretrained(given, given, 1, device)
    if file.endswith(".pt") and last == "each":
        return _each(given, file, device)
    if file.endswith(".pt"):
        if not last.isdecimal():
            raise ThreefoldError(f"features are '{given}', but '{last}' is no seed; use {file} or {file}:1.")
        return _pretrained(given, file, int(last), device)
    if not file or not last:
        raise ThreefoldError(f"features are '{given}'; use FILE.py:FUNCTION, FILE.pt or FILE.pt:SEED.")
    return Encoder.of(imported(file, last, "features"), given)


@dataclass(frozen=True)
class _Shapes:
    shape: tuple[int, ...]
    units: int


class _Features:
    """The features of one network, in eval mode."""

    def __init__(self, name: str, weights: Weights, seed: int, device: str) -> None:
        about = weights.about["network"]
        self.shapes, self.name = _Shapes(tuple(about["shape"]), about["units"]), name
        with torch.device("meta"):  # modules define the computation; the file has the weights
            network = build(NETWORKS, "network", about["name"], about["hyperparameters"])
            self.net = network.build(self.shapes).eval()
        if weights.fitting(self.net, network.name) != self.net.state_dict().keys():
            raise ValueError("the output layer is another's")
        self.structure = Structure.of(self.net, network.name, self.shapes.shape, self.shapes.units)
        self.device = torch.device(device if torch.cuda.is_available() else "cpu")
        self.state = {name: value.to(self.device) for name, value in weights.of_seed(seed).items()}

    def __call__(self, inputs: Tensor) -> Tensor:
        shape = tuple(inputs.shape[1:])
        if shape != self.shapes.shape:
            mine, its = written_shape(self.shapes.shape), written_shape(shape)
            raise ThreefoldError(f"features {self.name} are of a network for {mine}, and the data have {its}.")
        exact = torch.backends.cudnn.flags(allow_tf32=False)  # features do not depend on training's precision
        found: list[Tensor] = []
        if own := getattr(self.net, "encoding", None):  # the output before the last layers
            with exact:
                hook = own.register_forward_hook(lambda module, args, output: found.append(output))
                functional_call(self.net, self.state, (inputs.to(self.device),))
                hook.remove()
            return found[0]
        with exact, self.structure.tapped(self.net) as tapped:
            functional_call(self.net, self.state, (inputs.to(self.device),))
        return tapped[0]


def _pretrained(name: str, file: str, seed: int, device: str) -> Encoder:
    weights = load_weights(file)
    if not weights.about:
        raise _unusable(name, "has weights alone, and not the network that they belong to")
    if weights.about.get("own"):
        raise _unusable(name, "has a network of your own, which only your code can build")
    if seed not in weights.seeds:
        known = ", ".join(map(str, weights.seeds))
        raise ThreefoldError(f"features are '{name}', but {Path(file).name} has no seed {seed}; it has {known}.")
    try:
        features = _Features(name, weights, seed, device)
    except ThreefoldError:
        raise
    except Exception as error:  # the code may be a user's
        raise _unusable(name, "has no network that can be built") from error
    about = repr(sorted(weights.about["network"].items()))
    total = sha256(f"{weights.sum} {about} seed {seed}".encode()).hexdigest()
    return Encoder(features, total, name, bool(weights.about.get("normalized")))


def _each(name: str, file: str, device: str) -> Encoder:
    """An encoder in which each seed of a file has its own network."""
    every = {seed: _pretrained(f"{file}:{seed}", file, seed, device) for seed in load_weights(file).seeds}
    first = next(iter(every.values()))
    total = sha256(" ".join(each.sum for each in every.values()).encode()).hexdigest()
    return Encoder(first.function, total, name, first.normalized, each=every)


def _unusable(name: str, why: str) -> ThreefoldError:
    return ThreefoldError(f"features file '{name}' {why}; use what `threefold pretrain` wrote, or FILE.py:FUNCTION.")
