"""Writing to standard output, now: a full disk is told in a sentence, not when Python ends."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import TYPE_CHECKING

import typer

from threefold.errors import ThreefoldError
from threefold.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def write(content: str | bytes) -> None:
    """Write text, or bytes, as they are."""
    try:
        typer.echo(content, nl=False)
    except BrokenPipeError:  # whoever reads has enough
        raise
    except OSError as error:
        with suppress(OSError):  # what is left would be tried again, and fail again, when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ThreefoldError(
            f"standard output cannot be written ({error.strerror or error}); send it to a place with room."
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
