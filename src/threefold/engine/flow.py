"""Streams whose tasks have no ends: training is one flow of steps, and methods consolidate at fixed intervals."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from torch import Tensor

from threefold.engine.training import Training
from threefold.errors import ThreefoldError
from threefold.streams import Boundaries, Stream


@dataclass(frozen=True)
class Flow:
    """Which tasks are trained when, the same for all replicas."""

    boundaries: Boundaries
    clock: int  # steps between two consolidations
    lengths: tuple[int, ...]  # steps that each task would have on its own
    online: bool  # is every sample used at most once?

    @classmethod
    def of(cls, stream: Stream, training: Training) -> Self | None:
        """The flow of a stream; None if its tasks have ends."""
        clock = stream.boundaries.clock
        if clock is None:
            return None
        lengths = (training.steps(stream.samples),) * stream.tasks
        if reason := stream.boundaries.refuse(lengths):
            raise ThreefoldError(reason)
        return cls(stream.boundaries, clock, lengths, training.epochs == 1)

    @property
    def steps(self) -> int:
        return sum(self.lengths)

    def chances(self, start: int, stop: int) -> Tensor:
        """The probability of each task at the steps of this range."""
        return self.boundaries.chances(self.lengths, start, stop)

    @cached_property
    def marks(self) -> list[int]:
        """The steps after which all tasks are tested: as many as there are tasks."""
        return [sum(self.lengths[: task + 1]) for task in range(len(self.lengths))]

    def consolidates(self, steps: int) -> bool:
        """Do methods consolidate after this many steps? They always do right before tasks are tested."""
        return steps % self.clock == 0 or steps in self.marks

    def come(self, steps: int) -> int:
        """How many tasks can have appeared within this many steps."""
        return sum(begin < steps for begin in self.boundaries.begins(self.lengths))
