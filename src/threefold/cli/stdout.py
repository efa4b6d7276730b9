"""Writing to standard output, now: a full disk is told in a sentence, not when Python ends."""

import os
import sys
from contextlib import suppress

import typer

from threefold.errors import ThreefoldError
from threefold.text import printable


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


def say(line: str) -> None:
    """Write a line for people to read."""
    write(f"{printable(line)}\n")
