"""The one kind of error a user can mend."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class ThreefoldError(Exception):
    """Bad input. Its text is one sentence that names the field, the value and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """


def unknown(field: str, value: str, known: Iterable[str]) -> ThreefoldError:
    """The error for a name that is not one of `known`, with the nearest one suggested."""
    names = sorted(known)
    by_lower = {name.lower(): name for name in names}  # capitals are a likely slip
    close = get_close_matches(value.lower(), by_lower, n=1)
    hint = f"did you mean '{by_lower[close[0]]}'?" if close else f"known: {', '.join(names)}."
    return ThreefoldError(f"{field} '{value}' is not known; {hint}")


@contextmanager
def as_value_error() -> Iterator[None]:
    """An error of ours as pydantic expects it, which gathers the errors of all fields."""
    try:
        yield
    except ThreefoldError as error:
        raise ValueError(str(error).rstrip(".")) from None
