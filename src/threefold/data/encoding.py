"""Frozen features: inputs are sent through a function once, before training on its outputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from threefold.errors import ThreefoldError
from threefold.fingerprint import NotCovered, code_of
from threefold.memory import in_bytes, memory_limit

AT_ONCE = 256  # inputs


@dataclass(frozen=True)
class Encoder:
    """A function from a batch of inputs to features, and a fingerprint that represents it in keys."""

    function: Callable[[Tensor], Any]
    sum: str
    name: str  # for errors, and for the command line if it can load it
    normalized: bool | None = None  # must the data be normalised (True), or not (False)? None: either
    what: str = "features"  # how errors call its outputs
    each: Mapping[int, "Encoder"] = field(default_factory=dict)  # one for each seed; empty: one for all

    @classmethod
    def of(cls, function: Any, name: str | None = None) -> Self:
        """A user's function, identified by its code and what that refers to."""
        name = name or str(getattr(function, "__qualname__", type(function).__name__))
        if not callable(function):
            raise ThreefoldError(f"features must be a function from a batch of inputs to features, got {function!r}.")
        try:
            return cls(function, code_of(function) or "", name)
        except NotCovered as error:
            raise ThreefoldError(
                f"features {name} depend on {error}, which no key can cover; use plain values and tensors."
            ) from error

    def check(self, data: str, *, is_normalized: bool, features_of: str | None) -> None:
        """Check that it can be used on these data."""
        if features_of is not None:
            raise ThreefoldError(f"data {data} are features of {features_of} already; encode them once.")
        if self.normalized is not None and self.normalized != is_normalized:
            theirs, mine = ("", "not ") if self.normalized else ("not ", "")
            advice = "normalize them first" if self.normalized else "do not normalize them"
            raise self._refused(
                f"were learned from data that are {theirs}normalized, and {data} are {mine}normalized; {advice}"
            )

    def encode(self, inputs: Tensor) -> Tensor:
        """The features of all inputs, computed in pieces. Images have a channel axis, as for networks."""
        inputs = inputs.unsqueeze(1) if inputs.dim() == 3 else inputs
        first = self._piece(inputs[:AT_ONCE])
        if not torch.allclose(first, self._piece(inputs[:AT_ONCE]), rtol=1e-3, atol=1e-5):
            raise self._refused("give other numbers for the same inputs the second time; put modules into eval mode")
        need, free = 4 * len(inputs) * prod(first.shape[1:]), memory_limit()
        if need > free:
            raise self._refused(f"would take {in_bytes(need)} of memory, and {in_bytes(free)} are free; give fewer")
        features = torch.empty(len(inputs), *first.shape[1:])
        features[:AT_ONCE] = first
        for start in range(AT_ONCE, len(inputs), AT_ONCE):
            piece = self._piece(inputs[start : start + AT_ONCE])
            if piece.shape[1:] != first.shape[1:]:
                shapes = [tuple(each.shape[1:]) for each in (first, piece)]
                raise self._refused(f"have the shape {shapes[0]} and then {shapes[1]}; give one shape")
            features[start : start + AT_ONCE] = piece
        return features

    def _piece(self, inputs: Tensor) -> Tensor:
        """The features of a few inputs, checked, as the function may be a user's."""
        try:
            with torch.no_grad():
                given = self.function(inputs.clone())
        except ThreefoldError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise self._refused(f"fail for inputs of shape {tuple(inputs.shape)} ({reason}); fix it") from error
        found = torch.from_numpy(given) if isinstance(given, np.ndarray) else given
        if not isinstance(found, Tensor) or not found.is_floating_point():
            what = f"a tensor of {found.dtype}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise self._refused(f"are {what}; give a floating-point tensor, a row for each input")
        if found.dim() < 2 or len(found) != len(inputs) or found[0].numel() == 0:
            raise self._refused(f"have the shape {tuple(found.shape)} for {len(inputs)} inputs; give a row for each")
        found = found.detach().float().cpu()
        if not found.isfinite().all():
            raise self._refused("have numbers that are not finite; give finite ones")
        return found

    def _refused(self, why: str) -> ThreefoldError:
        return ThreefoldError(f"{self.what} {self.name} {why}.")
