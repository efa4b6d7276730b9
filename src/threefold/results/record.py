"""A finished run, and the key that identifies it.

Numbers that do not exist (an accuracy after divergence, the forgetting of a single task) are NaN in Python, so that
arithmetic and formatting need no special case, and `null` in JSON, which has no NaN.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from threefold.errors import ThreefoldError
from threefold.results.curve import Curve
from threefold.results.metrics import measure


def utc_now() -> str:
    """This moment as ISO-8601 text in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_key(spec: Mapping[str, Any]) -> str:
    """The SHA-256, in hex, of everything that determines a run.

    Two specs have the same key exactly when they are equal as data: the order of fields does not matter, a tuple is a
    list, and numbers that are equal are written alike, so that `1`, `1.0` and `1e0` are one learning rate (a float
    with a whole value is written as an integer; any other by `repr`, the shortest text that reads back as the same
    float). `True` is not `1`, nor is `"1"`. Values without such text are refused rather than guessed: NaN, infinities,
    field names that are not text, and NumPy's `float32`, whose 0.1 is not the 0.1 that was typed.
    """
    text = json.dumps(_canonical(spec, "spec"), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


_AS_IT_IS = frozenset({str, int, bool, type(None)})


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
        case dict() | Mapping():
            for name in value:
                if not isinstance(name, str):
                    raise ThreefoldError(f"{place} has a field named {name!r}; the names of fields must be text.")
            return {  # most items are plain, and a plan has thousands of specs
                name: item if type(item) in _AS_IT_IS else _canonical(item, f"{place}.{name}")
                for name, item in value.items()
            }
        case list() | tuple():
            return [_canonical(item, f"{place}[{index}]") for index, item in enumerate(value)]
    allowed = "text, a number, a boolean, None, or a list or mapping of those"
    raise ThreefoldError(f"{place} is a {type(value).__name__}; it must be {allowed}.")


@dataclass(frozen=True, eq=False)
class Record:
    """One finished run: its spec, its measurements, and where they were made. Accuracies are in per cent.

    A run that diverged keeps its earlier measurements: its matrix has the full shape, with NaN in the rows from
    `diverged_at` on. Two records are equal when their JSON is, so a NaN equals a NaN.
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
    """Seconds, for the whole cohort."""
    environment: Mapping[str, Any]
    """Where it was computed: device, precision, versions, git revision, platform."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """What a method kept to look at later, such as generated images after each task: for each name an array as `pack`
    writes it, tasks first."""
    curves: Mapping[str, Any] = field(default_factory=dict)
    """Measurements during training, if there were any: for each name an array as `pack` writes it (`Curve`)."""
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
        """All metrics by name. They are computed, never stored, so that a metric added later works for old runs."""
        stream = self.spec.get("stream")
        without_ends = isinstance(stream, Mapping) and bool(stream.get("boundaries"))  # sharp ones are not written down
        return measure(self.initial, self.matrix, self.curve, ends=not without_ends)

    @property
    def curve(self) -> Curve | None:
        """Measurements during training, while they were finite; None without such tests.

        Unpacked at each call: the curves of many runs may not fit into memory at once.
        """
        curve = Curve.of(self.curves, len(self.initial)) if self.curves else None
        return curve if curve is None or self.diverged_at is None else curve.until(self.diverged_at)

    @property
    def seconds(self) -> float:
        """Its share of its cohort's time, all of which is recorded with each network of the stack."""
        cohort: int = self.environment.get("cohort", 1)
        return sum(self.timings.values()) / cohort

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
            "timings": dict(self.timings),
            "environment": dict(self.environment),
            "kept": dict(self.kept),
            **({"curves": dict(self.curves)} if self.curves else {}),
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
            timings=data["timings"],
            environment=data["environment"],
            kept=data["kept"],
            curves=data.get("curves", {}),
            created=data["created"],
            diverged_at=data["diverged_at"],
        )


def checksum(content: bytes) -> str:
    """A short checksum of stored content, which detects changes and damage, not who made them."""
    return sha256(content).hexdigest()[:16]


def _without_nan(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def _with_nan(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
