"""Training settings as given: checked, but not yet filled in with the paper's values."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, PrivateAttr, ValidationError

from threefold.engine import Adam, Evaluation, Optimizer, Schedule, find_optimizer, find_schedule
from threefold.engine.schedule import CONSTANT
from threefold.errors import ThreefoldError, unknown
from threefold.experiments.description import written
from threefold.methods import Method
from threefold.networks import AnyNetwork, MLPNetwork, find_network
from threefold.scenarios import Active, Scenario, TaskIdIn
from threefold.streams import Defaults


def settings_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a function's arguments that are settings."""
    return {name: given[name] for name in Settings.model_fields if name in given}


def ways(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each combination of values, of which any may be a list."""
    for values in product(*map(listed, given.values())):
        yield dict(zip(given, values, strict=True))


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class Settings(BaseModel):
    """How to train. What is not given defaults to the paper's value for the stream."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

    iters: int | None = Field(None, ge=1, description="a whole number of iterations, at least 1")
    epochs: int | None = Field(None, ge=1, description="a whole number of passes through a task's data, at least 1")
    lr: float | None = Field(None, gt=0, description="a finite number above 0")
    batch: int | None = Field(None, ge=1, description="a whole number of samples, at least 1")
    hidden: int | None = Field(None, ge=1, description="a whole number of units, at least 1")
    network: Annotated[AnyNetwork, PlainValidator(find_network)] = MLPNetwork()
    optimizer: Annotated[Optimizer, PlainValidator(find_optimizer)] = Adam()
    schedule: Annotated[Schedule, PlainValidator(find_schedule)] = CONSTANT
    augment: bool = Field(False, description="true or false")
    active: Active = "seen"
    evaluate_every: int | None = Field(None, ge=1, description="a whole number of steps, at least 1")
    evaluate_first: int = Field(0, ge=0, description="a whole number of steps")
    evaluate_samples: int | Literal["all"] = Field(500, description="a whole number of samples, at least 1, or all")
    training_curves: bool = Field(False, description="true or false")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "tf32"] = "auto"
    _cuda: bool | None = PrivateAttr(None)

    @classmethod
    def checked(cls, **given: Any) -> "Settings":
        """The settings, or a one-sentence error about the first that is wrong."""
        try:
            of_paper = {name for name, value in given.items() if value is None and name not in ("device", "precision")}
            return cls(**{name: value for name, value in given.items() if name not in of_paper})._consistent()
        except ValidationError as error:
            first = error.errors()[0]
            name, value = str(first["loc"][0]), first["input"]
            field = cls.model_fields.get(name)
            if field is None:
                raise unknown("setting", name, cls.model_fields) from error
            if field.description is None:  # one of a few names
                raise unknown(name, str(value), get_args(field.annotation)) from error
            raise ThreefoldError(f"{name} must be {field.description}, got '{value}'.") from error

    def _consistent(self) -> "Settings":
        """Check that what can be given in two ways is given in only one."""
        if self.iters and self.epochs:
            raise ThreefoldError(f"iters is {self.iters}, but epochs is {self.epochs}; give one of them.")
        if self.lr and self.optimizer.lr:
            raise ThreefoldError(f"lr is {self.lr}, but optimizer is '{self.optimizer.written()}'; give one of them.")
        if self.hidden and (not isinstance(self.network, MLPNetwork) or self.network.width):
            name = self.network.written()
            raise ThreefoldError(f"hidden is {self.hidden}, but network is '{name}'; hidden is short for mlp:width=.")
        samples, every = self.evaluate_samples, self.evaluate_every
        if isinstance(samples, int) and samples < 1:
            raise ThreefoldError(f"evaluate_samples must be a whole number, at least 1, or all, got '{samples}'.")
        given = [name for name in ("evaluate_first", "evaluate_samples", "training_curves") if self._given(name)]
        if given and every is None:
            name = given[0]
            raise ThreefoldError(f"{name} is {getattr(self, name)}, but evaluate_every is not given; give it too.")
        return self

    def filled(self, usual: Defaults) -> "Settings":
        """The settings with a width and a learning rate: if none was given, the paper's for a stream."""
        changed: dict[str, Any] = {}
        if isinstance(self.network, MLPNetwork) and not self.network.width:
            changed["network"] = self.network.model_copy(update={"width": self.hidden or usual.hidden})
        if not self.optimizer.lr:
            changed["optimizer"] = self.optimizer.model_copy(update={"lr": self.lr or usual.lr})
        return self.model_copy(update=changed) if changed else self

    def check_scenarios(self, scenarios: Sequence[Scenario]) -> None:
        """Refuse an option that has no effect in any of these scenarios."""
        if self.active == "all" and not any(scenario.infers_task for scenario in scenarios):
            raise ThreefoldError(
                f"active is 'all', but in {scenarios[0].title} no units of other tasks compete; it is for"
                " Class-IL only."
            )

    def _given(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @property
    def evaluation(self) -> Evaluation | None:
        """Tests during training; None: only at the end of each task."""
        if self.evaluate_every is None:
            return None
        samples = None if self.evaluate_samples == "all" else self.evaluate_samples
        return Evaluation(self.evaluate_every, self.evaluate_first, samples, self.training_curves)

    def elsewhere(self, cuda: bool | None) -> "Settings":
        """The settings for training on other machines, with CUDA devices or not; None: for training here."""
        copy = self.model_copy()
        copy._cuda = cuda
        return copy

    @property
    def is_elsewhere(self) -> bool:
        return self._cuda is not None

    def resolved_device(self) -> str:
        available = torch.cuda.is_available() if self._cuda is None else self._cuda
        if self.device == "cuda" and not available:
            raise ThreefoldError("device is 'cuda', but there is no CUDA device here; use 'cpu' or 'auto'.")
        device = "cuda" if available and self.device != "cpu" else "cpu"
        if self.precision == "tf32" and device == "cpu":
            raise ThreefoldError("precision is 'tf32', which only a CUDA device has; use 'fp32'.")
        return device

    def resolved_precision(self) -> str:
        """The precision of matrix products: TF32 on a GPU by default, which changes no mean (docs/reproduction.md)."""
        usual = "tf32" if self.resolved_device() == "cuda" else "fp32"
        return usual if self.precision == "auto" else self.precision


def task_used_in(scenario: Scenario, method: Method, wanted: TaskIdIn | None) -> TaskIdIn | None:
    """Where the task is used in Task-IL: in the output layer by separate heads, in the hidden layers by gates."""
    if not scenario.task_known:
        scenario.using_task_in(wanted)  # raises for anything but None
        return None
    gated = any(part.uses_task for part in method.parts)
    if wanted is None:
        return "both" if gated else "output"
    if gated and wanted == "output":
        raise ThreefoldError(
            f"task-id-in is 'output', but {written(method)} uses the task in the hidden layers; use 'hidden' or 'both'."
        )
    if not gated and wanted in ("hidden", "both"):
        raise ThreefoldError(
            f"task-id-in is '{wanted}', but nothing in {written(method)} uses the task in the hidden layers; use"
            f" {written(method)}+xdg."
        )
    return wanted
