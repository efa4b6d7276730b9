"""Saved weights, used for initialisation or to compute features."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import torch
from torch import Tensor, nn

from threefold.errors import ThreefoldError
from threefold.memory import in_bytes, memory_limit
from threefold.reading import check_plain, check_saved, read_file

FORMAT = "threefold pretrained network 1"  # identifies what `threefold pretrain` writes
TENSORS, VALUES = 10_000, 1_000_000  # limits for a file, and for its description
NAME = 1000  # characters of a tensor's name
NUMBERS = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
}
OUTPUT = "output."  # prefix of the names in our networks' output layer


@dataclass(frozen=True)
class Weights:
    """The parameters and buffers of one network, or of several, each trained with its own seed.

    They are identified by their checksum, so files with the same content are equal.
    """

    sum: str  # SHA-256
    file: str | None = field(default=None, compare=False)  # None: only the checksum is known
    seeds: tuple[int, ...] = field(default=(1,), compare=False)
    state: Mapping[str, Tensor] = field(default_factory=dict, compare=False)  # networks × …
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)  # their description by `threefold pretrain`

    def of_seed(self, seed: int) -> dict[str, Tensor]:
        """The network trained with this seed, or if there is none, number 1 + (seed − 1) mod n of n."""
        place = self.seeds.index(seed) if seed in self.seeds else (seed - 1) % len(self.seeds)
        return {name: value[place] for name, value in self.state.items()}

    def fitting(self, net: nn.Module | Mapping[str, Tensor], network: str) -> set[str]:
        """The names that a network takes: all of its own, but the output layer only if it has the same shape."""
        wanted = net.state_dict() if isinstance(net, nn.Module) else net
        output = {name for name in wanted if name.startswith(OUTPUT)}
        same = all(name in self.state and self.state[name].shape[1:] == wanted[name].shape for name in output)
        names = wanted.keys() if same else wanted.keys() - output
        for name in sorted(names):
            if name not in self.state:
                raise self._unfit(f"lack {name}, which network {network} has")
            if self.state[name].shape[1:] != wanted[name].shape:
                mine, its = (_written(shape) for shape in (self.state[name].shape[1:], wanted[name].shape))
                raise self._unfit(f"have {name} of shape {mine}, and network {network} needs {its}")
        for name in sorted(self.state.keys() - wanted.keys()):
            if not name.startswith(OUTPUT):
                raise self._unfit(f"have {name}, which network {network} has not")
        return set(names)

    def put_into(
        self, seed: int, network: str, params: dict[str, Tensor], buffers: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The initial values of a network with this seed, its own where the weights have none."""
        names, own = self.fitting({**params, **buffers}, network), self.of_seed(seed)

        def taken(values: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: own[name].to(value.dtype) if name in names else value for name, value in values.items()}

        return taken(params), taken(buffers)

    def _unfit(self, why: str) -> ThreefoldError:
        return ThreefoldError(f"weights '{self.file}' {why}; give weights of the same network.")


def load_weights(path: str) -> Weights:
    """Load a state dict of `torch.save`, or a file of `threefold pretrain`. Nothing in it is ever executed."""
    state, seeds, about = _parted(path, _read(path))
    digest = sha256(repr(seeds).encode())
    for name, value in sorted(state.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().flatten().view(torch.uint8).numpy().data)
    return Weights(digest.hexdigest(), path, seeds, state, about)


def _read(path: str) -> Any:
    """A file's content, which must not be larger in memory than on disk."""
    try:
        content = read_file(path, memory_limit() // 4)
    except OSError as error:
        raise _refused(path, f"cannot be read ({error.strerror or error})") from error
    try:
        check_saved(BytesIO(content), len(content), TENSORS)
    except (BadZipFile, OSError) as error:
        raise _refused(path, "is no file of torch.save, or is cut short") from error
    except ValueError as error:
        raise _refused(path, str(error)) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(BytesIO(content), map_location="cpu", weights_only=True)
        except UnpicklingError as error:
            raise _refused(path, "holds more than tensors, which is never loaded") from error
        except Exception as error:  # for a damaged file PyTorch may raise anything
            raise _refused(path, "is damaged and cannot be read") from error


def _parted(path: str, found: Any) -> tuple[dict[str, Tensor], tuple[int, ...], dict[str, Any]]:
    """The networks' state with their seeds, and their description."""
    if not isinstance(found, Mapping):
        raise _refused(path, f"holds a {type(found).__name__}")
    if found.get("format") != FORMAT:
        return {name: value.unsqueeze(0) for name, value in _tensors(path, found).items()}, (1,), {}
    seeds, about = found.get("seeds"), {name: value for name, value in found.items() if name != "state"}
    try:
        check_plain(about, VALUES)
    except ValueError as error:
        raise _refused(path, f"cannot be used: {error}") from error
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise _refused(path, "has no seeds")
    if len(set(seeds)) < len(seeds):
        raise _refused(path, "has two networks of the same seed")
    state = _tensors(path, found.get("state"))
    for name, value in state.items():
        if value.shape[:1] != (len(seeds),):
            raise _refused(path, f"has {len(seeds)} seeds, but {name} of shape {_written(value.shape)}")
    return state, tuple(seeds), about


def _tensors(path: str, found: Any) -> dict[str, Tensor]:
    """The content, checked: plain tensors by name, with finite numbers, that fit into memory."""
    if not isinstance(found, Mapping) or not found:
        raise _refused(path, "holds no tensors")
    size = 0
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise _refused(path, f"holds a {type(value).__name__} under {str(name)[:60]!r}")
        if not name.isprintable() or len(name) > NAME:
            raise _refused(path, f"has a tensor {ascii(name)[:60]}, which is no name of a parameter")
        if value.layout is not torch.strided or value.device.type != "cpu" or value.dtype not in NUMBERS:
            raise _refused(path, f"has a tensor {name[:60]} without plain numbers")
        size += value.numel() * value.element_size()
    if size > (free := memory_limit() // 4):
        raise _refused(path, f"has tensors of {in_bytes(size)}, and {in_bytes(free)} may be used")
    for name, value in found.items():
        if not value.float().isfinite().all():  # in float32, as networks have them
            raise _refused(path, f"has numbers in {name[:60]} that are not finite")
    return {name: value.detach() for name, value in found.items()}


def _refused(path: str, why: str) -> ThreefoldError:
    return ThreefoldError(
        f"weights file '{path}' {why}; give what `threefold pretrain` or torch.save(net.state_dict(), FILE) wrote."
    )


def _written(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a single number"
