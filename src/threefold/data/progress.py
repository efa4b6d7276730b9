"""How the slow parts of this package say what they are doing."""

from typing import Protocol


class Report(Protocol):
    """Called with a short text, the bytes done so far and the bytes in all (None: not known).

    A remark, such as a source that failed or a damaged file that was set aside, comes with `done` and `total` both 0.
    """

    def __call__(self, text: str, done: int, total: int | None, /) -> None: ...


def quiet(text: str, done: int, total: int | None, /) -> None:
    """The report of a caller who did not ask for any."""
