"""The pages of docs/ for tests: their code blocks and tables, and a folder in which to run them."""

import gzip
import io
import os
import re
import runpy
import shlex
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from threefold.cli import main
from threefold.data import Dataset, idx
from threefold.data.catalog import CATALOG, File, KnownDataset, Mirror
from threefold.methods import METHODS
from threefold.results import Store
from threefold.streams import Defaults, Permuted, Split

DOCS = Path(__file__).parents[2] / "docs"
HOME = "/home/you"  # what a page calls the reader's folder
NAMED = re.compile(r"# (\w+\.(?:py|toml))(, continued)?\n")


class Block(NamedTuple):
    """A fenced block, and the line its code begins on."""

    language: str
    code: str
    line: int


def blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1) for match in found]


def rows(page: str, *header: str) -> list[tuple[str, ...]]:
    """The rows of all tables with this header."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    head = f"| {' | '.join(header)} |"
    found: list[tuple[str, ...]] = []
    for place in (place for place, line in enumerate(lines) if line == head):
        for line in lines[place + 2 :]:
            if not line.startswith("|"):
                break
            found.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    assert found, f"{page} has no table {head}"
    return found


def code_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


class Desk:
    """Follows a page: files are written, Python is run in one namespace, commands in this process."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.namespace: dict[str, Any] = {"__name__": "page"}
        self.printed: dict[int, str] = {}  # by the line of the block
        self.status = 0

    def follow(self, page: str) -> None:
        for block in blocks(page):
            done = {"python": self._python, "toml": self._file, "sh": self._sh, "console": self._console}[
                block.language
            ]
            self.printed[block.line] = done(block, f"docs/{page}")

    def _file(self, block: Block, page: str) -> str:
        """A block that begins with its file's name is that file, or the continuation of it."""
        name, continued = NAMED.match(block.code).groups()  # type: ignore[union-attr]
        with (self.folder / name).open("a" if continued else "w", encoding="utf-8") as stream:
            stream.write(block.code)
        return ""

    def _python(self, block: Block, page: str) -> str:
        if NAMED.match(block.code):
            return self._file(block, page)
        placed = "\n" * (block.line - 1) + block.code  # so that a traceback names the page's line
        return self._caught(lambda: exec(compile(placed, page, "exec"), self.namespace))

    def _sh(self, block: Block, page: str) -> str:
        printed = ""
        for command in block.code.splitlines():
            printed += self.run(command)
            assert self.status == 0, f"{command}\n{printed}"
        return printed

    def _console(self, block: Block, page: str) -> str:
        """Commands after `$`, each followed by what it prints."""
        for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            printed = self.run(command).replace(str(self.folder), HOME)
            assert printed == expected, command
        return block.code

    def run(self, command: str) -> str:
        """A command of the few kinds that pages show; what it printed."""
        match shlex.split(command):
            case ["export", setting]:
                name, _, value = setting.partition("=")
                self.patch.setenv(name, os.path.expanduser(value))
                return ""
            case ["echo", "$?"]:
                return f"{self.status}\n"
            case ["threefold", *words]:
                return self._program(main, "threefold", *words)
            case ["python", "-c", code]:
                return self._program(lambda: exec(code, {"__name__": "__main__"}), "-c")
            case ["python", file, *words]:
                return self._program(lambda: runpy.run_path(file, run_name="__main__"), file, *words)
        raise AssertionError(f"what is {command!r}?")

    def _program(self, start: Any, *argv: str) -> str:
        self.status = 0

        def ends() -> None:
            try:
                start()
            except SystemExit as ended:
                self.status = int(ended.code or 0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", list(argv))
            return self._caught(ends)

    def _caught(self, start: Any) -> str:
        stream = io.StringIO()
        with redirect_stdout(stream), redirect_stderr(stream):
            start()
        return stream.getvalue()


class Follower(Desk):
    """Accuracies on a page may differ by a few points from those of this processor."""

    def _console(self, block: Block, page: str) -> str:
        for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            printed = self.run(command)
            assert words_of(printed) == words_of(expected), printed
            assert numbers_of(printed) == pytest.approx(numbers_of(expected), abs=10)
        return block.code


def following(page: str) -> Any:
    """A fixture: a desk at which the whole page was followed, once for all tests of a file."""

    @pytest.fixture(scope="module")
    def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
        with desk(tmp_path_factory.mktemp("page")) as place:
            follower = Follower(place.folder, place.patch)
            follower.follow(page)
            yield follower

    return followed


def kept(desk: Desk) -> list[dict[str, Any]]:
    """The specs of the runs in the desk's store."""
    with Store(desk.folder / "threefold.db", readonly=True) as store:
        return [dict(record.spec) for record in store.all()]


def words_of(text: str) -> list[str]:
    """What is printed, but for the accuracies and for how wide they make a column."""
    return re.sub(r"[┏┓┗┛┡┩├┤┼╇┳┴└┘━─\s]+", " ", re.sub(r"\d+\.\d\d", "#", text)).split()


def numbers_of(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d\d", text)]


@contextmanager
def desk(folder: Path) -> Iterator[Desk]:
    """A desk in an empty folder. What is not given takes moments, not the paper's minutes; all is undone."""
    known = dict(METHODS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder))
        patch.delenv("XDG_CACHE_HOME", raising=False)
        patch.delenv("THREEFOLD_DATA", raising=False)
        patch.syspath_prepend(folder)
        for stream in (Split, Permuted):
            patch.setattr(stream, "defaults", Defaults(iters=10, lr=1e-2, hidden=16, batch=32))
        try:
            yield Desk(folder, patch)
        finally:
            for name, module in list(sys.modules.items()):
                if Path(getattr(module, "__file__", None) or "/").parent == folder:
                    del sys.modules[name]
            METHODS.clear()
            METHODS.update(known)


def blobs(noise: float, inputs: int = 32, samples: int = 640) -> Dataset:
    """Ten classes: a random point each, and normal noise around it."""
    source = np.random.default_rng(0)
    centres = source.random((10, inputs))
    labels = np.arange(2 * samples) % 10
    x = (centres[labels] + noise * source.standard_normal((2 * samples, inputs))).astype(np.float32)
    return Dataset.from_arrays(x[:samples], labels[:samples], x[samples:], labels[samples:], name="blobs")


def stand_in(name: str, patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Make a known dataset a tiny one of ten classes, and its mirror M; its files as the mirror has them."""
    data = blobs(0.2, inputs=36, samples=400)
    files, packed = [], {}
    for file, known in zip(CATALOG[name].files, (data.train_x, data.train_y, data.test_x, data.test_y), strict=True):
        values = known.numpy()
        if values.ndim == 2:
            values = (values.clip(0, 1) * 255).reshape(-1, 6, 6)
        head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
        content = head + values.astype(np.uint8).tobytes()
        files.append(File(file.name, len(content), sha256(content).hexdigest()))
        packed[f"{file.name}.gz"] = gzip.compress(content, mtime=0)
    patch.setitem(CATALOG, name, KnownDataset(name, tuple(files), idx.read, (Mirror("M/"),)))  # type: ignore[arg-type]
    return packed


def fetchable(name: str, patch: pytest.MonkeyPatch) -> None:
    """Such a dataset, and a network in which its mirror is all there is."""
    packed = stand_in(name, patch)
    patch.setattr("threefold.data.sources.download", lambda url, *_: packed[url.removeprefix("M/")])
