"""A cell of a table: a protocol, a scenario and a method, trained in one way. A cell and a seed make a run."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threefold.engine import Training
from threefold.errors import ThreefoldError
from threefold.methods import Method
from threefold.methods.part import Setting
from threefold.protocols import Protocol
from threefold.results import Published, lookup
from threefold.scenarios import Outputs, Scenario


class Settings(BaseModel):
    """How to train. What is not given is the paper's value for the protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    iters: int | None = Field(None, ge=1)
    lr: float | None = Field(None, gt=0)
    batch: int | None = Field(None, ge=1)
    hidden: int | None = Field(None, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["fp32", "tf32"] = "fp32"

    @classmethod
    def checked(cls, **given: Any) -> "Settings":
        """Settings, or one sentence about the first that is wrong."""
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors()[0]
            message = first["msg"].removeprefix("Input should be ").rstrip(".")
            field = ".".join(map(str, first["loc"]))
            raise ThreefoldError(f"{field} is '{first['input']}'; right would be: {message}.") from error

    def resolved_device(self) -> str:
        available = torch.cuda.is_available()
        if self.device == "cuda" and not available:
            raise ThreefoldError("device is 'cuda', but there is no CUDA device here; right would be 'cpu' or 'auto'.")
        device = "cuda" if available and self.device != "cpu" else "cpu"
        if self.precision == "tf32" and device == "cpu":
            raise ThreefoldError("precision is 'tf32', which only a CUDA device has; right would be 'fp32'.")
        return device


@dataclass(frozen=True, eq=False)
class Cell:
    """Everything that determines a run but its seed."""

    protocol: Protocol
    scenario: Scenario
    method: Method
    training: Training
    lr: float
    task_id_in: str | None = None

    @classmethod
    def of(
        cls, protocol: Protocol, scenario: Scenario, method: Method, settings: Settings, task_id_in: Any = None
    ) -> "Cell":
        defaults = protocol.defaults
        training = Training(
            iters=settings.iters or defaults.iters,
            batch=settings.batch or defaults.batch,
            hidden=settings.hidden or defaults.hidden,
            precision=settings.precision,
            device=settings.resolved_device(),
        )
        return cls(
            protocol, scenario.using_task_in(task_id_in), method, training, settings.lr or defaults.lr, task_id_in
        )

    @property
    def name(self) -> str:
        return f"{self.protocol.title} {self.scenario.title} {self.method.name}"

    @property
    def comparable(self) -> bool:
        """Is it trained as in the paper, so that its accuracy may be judged by the published one?"""
        defaults, training = self.protocol.defaults, self.training
        ours = (training.iters, training.batch, training.hidden, self.lr, self.protocol.tasks)
        return ours == (defaults.iters, defaults.batch, defaults.hidden, defaults.lr, self.protocol.default_tasks)

    def refusal(self) -> str | None:
        """Why this method cannot be used here; None if it can."""
        outputs = Outputs(self.scenario, self.protocol.tasks, self.protocol.classes_per_task)
        inputs = self.protocol.inputs(self.protocol.data.test_x[:1]).shape[1]
        low, high = self.protocol.data.train_x.aminmax()
        unit_interval = bool(low >= 0) and bool(high <= 1)
        return self.method.refuse(Setting(outputs, inputs, self.training.hidden, self.training.batch, unit_interval))

    def published(self) -> Published | None:
        """What the paper reports for this cell."""
        return lookup(self.protocol.title, self.scenario.name, self.method.name, self.task_id_in)

    def spec(self) -> dict[str, Any]:
        """The cell as plain data: with a seed, everything that determines a run."""
        training = self.training
        return {
            "protocol": {
                "name": self.protocol.title,
                "tasks": self.protocol.tasks,
                "data": self.protocol.data.fingerprint,
            },
            "scenario": {"name": self.scenario.name, "task_id_in": self.task_id_in},
            "method": {"name": self.method.name, "hyperparameters": self.method.hyperparameters()},
            "training": {
                "iters": training.iters,
                "lr": self.lr,
                "batch": training.batch,
                "hidden": training.hidden,
                "precision": training.precision,
                "device": training.device,
            },
        }

    def run_spec(self, seed: int) -> dict[str, Any]:
        return self.spec() | {"seed": seed}
