"""Writing to standard output."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING

from threefold.errors import ThreefoldError
from threefold.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def write(content: str | bytes) -> None:
    """Write text, or bytes, as they are: now, so that a full disk is told in a sentence, not when Python ends."""
    try:
        if isinstance(content, bytes):
            sys.stdout.buffer.write(content)
        else:
            sys.stdout.write(content)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough
        raise
    except OSError as error:
        raise ThreefoldError(
            f"standard output cannot be written ({error.strerror or error}); redirect it to a place with space."
        ) from error


def write_foreign(content: str) -> None:
    """Write text that may hold names from files: whole to a file or pipe, but nothing that a terminal would obey."""
    write(printable(content) if sys.stdout.isatty() else content)


@contextmanager
def console(width: int) -> "Iterator[Console]":
    """A console of rich's whose text is written at the end; so many columns wide where there is no terminal."""
    from rich.console import Console

    terminal, text = sys.stdout.isatty(), StringIO()
    yield Console(file=text, width=None if terminal else width, force_terminal=terminal or None)
    write(text.getvalue())


def say(line: str) -> None:
    """Write a line for people to read."""
    write(f"{printable(line)}\n")
