"""A finished run, and the key it is known by.

Numbers that do not exist (an accuracy after divergence, the forgetting of a single task) are NaN in Python, so that
arithmetic and formatting need no special case, and `null` in JSON, which has no NaN.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal
from zlib import compress, decompressobj
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from threefold.errors import ThreefoldError
from threefold.results.metrics import measure


def utc_now() -> str:
    """This moment as ISO-8601 text in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_key(spec: Mapping[str, Any]) -> str:
    """The SHA-256, in hex, of everything that determines a run.

    Two specs have the same key exactly when they are equal as data: the order of fields does not matter, a tuple is a
    list, and numbers that are equal are written alike, so that `1`, `1.0` and `1e0` are one learning rate (a float
    with a whole value is written as an integer; any other by `repr`, the shortest text that reads back as the same
    float). `True` is not `1`, nor is `"1"`. What has no such text is refused rather than guessed at: NaN, infinities,
    field names that are not text, and NumPy's `float32`, whose 0.1 is not the 0.1 that was typed.
    """
    text = json.dumps(_canonical(spec, "spec"), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _canonical(value: Any, place: str) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            if not math.isfinite(value):
                raise ThreefoldError(f"{place} is {value}; it must be a finite number.")
            return int(value) if value.is_integer() else float(value)
        case Mapping():
            for name in value:
                if not isinstance(name, str):
                    raise ThreefoldError(f"{place} has a field named {name!r}; the names of fields must be text.")
            return {name: _canonical(item, f"{place}.{name}") for name, item in value.items()}
        case list() | tuple():
            return [_canonical(item, f"{place}[{index}]") for index, item in enumerate(value)]
    allowed = "text, a number, a boolean, None, or a list or mapping of those"
    raise ThreefoldError(f"{place} is a {type(value).__name__}; it must be {allowed}.")


@dataclass(frozen=True, eq=False)
class Record:
    """One finished run: what was asked, what was measured, and where. Accuracies are in per cent.

    A run that diverged keeps what was measured before: its matrix has the full shape, and its rows from `diverged_at`
    on are NaN. Two records are equal when their JSON is, so a NaN equals a NaN.
    """

    key: str
    """`run_key(spec)`."""
    spec: Mapping[str, Any]
    """Everything that determines the run, the seed included, as JSON-able data."""
    status: Literal["finished", "diverged"]
    initial: Sequence[float]
    """Accuracy on each task before any training."""
    matrix: Sequence[Sequence[float]]
    """Row i: accuracy on every task after training on task i."""
    timings: Mapping[str, float]
    """Seconds."""
    environment: Mapping[str, Any]
    """Where it was computed: device, precision, versions, git revision, platform."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """What a method wanted kept to look at later, such as the images that a generator dreamt after each task: for each
    name an array as `pack` writes it, tasks first."""
    created: str = field(default_factory=utc_now)
    diverged_at: int | None = None
    """Index (from 0) of the task in whose training a number stopped being finite; None for a run that finished."""

    def __post_init__(self) -> None:
        tasks = len(self.initial)
        if tasks == 0 or len(self.matrix) != tasks or any(len(row) != tasks for row in self.matrix):
            raise ValueError(f"initial has {tasks} tasks, so matrix must be {tasks}×{tasks} and not empty")
        if self.status == "finished" and self.diverged_at is None:
            measured = tasks
        elif self.status == "diverged" and self.diverged_at is not None and 0 <= self.diverged_at < tasks:
            measured = self.diverged_at
        else:
            raise ValueError(f"status {self.status!r} does not go with diverged_at {self.diverged_at!r}")
        if not all(0 <= accuracy <= 100 for row in (self.initial, *self.matrix[:measured]) for accuracy in row):
            raise ValueError("an accuracy that was measured must lie between 0 and 100 per cent")
        if not all(math.isnan(accuracy) for row in self.matrix[measured:] for accuracy in row):
            raise ValueError(f"the rows of matrix from diverged_at ({measured}) on must be NaN")

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """What the accuracies say, by name. Computed, never stored: a metric that is added later is there for all."""
        return measure(self.initial, self.matrix)

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def to_json(self) -> dict[str, Any]:
        """The record as data that `json.dumps(…, allow_nan=False)` accepts: NaN becomes None."""
        return {
            "key": self.key,
            "spec": dict(self.spec),
            "status": self.status,
            "diverged_at": self.diverged_at,
            "initial": _without_nan(self.initial),
            "matrix": [_without_nan(row) for row in self.matrix],
            "timings": _named_without_nan(self.timings),
            "environment": dict(self.environment),
            "kept": dict(self.kept),
            "created": self.created,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Record":
        """The record that `to_json` wrote."""
        return cls(
            key=data["key"],
            spec=data["spec"],
            status=data["status"],
            initial=_with_nan(data["initial"]),
            matrix=[_with_nan(row) for row in data["matrix"]],
            timings={name: _number(value) for name, value in data["timings"].items()},
            environment=data["environment"],
            kept=data["kept"],
            created=data["created"],
            diverged_at=data["diverged_at"],
        )


def checksum(content: bytes) -> str:
    """A short sum of what is stored: tells that something was changed or damaged, not by whom."""
    return sha256(content).hexdigest()[:16]


def pack(array: NDArray[Any]) -> dict[str, Any]:
    """An array of numbers as JSON-able data, compressed."""
    content = b64encode(compress(array.tobytes(), 9)).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": content}


def unpack(packed: Mapping[str, Any]) -> NDArray[Any]:
    """The array that `pack` wrote; ValueError if it is anything else, however much that would unpack to."""
    dtype, shape = np.dtype(packed["dtype"]), packed["shape"]
    if dtype.kind not in "biufc":
        raise ValueError(f"it holds values of type {dtype}, which are not numbers")
    size, stream = math.prod(shape) * dtype.itemsize, decompressobj()
    try:
        content = stream.decompress(b64decode(packed["bytes"], validate=True), size + 1)
        if len(content) == size and stream.eof:
            return np.ndarray(shape, dtype, content)
    except (ZlibError, OverflowError) as error:
        raise ValueError(f"its bytes cannot be unpacked ({error})") from None
    raise ValueError(f"its bytes are not the {size} of shape {tuple(shape)}")


def square_images(array: NDArray[Any]) -> NDArray[np.uint8] | None:
    """Grey images (tasks × images × pixels of a square) as tasks × images × rows × columns; None for anything else.

    Of images in colour the pixels are those of three squares, one after the other; colours come last in what is made.
    """
    if array.dtype != np.uint8 or array.ndim not in (3, 5) or array.size == 0:
        return None
    flat = array.reshape(*array.shape[:2], -1)
    for channels in (1, 3):
        side = math.isqrt(flat.shape[-1] // channels)
        planes = (channels, side, side)
        if math.prod(planes) == flat.shape[-1] and array.shape[2:] in (flat.shape[2:], planes):
            images = np.moveaxis(flat.reshape(*flat.shape[:2], *planes), 2, -1)
            return images if channels > 1 else images[..., 0]
    return None


def _without_nan(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def _named_without_nan(values: Mapping[str, float]) -> dict[str, float | None]:
    return dict(zip(values, _without_nan(list(values.values())), strict=True))


def _with_nan(values: Sequence[float | None]) -> list[float]:
    return [_number(value) for value in values]


def _number(value: float | None) -> float:
    return math.nan if value is None else value
