"""A user's stream: a function from the data and a seed to tasks."""

from collections.abc import Callable, Sequence

from threefold.data import Dataset
from threefold.streams.stream import Stream
from threefold.streams.task import Task


class OwnStream(Stream):
    """A stream named after its function."""

    of_the_user = True

    def __init__(
        self, function: Callable[[Dataset, int], Sequence[Task]], data: Dataset, tasks: int | None = None
    ) -> None:
        self.function = function
        self.name = str(getattr(function, "__qualname__", type(function).__name__))  # type: ignore[misc]
        super().__init__(data, tasks)

    def sequence(self, seed: int) -> Sequence[Task]:
        return self.function(self.data, seed)
