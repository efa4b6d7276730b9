"""The two baselines (section 4.2). None, the lower bound, is a method without parts."""

from collections.abc import Sequence

from torch import Tensor

from threefold.methods.learner import Memory
from threefold.methods.part import Part
from threefold.streams import Task


class Offline(Part):
    """Joint training on the data of all tasks so far: the upper bound."""

    name = "offline"
    citation = "vandeven2019"

    def data(self, tasks: Sequence[Task], task: int, memory: Memory) -> list[tuple[int, Tensor]]:
        return [(earlier, tasks[earlier].train) for earlier in range(task + 1)]
