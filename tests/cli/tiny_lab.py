"""A laboratory small enough for tests: data of a few samples, and settings that train in moments."""

import os
import re
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

SETTINGS = ["--hidden", "8", "--iters", "6", "--batch", "16", "--device", "cpu"]


def with_option(words: list[str], option: str, value: str) -> list[str]:
    """A command with this value for an option, in place of another if it has one."""
    if option not in words:
        return [*words, option, value]
    place = words.index(option) + 1
    return [*words[:place], value, *words[place + 1 :]]


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def arrays(classes: int = 4, train: int = 240, test: int = 80) -> dict[str, Any]:
    """Images of 4 × 4 in which class c lights up pixels c, c + classes, …"""
    source = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for part, samples in (("train", train), ("test", test)):
        labels = np.arange(samples) % classes
        bright = np.arange(16).reshape(1, 4, 4) % classes == labels[:, None, None]
        made[f"{part}_x"] = (0.5 * bright + 0.5 * source.random((samples, 4, 4))).astype(np.float32)
        made[f"{part}_y"] = labels
    return made


def write_npz(path: Path, classes: int = 4, **changes: Any) -> Path:
    """An .npz file of `arrays`; a change of None leaves an array out."""
    kept = {name: value for name, value in (arrays(classes) | changes).items() if value is not None}
    np.savez(path, **kept)
    return path


def refusal(ended: Ended) -> str:
    """The one sentence that a command said, and all that it said, of what could not be done."""
    assert (ended.status, ended.out) == (2, "")
    assert re.fullmatch(r"threefold: [^\n]*[.?]\n", ended.err), ended.err
    return ended.err


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything under a folder, to see whether anything changed."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def said_besides_waiting(ended: Ended) -> str:
    """What a process said on stderr; that it waits for a partner it says once, or not if it need not wait."""
    waiting = r"threefold: waiting for process \d+ on \S+, which trains split-tiny [^\n]* ×\d+( and \d+ more)?\.\n"
    return re.sub(waiting, "", ended.err, count=1)


def leftovers(store: Path) -> list[str]:
    """The names of what lies beside a store for cohorts that are not done."""
    return [path.name for path in Path(f"{store}.checkpoints").glob("*")]


class Terminal:
    """A terminal in place of a stream, and what appeared on it.

    To be made in a test, not in a fixture: pytest sets the streams anew in between.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stream: str = "stderr", columns: int = 120) -> None:
        self._master, slave = os.openpty()
        self._stream = os.fdopen(slave, "w")
        self._seen = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        monkeypatch.setattr(sys, stream, self._stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 1 << 16)
            except OSError:  # how a terminal says that the other side hung up
                return
            self._seen += piece

    def text(self) -> str:
        """Everything that was shown, also what was wiped away again, without the colours."""
        self._stream.close()
        self._reader.join(timeout=10)
        os.close(self._master)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._seen.decode())
