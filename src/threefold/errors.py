"""The one kind of error: something that the user can fix."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches


class ThreefoldError(Exception):
    """Bad input. Its text is one sentence that names the field, the value and what it must be.

    The command line prints it without a traceback and exits with status 2.
    """


def unknown(field: str, value: str, known: Iterable[str]) -> ThreefoldError:
    """The error for a name that is not one of `known`, with the nearest one suggested; ties go by length."""
    names = sorted(known)
    by_lower = {name.lower(): name for name in names}  # wrong case is a likely mistake
    typed = value.lower()

    def nearness(name: str) -> tuple[float, int]:
        return SequenceMatcher(None, name, typed).ratio(), -abs(len(name) - len(typed))

    close = max(get_close_matches(typed, by_lower), key=nearness, default=None)
    hint = f"did you mean '{by_lower[close]}'?" if close else f"known: {', '.join(names)}."
    return ThreefoldError(f"{field} '{value}' is not known; {hint}")


@contextmanager
def as_value_error() -> Iterator[None]:
    """Raise our errors as pydantic expects them, which collects the errors of all fields."""
    try:
        yield
    except ThreefoldError as error:
        raise ValueError(str(error).rstrip(".")) from None
