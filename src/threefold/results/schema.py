"""Validates runs and experiments from elsewhere before anything of them is stored.

Reports, counts and exports use these fields unchecked, so what passes here must not break them. Unknown methods are
accepted (plug-ins), streams and scenarios must be known. Unknown fields are kept: a later version may write them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import prod
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from threefold.errors import as_value_error
from threefold.memory import in_bytes, memory_limit
from threefold.reading import check_plain
from threefold.results.curve import Curve
from threefold.results.packed import unpack
from threefold.results.record import run_key
from threefold.results.seed import united

TASKS, RUNS = 100_000, 1_000_000  # limits for a run and for an experiment
NAME = 1000  # characters
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?([+-]\d\d:\d\d|Z)")
YEARS = 3e9  # seconds: longer than any run can have taken


def check_run(data: Mapping[str, Any]) -> None:
    """Check a run in the form of `Record.to_json`; ValueError with the first thing that is wrong."""
    check_plain(data)
    _check(_Run, data)
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:
        raise ValueError("it has a number that is not finite") from None
    if run_key(data["spec"]) != data["key"]:
        raise ValueError("its key is not the key of its spec")
    for name, packed in data["kept"].items():
        try:
            unpack(packed)
        except (ValueError, TypeError) as error:
            raise ValueError(f"kept.{name} cannot be read: {error}") from None
    evaluation, curves = data["spec"]["training"].get("evaluation"), data.get("curves")
    if bool(evaluation) != bool(curves):
        raise ValueError(f"it has {'' if curves else 'no '}curves, but its training.evaluation is {evaluation}")
    if curves:
        _check_curves(curves, len(data["initial"]), training=evaluation["training"])


def _check_curves(curves: Mapping[str, Any], tasks: int, *, training: bool) -> None:
    try:
        curve = Curve.of(curves, tasks)
    except (ValueError, TypeError) as error:
        raise ValueError(f"curves cannot be read: {error}") from None
    if training != (curve.loss is not None) or training != (curve.training_accuracy is not None):
        raise ValueError(f"curves holds {', '.join(curves)}, but training.evaluation.training is {training}")


def check_experiment(name: object, asked: object) -> None:
    """Check the request of a name, which `parse_json` has read; ValueError with the first thing that is wrong."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME:
        raise ValueError(f"its name is no text of 1 to {NAME} characters")
    check_plain(name)
    _check(_Experiment, asked)


class _Schema(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Scenario(_Schema):
    name: str
    task_id_in: Literal["output", "hidden", "both"] | None
    active: Literal["all"] = "all"  # if present; otherwise the units of classes seen so far

    @model_validator(mode="after")
    def _known(self) -> "_Scenario":
        from threefold.scenarios import find

        with as_value_error():
            find(self.name).using_task_in(self.task_id_in)
        return self


def _identifier(name: str) -> str:
    if not name.isidentifier() or name.startswith("_") or name == "cls":
        raise ValueError(f"hyperparameter {ascii(name)[:40]} must have the name of a field")
    return name


def _no_giant(value: Any) -> Any:
    """Refuse whole numbers beyond 64 bits, which NumPy does not have, so that no figure could show them."""
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            raise ValueError(f"{number} is beyond 64 bits")
    return value


Hyperparameters = dict[Annotated[str, AfterValidator(_identifier)], Annotated[Any, AfterValidator(_no_giant)]]


class _Method(_Schema):
    name: str
    hyperparameters: dict[str, Hyperparameters]


Count = Annotated[int, Field(ge=1, lt=2**63)]


class _Value(_Schema):
    """A network, an optimiser or a schedule."""

    name: str = Field(min_length=1)
    hyperparameters: Hyperparameters


class _Boundaries(_Value):
    @model_validator(mode="after")
    def _usable(self) -> "_Boundaries":
        from threefold.streams import BOUNDARIES

        _check_value(BOUNDARIES, "boundaries", self)
        return self


class _Stream(_Schema):
    name: str = Field(min_length=1)
    tasks: int = Field(ge=1, le=TASKS)
    data: str
    first: int | None = Field(None, ge=1, le=TASKS)
    features: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    code: str | None = None  # of a user's own
    options: Hyperparameters = Field(default_factory=dict)
    boundaries: _Boundaries | None = None

    @model_validator(mode="after")
    def _usable(self) -> "_Stream":
        from threefold.streams import kind_of  # not at the top, as it loads torch

        if self.code is None:  # a user's class is not loaded: reading must not run code
            with as_value_error():
                kind_of(self.name).options_type(**self.options)
        return self


class _Network(_Value):
    code: str | None = None  # of a user's own
    init: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")  # checksum of the initial weights

    @model_validator(mode="after")
    def _usable(self) -> "_Network":
        from threefold.networks import NETWORKS

        if self.code is None:
            _check_value(NETWORKS, "network", self)
            if self.hyperparameters.get("width", 1) is None:
                raise ValueError("it has no width")
        return self


def _usable_optimizer(given: _Value) -> _Value:
    from threefold.engine import OPTIMIZERS

    _check_value(OPTIMIZERS, "optimizer", given)
    if given.hyperparameters.get("lr") is None:
        raise ValueError("it has no learning rate")
    return given


def _usable_schedule(given: _Value) -> _Value:
    from threefold.engine import SCHEDULES

    _check_value(SCHEDULES, "schedule", given)
    return given


class _Evaluation(_Schema):
    model_config = ConfigDict(extra="forbid")

    every: Count
    first: int = Field(ge=0, lt=2**63)
    samples: Count | None
    training: bool


class _Training(_Schema):
    model_config = ConfigDict(extra="forbid")  # cells are built from exactly these fields

    iters: Count | None = None
    epochs: Count | None = None
    batch: Count
    schedule: Annotated[_Value, AfterValidator(_usable_schedule)] = _Value(
        name="constant", hyperparameters={}
    )  # if absent
    augment: bool = False
    evaluation: _Evaluation | None = None
    precision: str
    device: str

    @model_validator(mode="after")
    def _one_length(self) -> "_Training":
        if (self.iters is None) == (self.epochs is None):
            raise ValueError("it must have iters or epochs, and not both")
        return self


class _RunSettings(_Schema):
    """Everything that determines a run but its seed."""

    stream: _Stream
    scenario: _Scenario
    method: _Method
    network: _Network
    optimizer: Annotated[_Value, AfterValidator(_usable_optimizer)]
    training: _Training


Seed = Annotated[int, Field(ge=0)]


class _RunSpec(_RunSettings):
    seed: Seed
    order: Seed | None = None


class _Packed(_Schema):
    dtype: str = Field(pattern=r"^[<>|][biufc][0-9]{1,2}$")
    shape: list[Annotated[int, Field(ge=0)]] = Field(max_length=32)
    bytes: str

    @model_validator(mode="after")
    def _fits(self) -> "_Packed":
        size, free = prod(self.shape) * int(self.dtype[2:]), memory_limit()
        if size > free / 2:
            raise ValueError(f"it unpacks to {in_bytes(size)}, and {in_bytes(free)} of memory are free")
        return self


class _Environment(_Schema):
    cohort: int = Field(1, ge=1)


def _moment(text: str) -> str:
    if not MOMENT.fullmatch(text) or datetime.fromisoformat(text).year < 1970:
        raise ValueError("it must be a time such as 2026-01-31T12:00:00+00:00")
    return text


class _Run(_Schema):
    key: str
    spec: _RunSpec
    status: Literal["finished", "diverged"]
    diverged_at: int | None
    initial: list[float]
    matrix: list[list[float | None]]
    timings: dict[str, Annotated[float, Field(ge=0, le=YEARS)]]
    environment: _Environment
    created: Annotated[str, AfterValidator(_moment)]
    kept: dict[str, _Packed]
    curves: dict[str, _Packed] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _as_many_tasks(self) -> "_Run":
        tasks = self.spec.stream.first or self.spec.stream.tasks
        if len(self.initial) != tasks:
            raise ValueError(f"initial has {len(self.initial)} accuracies, but spec.stream names {tasks} tasks")
        return self


class _Described(_Schema):
    """A cell: its spec, and its method and any user's network or stream as the command line writes them."""

    spec: _RunSettings
    method: str
    network: str | None = None
    stream: str | None = None

    @model_validator(mode="after")
    def _same_method(self) -> "_Described":
        names = [piece.partition(":")[0] for piece in re.split(r"\+(?=[A-Za-z])", self.method)]
        parts = [name for name in names if name != "none"]
        if self.spec.method.name != ("+".join(parts) or "none") or {*self.spec.method.hyperparameters} != {*parts}:
            raise ValueError(f"method is '{self.method[:60]}', but the spec has '{self.spec.method.name[:60]}'")
        if len(set(parts)) < len(parts):
            raise ValueError(f"method is '{self.method[:60]}', which names a part twice")
        return self


def _with_order(given: Any) -> Any:
    """A seed, or a seed and the seed of the order of tasks."""
    numbers = given if isinstance(given, list) and len(given) == 2 else [given]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(f"a seed must be a whole number from 0 on, or two, got {ascii(given)[:60]}")
    return given


class _Cell(_Described):
    paper: Literal["2022"] = "2022"  # if present
    seeds: list[Annotated[Any, AfterValidator(_with_order)]] = Field(min_length=1)
    validation: bool = False

    @model_validator(mode="after")
    def _usable(self) -> "_Cell":
        if len(united(self.seeds)) < len(self.seeds):
            raise ValueError("seeds names a seed twice")
        for part, values in self.spec.method.hyperparameters.items():
            _check_part(part, values)
        return self


class _Refused(_Described):
    reason: str


class _Rule(_Schema):
    text: str
    options: dict[str, dict[str, str | int | float]]


class _Experiment(_Schema):
    title: str
    kind: Literal["table", "budgets", "grids"]
    selected: str
    cells: list[_Cell]
    refused: list[_Refused]
    notes: dict[str, str]
    rules: list[_Rule] = Field(default_factory=list)
    command: str

    @model_validator(mode="after")
    def _not_too_many(self) -> "_Experiment":
        check_count(sum(len(cell.seeds) for cell in self.cells))
        return self


def check_count(runs: int) -> None:
    if runs > RUNS:
        raise ValueError(f"cells names more than {RUNS} runs")


def _check_part(name: str, values: Mapping[str, Any]) -> None:
    """Check the hyperparameters of one of our own parts, as figures compute with them."""
    from threefold.fingerprint import is_ours
    from threefold.methods import METHODS

    kind = METHODS[name].part if name in METHODS else None
    if kind is None or not is_ours(kind):
        return
    given = kind.model_construct(**values).model_dump(warnings=False)
    with as_value_error():
        kept = kind.model_validate(given).model_dump(mode="json")
    for field, value in given.items():
        if not _same(kept[field], value):
            raise ValueError(f"hyperparameter {field} of {name} is {value!r}, which must be {kept[field]!r}")


def _check_value(kinds: Mapping[str, Any], what: str, given: _Value) -> None:
    """Check that it is one of ours, with valid values, written as we write them."""
    from threefold.values import build

    with as_value_error():
        kept = build(kinds, what, given.name, given.hyperparameters).in_key("json")
    for field, value in given.hyperparameters.items():
        if field not in kept:
            raise ValueError(f"hyperparameter {field} of {given.name} is not one that a run has")
        if not _same(kept[field], value):
            raise ValueError(f"hyperparameter {field} of {given.name} is {value!r}, which must be {kept[field]!r}")
    if missing := sorted(kept.keys() - given.hyperparameters.keys()):
        raise ValueError(f"hyperparameter {missing[0]} of {given.name} is missing")


def _same(one: Any, other: Any) -> bool:
    """Equality as keys have it: in Python true equals 1, in a key it does not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _check(schema: type[_Schema], data: object) -> None:
    try:
        schema.model_validate(data)
    except ValidationError as error:
        raise ValueError(_sentence(error.errors()[0])) from None


def _sentence(error: Mapping[str, Any]) -> str:
    place = _place(error["loc"])
    if error["type"] == "missing":
        return f"lacks the field {place}"
    if error["type"] == "value_error":
        message = error["msg"].removeprefix("Value error, ")
        return f"{place}: {message}" if place else message
    wanted = error["msg"].removeprefix("Input should be ").removeprefix("Input should ")
    if error["type"] in ("model_type", "dict_type"):  # pydantic's message would contain our class names
        wanted = "a table"
    return f"{place or 'it'} is {ascii(error['input'])[:60]}; it must be {wanted}"


def _place(steps: Sequence[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
