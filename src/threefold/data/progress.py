"""Progress reports of this package's slow operations."""

from typing import Protocol


class Report(Protocol):
    """Called with a short text, the bytes done so far and the total (None: unknown).

    For a message, such as on a source that failed or a damaged file that was set aside, `done` and `total` are both 0.
    """

    def __call__(self, text: str, done: int, total: int | None, /) -> None: ...


def quiet(text: str, done: int, total: int | None, /) -> None:
    """A report that does nothing."""
