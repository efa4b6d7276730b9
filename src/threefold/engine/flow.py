"""Streams whose tasks have no ends: training is one flow of steps, and methods consolidate by the clock."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from torch import Tensor

from threefold.engine.training import Training
from threefold.errors import ThreefoldError
from threefold.streams import Boundaries, Stream


@dataclass(frozen=True)
class Flow:
    """When which task comes, the same for all replicas."""

    boundaries: Boundaries
    clock: int  # steps after which methods consolidate
    lengths: tuple[int, ...]  # steps that each task would have by itself
    online: bool  # does no sample come twice?

    @classmethod
    def of(cls, stream: Stream, training: Training) -> Self | None:
        """None: the tasks of the stream end."""
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
        """Of each task at the steps of this range."""
        return self.boundaries.chances(self.lengths, start, stop)

    @cached_property
    def marks(self) -> list[int]:
        """The numbers of steps after which all tasks are tested: as often as there are tasks."""
        return [sum(self.lengths[: task + 1]) for task in range(len(self.lengths))]

    def consolidates(self, steps: int) -> bool:
        """Do methods consolidate after so many steps? Whenever tasks are tested they have just done so."""
        return steps % self.clock == 0 or steps in self.marks

    def come(self, steps: int) -> int:
        """How many tasks may have come in so many steps."""
        return sum(begin < steps for begin in self.boundaries.begins(self.lengths))
