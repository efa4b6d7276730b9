"""How the learning rate changes through a task."""

import math
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from threefold.errors import ThreefoldError
from threefold.values import Value, build, hyper, known, listed, pairs_of


class Schedule(Value):
    """A factor of the learning rate, by how much of the task is done."""

    def multiplier(self, progress: Tensor) -> Tensor | None:
        """The factor at each replica's progress, from 0 at the first step towards 1; None: 1 throughout."""
        return None


class Constant(Schedule):
    """The same learning rate throughout: the paper's."""

    name = "constant"


class Cosine(Schedule):
    """From the learning rate down to 0 along half a cosine, at each task anew."""

    name = "cosine"

    def multiplier(self, progress: Tensor) -> Tensor:
        return (1 + torch.cos(math.pi * progress)) / 2


class Steps(Schedule):
    """The learning rate is multiplied by a factor when given shares of a task are done."""

    name = "step"
    at: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], BeforeValidator(listed)] = hyper(
        "shares of the task", (0.5, 0.75)
    )
    factor: float = hyper("what the rate is multiplied with there", 0.1, gt=0, le=1)

    def multiplier(self, progress: Tensor) -> Tensor:
        passed = torch.zeros_like(progress)
        for share in self.at:  # a tensor of them would need a copy to the device, which cannot be captured
            passed += progress >= share
        return self.factor**passed


CONSTANT = Constant()
SCHEDULES: dict[str, type[Schedule]] = {kind.name: kind for kind in (Constant, Cosine, Steps)}


def find_schedule(given: Any) -> Schedule:
    """Parse a schedule such as `cosine` or `step:at=0.5-0.75,factor=0.1`."""
    if isinstance(given, Schedule):
        return known(SCHEDULES, "schedule", given)
    if not isinstance(given, str):
        raise ThreefoldError(f"schedule must be a name such as 'cosine', got {given!r}.")
    return build(SCHEDULES, "schedule", *pairs_of(given, "schedule"))
