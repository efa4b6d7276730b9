"""A dataset: training and test samples as tensors in memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from threefold.data.encoding import Encoder
from threefold.errors import ThreefoldError

Array = NDArray[Any] | Tensor

_AT_ONCE = 200  # samples


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels, checked once and never changed after.

    Build one with `from_arrays`; the plain constructor checks nothing. The fingerprint is the SHA-256 of what the four
    tensors hold (shapes and values), so it does not depend on source, file or memory layout, and can be part of a
    run's key.
    """

    name: str
    train_x: Tensor
    """float32, (N, *shape); images of the known datasets are (N, 28, 28) or (N, 3, 32, 32), in [0, 1]"""
    train_y: Tensor
    """int64, (N,), labels 0…C−1"""
    test_x: Tensor
    test_y: Tensor
    fingerprint: str
    is_normalized: bool = False
    features: str = ""
    """the sum of the encoder whose features these are; empty: they are no features"""
    encoder: str = ""
    """its name"""
    seeds: tuple[int, ...] = ()
    """those with features of their own: all samples of the first, then all of the next; empty: all have the same"""
    columns: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """what is known of each sample besides, such as its year: of the training samples, and of the test samples"""
    parts: tuple[int, ...] = ()
    """the numbers of classes of the datasets that it was joined of; empty: it is one"""

    @cached_property
    def classes(self) -> int:
        return int(self.train_y.max()) + 1

    @cached_property
    def columns_sum(self) -> str:
        """Of what is known of each sample besides, which the fingerprint does not cover."""
        total = sha256()
        for name, pair in sorted(self.columns.items()):
            total.update(repr((name, *map(len, pair))).encode() + b"".join(each.numpy().tobytes() for each in pair))
        return total.hexdigest()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train_x.shape[1:])

    def place(self, seed: int) -> int:
        """Whose features a seed has: its own, or where there are none, those of number 1 + (seed − 1) mod n of n."""
        if not self.seeds:
            return 0
        return self.seeds.index(seed) if seed in self.seeds else (seed - 1) % len(self.seeds)

    def validation(self, share: float) -> Self:
        """A dataset in which this share of every class's training samples, the last ones, replaces the test set.

        It is for choosing hyperparameters: all its samples are training data, so the test set is not used. Every class
        must have samples on both sides.
        """
        if not 0 < share < 1:
            raise ThreefoldError(f"validation share must be more than 0 and less than 1, got {share}.")
        if self.seeds:
            raise ThreefoldError(f"data {self.name} are features of each seed's own; hold out first, then encode.")
        self._check_kept(share)
        held = torch.zeros(len(self.train_y), dtype=torch.bool)
        for label in range(self.classes):
            own = torch.nonzero(self.train_y == label).flatten()
            held[own[len(own) - _held_out(share, len(own)) :]] = True
        return replace(
            self,
            name=f"{self.name} validation",
            train_x=self.train_x[~held],
            train_y=self.train_y[~held],
            test_x=self.train_x[held],
            test_y=self.train_y[held],
            fingerprint=sha256(f"{self.fingerprint} validation {share}".encode()).hexdigest(),
            columns={name: (train[~held], train[held]) for name, (train, _) in self.columns.items()},
        )

    def normalized(self) -> Self:
        """The same data minus the training data's mean, divided by their deviation, both computed in float64.

        Images with channels (samples of three dimensions) have a mean and a deviation for each channel, other data one
        for all values. What is the same in all samples has no deviation, and is only moved.
        """
        if self.is_normalized:
            return self
        mean, deviation = _moments(self.train_x.numpy())
        fingerprint = sha256(f"{self.fingerprint} normalized".encode()).hexdigest()
        train_x, test_x = (_scaled(x.numpy(), mean, deviation) for x in (self.train_x, self.test_x))
        if not torch.isfinite(torch.stack(test_x.aminmax())).all():
            raise ThreefoldError(
                f"data {self.name} cannot be normalized: test_x has values too far from those of train_x to be divided"
                " by their deviation."
            )
        return replace(self, train_x=train_x, test_x=test_x, fingerprint=fingerprint, is_normalized=True)

    def encoded(self, function: Callable[[Tensor], Any] | Encoder) -> Self:
        """Features in place of the inputs: what a function from a batch of inputs makes of them.

        All data pass through it once, a few at a time. The function may be one of yours, or `threefold.encoder` of a
        network that was pretrained. The fingerprint stands on the code of the function, or on the network's weights.
        """
        encoder = function if isinstance(function, Encoder) else Encoder.of(function)
        encoder.check(self.name, is_normalized=self.is_normalized, features_of=self.encoder if self.features else None)
        each = list(encoder.each.values()) or [encoder]
        return replace(
            self,
            train_x=torch.cat([one.encode(self.train_x) for one in each]),
            test_x=torch.cat([one.encode(self.test_x) for one in each]),
            seeds=tuple(encoder.each),
            fingerprint=sha256(f"{self.fingerprint} features {encoder.sum}".encode()).hexdigest(),
            features=encoder.sum,
            encoder=encoder.name,
        )

    def _check_kept(self, share: float) -> None:
        """Does a validation share leave something of every class? If not of the smallest, then not of all."""
        label = int(torch.bincount(self.train_y).argmin())
        samples = int((self.train_y == label).sum())
        if _held_out(share, samples) < samples:
            return
        taken = f"all {samples} samples" if samples > 1 else "the only sample"
        advice = f"{1 / samples:.2g} or less" if samples > 1 else "data with at least 2 samples of each class"
        raise ThreefoldError(
            f"validation share must leave training samples of every class, got {share}, which takes {taken} of class"
            f" {label} of {self.name}; use {advice}."
        )

    @cached_property
    def in_unit_interval(self) -> bool:
        """Are all inputs in [0, 1]?"""
        return all(bool((x.amin() >= 0) & (x.amax() <= 1)) for x in (self.train_x, self.test_x))

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape))
        return (
            f"Dataset('{self.name}', {len(self.train_y)} + {len(self.test_y)} samples of {shape}, "
            f"{self.classes} classes)"
        )

    @classmethod
    def from_arrays(
        cls,
        train_x: Array,
        train_y: Array,
        test_x: Array,
        test_y: Array,
        *,
        name: str = "arrays",
        columns: Mapping[str, tuple[Array, Array]] | None = None,
    ) -> Self:
        """A dataset from the user's own numpy arrays or tensors, copied.

        Inputs of dtype uint8 are divided by 255; floats are taken as they are, as float32. Other integers are refused,
        because their scale is unknown, and so are bytes to train on with floats to test on, or the reverse. Labels
        must have an integer dtype: floats are refused even where every value is whole. One class is enough
        here; whether a scenario can use it is the scenario's business. `columns`: numbers for each training sample and
        each test sample, by name, such as the year they are from.
        """
        arrays: dict[str, NDArray[Any]] = {
            "train_x": _inputs("train_x", train_x),
            "train_y": _labels("train_y", train_y),
            "test_x": _inputs("test_x", test_x),
            "test_y": _labels("test_y", test_y),
        }
        _check_kinds(train_x, test_x)
        for part in ("train", "test"):
            samples, labels = len(arrays[f"{part}_x"]), len(arrays[f"{part}_y"])
            if samples != labels:
                raise ThreefoldError(
                    f"{part}_x has {samples} samples but {part}_y has {labels} labels; each sample must have one label."
                )
        train, test = arrays["train_x"].shape[1:], arrays["test_x"].shape[1:]
        if train != test:
            raise ThreefoldError(f"test_x has samples of shape {test}; they must have train_x's shape, {train}.")
        _check_classes(arrays["train_y"], arrays["test_y"])
        x, y, other_x, other_y = (torch.from_numpy(array) for array in arrays.values())
        known = {of: _column(of, pair, (len(y), len(other_y))) for of, pair in (columns or {}).items()}
        return cls(name, x, y, other_x, other_y, _fingerprint(arrays), columns=known)


def _moments(x: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean and the deviation, of each channel where there are channels; 1 where there is no deviation."""
    axes = (0, 2, 3) if x.ndim == 4 else tuple(range(x.ndim))
    count = x.size // (x.shape[1] if x.ndim == 4 else 1)
    total = sum(part.sum(axes, np.float64, keepdims=True) for part in _pieces(x))
    mean = np.asarray(total / count)
    squares = sum(np.square(part - mean).sum(axes, keepdims=True) for part in _pieces(x))
    deviation = np.sqrt(squares / count)
    return mean, np.where(deviation > 0, deviation, 1.0)


def _scaled(x: NDArray[np.float32], mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> Tensor:
    scaled = torch.empty(x.shape, dtype=torch.float32)
    with np.errstate(over="ignore"):
        for part, place in zip(_pieces(x), _pieces(scaled.numpy()), strict=True):
            place[...] = (part - mean) / deviation
    return scaled


def _pieces(x: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """A few samples at a time, as all of them in float64 would take twice the memory of the data."""
    return (x[first : first + _AT_ONCE] for first in range(0, len(x), _AT_ONCE))


def _held_out(share: float, samples: int) -> int:
    """How many of a class's samples are held out for validation."""
    return max(1, round(share * samples))


def _numpy(field: str, value: object) -> NDArray[Any]:
    """The value as a numpy array, which may share memory with it."""
    if isinstance(value, Tensor):
        # numpy has no bfloat16, and all floats end as float32 anyway
        return (value.float() if value.is_floating_point() else value).numpy(force=True)
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    raise ThreefoldError(f"{field} is of type {type(value).__name__}; it must be a numpy array or a torch tensor.")


def _inputs(field: str, value: object) -> NDArray[np.float32]:
    given = _numpy(field, value)
    if given.dtype != np.uint8 and given.dtype.kind != "f":
        raise ThreefoldError(
            f"{field} has dtype {given.dtype}; it must be uint8 (divided by 255) or floating point (taken as it is)."
        )
    if given.ndim < 2:
        raise ThreefoldError(
            f"{field} has shape {given.shape}; it must have at least two dimensions, samples × features."
        )
    if given.size == 0:
        raise ThreefoldError(f"{field} has shape {given.shape} and is empty; it must hold at least one sample.")
    if given.dtype == np.uint8:
        # into PyTorch's memory: NumPy requests huge pages, which may take a virtual machine a second
        unit: NDArray[np.float32] = torch.empty(given.shape, dtype=torch.float32).numpy()
        np.divide(given, np.float32(255), out=unit)
        return unit
    with np.errstate(over="ignore"):
        x = np.array(given, dtype=np.float32, order="C", copy=True)
    finite = np.isfinite(x).reshape(len(x), prod(x.shape[1:])).all(axis=1)
    if not finite.all():
        raise ThreefoldError(
            f"{field} holds a value that is NaN, infinite or too large for float32 in sample {int(finite.argmin())}; "
            "every value must be finite."
        )
    return x


def _check_kinds(train_x: Array, test_x: Array) -> None:
    """Refuse bytes in one part and floats in the other: only bytes are divided by 255, so scales would differ."""
    train, test = (str(x.dtype).removeprefix("torch.") for x in (train_x, test_x))
    if (train == "uint8") != (test == "uint8"):
        raise ThreefoldError(
            f"test_x has dtype {test} but train_x has {train}; both must be uint8 (divided by 255), or both floating "
            "point (taken as they are)."
        )


def _labels(field: str, value: object) -> NDArray[np.int64]:
    given = _numpy(field, value)
    if given.dtype.kind not in "iu":
        raise ThreefoldError(f"{field} has dtype {given.dtype}; labels must be integers, 0…C−1.")
    if given.ndim != 1:
        raise ThreefoldError(f"{field} has shape {given.shape}; labels must have one dimension, one label per sample.")
    if given.size == 0:
        raise ThreefoldError(f"{field} is empty; it must hold at least one label.")
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= 2**31:
        raise ThreefoldError(f"{field} holds the label {low if low < 0 else high}; labels must be 0…C−1.")
    return np.array(given, dtype=np.int64, order="C", copy=True)


def _column(name: str, pair: tuple[Array, Array], samples: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Numbers for each sample."""
    found = []
    for part, given, size in zip(("train", "test"), pair, samples, strict=True):
        column = _numpy(f"{part}_{name}", given)
        if column.dtype.kind not in "biuf" or column.shape != (size,):
            raise ThreefoldError(
                f"{part}_{name} must be {size} numbers, one for each sample, got {column.dtype} of shape"
                f" {column.shape}."
            )
        found.append(torch.from_numpy(column.astype(np.float64)))
    return found[0], found[1]


def _check_classes(train_y: NDArray[np.int64], test_y: NDArray[np.int64]) -> None:
    """Check that labels are 0…C−1 without gaps, and that each occurs in both parts."""
    train, test = np.unique(train_y), np.unique(test_y)
    used = np.union1d(train, test)
    if used[-1] != len(used) - 1:
        absent = int((used != np.arange(len(used))).argmax())
        raise ThreefoldError(
            f"train_y and test_y hold {len(used)} different labels up to {used[-1]} but not {absent}; "
            "labels must be 0…C−1 with none left out."
        )
    for name, kind, present in (("train_y", "training", train), ("test_y", "test", test)):
        missing = np.setdiff1d(used, present)
        if missing.size:
            raise ThreefoldError(
                f"{name} has no {kind} samples of class {missing[0]}; "
                f"each of the {len(used)} classes must have at least one."
            )


def _fingerprint(arrays: dict[str, NDArray[Any]]) -> str:
    digest = sha256()
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}".encode())
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
    return digest.hexdigest()
