"""What a method is made of: parts, each a few hooks written for ONE network.

The engine maps the hooks over all replicas. Those that run once, when a task is finished, see the whole stack.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar, Self
from warnings import warn

import torch
from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from torch import Tensor, nn

from threefold.errors import ThreefoldError
from threefold.methods.learner import (
    Batch,
    Draws,
    Learner,
    Memory,
    Params,
    PathIntegral,
    Quadratic,
    Replay,
    Setting,
    Stack,
    Step,
)
from threefold.streams import Task

if TYPE_CHECKING:
    from threefold.methods.method import Method


def hyper(meaning: str, default: Any = None, *, per_replica: bool = True, **bounds: Any) -> Any:
    """A hyperparameter: its meaning, default and range. No default: the paper's value for the stream and scenario.

    Numbers may differ between the replicas of a stack, unless `per_replica` is False; whatever changes shapes or code
    may not.
    """
    return Field(default, description=meaning, json_schema_extra={"per_replica": per_replica}, **bounds)


class Part(BaseModel):
    """A building block of methods; every hook is optional. Its fields are the hyperparameters.

    What a part remembers is a dictionary of tensors: `learner.memory[self.name]` in the hooks of a step, `memory` in
    the others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: ClassVar[str]
    uses_task: ClassVar[bool] = False  # does it use the task in the hidden layers?

    @classmethod
    def per_replica(cls) -> list[str]:
        """The hyperparameters that may differ between the replicas of a stack."""
        return [
            name
            for name, field in cls.model_fields.items()
            if field.annotation in (int, float)
            and isinstance(field.json_schema_extra, dict)
            and field.json_schema_extra["per_replica"]
        ]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """A hook whose name is misspelt would never be called."""
        hooks, mine = ({n for n, v in vars(kind).items() if isfunction(v) and n[0] != "_"} for kind in (Part, cls))
        for name in mine - hooks:
            if alike := get_close_matches(name, hooks, n=1, cutoff=0.85):
                warn(f"{cls.__name__} defines {name}, which is no hook; did you mean {alike[0]}?", stacklevel=4)

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, given: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        """A value that does not fit is an error in our words."""
        try:
            return build(given)
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0]) if first["loc"] else cls.name
            message = first["msg"][0].lower() + first["msg"][1:].rstrip(".")
            raise ThreefoldError(f"hyperparameter {key} of {cls.name} is '{first['input']}': {message}.") from error

    def __add__(self, other: "Part | Method") -> "Method":
        from threefold.methods.method import Method

        return Method(self) + other

    # before training

    def refuse(self, setting: Setting) -> str | None:
        """Why this part cannot work in this setting; None if it can."""
        return None

    def networks(self, setting: Setting) -> dict[str, nn.Module]:
        """Networks to be trained beside the classifier, by name; one named "classifier" takes its place."""
        return {}

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        """What one network remembers before its first task."""
        return {}

    # before each task, for one network

    def data(self, tasks: Sequence[Task], task: int, memory: Memory) -> list[tuple[int, Tensor]] | None:
        """The training data of this task, as (task, indices) pairs; None: the task's own."""
        return None

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        """What the next `steps` steps of this task draw, by name: they find it in `learner.drawn`.

        `source` gives random numbers that depend on the network's seed, this part and the task alone.
        """
        return {}

    # at each step, for one network

    def gates(self, learner: Learner, task: Tensor) -> Sequence[Tensor] | None:
        """For each hidden layer a factor per unit, for samples of `task`."""
        return None

    def loss(self, learner: Learner, batch: Batch) -> Tensor | None:
        """The loss on the current data; None: classification (equation 1)."""
        return None

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        """The samples to replay at this step, with their targets. No gradient flows through them."""
        return None

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor | None:
        """The loss on what this part replays."""
        return None

    def penalty(self, learner: Learner) -> Tensor | Quadratic | None:
        """A regularisation term: a number, or a quadratic, whose gradient costs next to nothing."""
        return None

    def side_loss(self, learner: Learner, batch: Batch, replay: Replay | None) -> Tensor | None:
        """The loss of the networks trained beside the classifier."""
        return None

    def adjust(self, learner: Learner, gradient: Params) -> Params | None:
        """The classifier's gradient, changed before the optimiser sees it; None: as it is."""
        return None

    def after_step(self, learner: Learner, step: Step) -> Memory | PathIntegral | None:
        """The entries of the memory that this step changes, or a path integral to be added up."""
        return None

    # once, when a task is finished: the whole stack

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """The memory with the finished task taken in."""
        return memory

    def keep(self, stack: Stack, memory: Memory) -> dict[str, Tensor]:
        """Small things worth looking at later, for each replica; kept with its results after every task."""
        return {}

    # at test time, for one network

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor | None:
        """A score for each output unit, the highest active one wins; None: the classifier's output."""
        return None
