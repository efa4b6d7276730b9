"""A stream of the user's: a function of the data and a seed that gives tasks."""

from collections.abc import Callable, Sequence

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.streams.stream import Stream
from threefold.streams.task import Task


class OwnStream(Stream):
    """Known by the name of the function."""

    def __init__(
        self, function: Callable[[Dataset, int], Sequence[Task]], data: Dataset, tasks: int | None = None
    ) -> None:
        self.function = function
        self.name = str(getattr(function, "__qualname__", type(function).__name__))  # type: ignore[misc]
        super().__init__(data)
        if tasks not in (None, self.cut):
            raise ThreefoldError(f"tasks is {tasks}, but stream {self.name} has {self.cut}.")

    of_the_user = True

    def sequence(self, seed: int) -> Sequence[Task]:
        return self.function(self.data, seed)
