"""Writing to standard output."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING

from threefold.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def write(content: str) -> None:
    """Write text as it is, now: a full disk is reported in a sentence (`standard_streams`), not when Python exits."""
    sys.stdout.write(content)
    sys.stdout.flush()


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
