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
    """Write text and flush it, so that a full disk is reported properly (`standard_streams`), not when Python exits."""
    sys.stdout.write(content)
    sys.stdout.flush()


def write_foreign(content: str) -> None:
    """Write text that may contain names from files: as it is to a file or pipe, without control codes to a terminal."""
    write(printable(content) if sys.stdout.isatty() else content)


@contextmanager
def console(width: int) -> "Iterator[Console]":
    """A rich console whose text is written at the end; `width` columns wide if there is no terminal."""
    from rich.console import Console

    terminal, text = sys.stdout.isatty(), StringIO()
    yield Console(file=text, width=None if terminal else width, force_terminal=terminal or None)
    write(text.getvalue())


def say(line: str) -> None:
    """Write a line of text."""
    write(f"{printable(line)}\n")
