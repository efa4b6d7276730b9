"""A finished task is kept the moment it is finished (DESIGN idea 6)."""

import os
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from threefold.errors import ThreefoldError
from threefold.reading import open_file

FORMAT = 4
CHUNK = 1 << 24


def _seal(total: int) -> bytes:
    """What a file ends with: torch.load does not notice a flipped bit, so the file carries a sum of its own."""
    return f"\nthreefold checkpoint {FORMAT}, sum {total:08x}\n".encode()


def _sum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total = crc32(chunk, total)
    return total


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Checkpoint:
    """One cohort's file. Written whole or not at all; a damaged one is set aside and never half-used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_aside: Path | None = None  # where a damaged file went

    def save(self, state: dict[str, Any]) -> None:
        """Replace the file by this state."""

        def write(path: Path) -> None:
            torch.save(state, path)  # by its path: then PyTorch writes without Python, and training goes on
            seal = _seal(_sum(path))
            with path.open("ab") as file:
                file.write(seal)

        self._replace(write)

    def keep(self, content: bytes) -> None:
        """Replace the file by the content of another's, made on another machine."""
        self._replace(lambda path: path.write_bytes(content))

    def _replace(self, write: Callable[[Path], object]) -> None:
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except (OSError, RuntimeError) as error:
            raise ThreefoldError(
                f"checkpoint '{self.path}' cannot be written ({error}); right would be a store in a folder with space."
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The last finished task's state; None when there is none that can be used."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)  # better to fail now than after the first task
            with open_file(self.path) as file:
                found = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ThreefoldError(
                f"checkpoint '{self.path}' cannot be written or read ({error}); right would be a store elsewhere."
            ) from error
        size = len(_seal(0))
        with suppress(Exception):  # whatever a file that no version of ours wrote makes of the reader
            if found[-size:] == _seal(crc32(memoryview(found)[:-size])):
                state: dict[str, Any] = torch.load(BytesIO(found[:-size]), map_location=device, weights_only=True)
                return state
        names = (self.path.with_suffix(f".{n}.damaged" if n else ".damaged") for n in count())
        self.set_aside = next(name for name in names if not name.exists())
        self.path.replace(self.set_aside)
        return None

    def discard(self) -> None:
        """The cohort is done: its file, and what killed processes left of it, may go."""
        self.path.unlink(missing_ok=True)
        for path in self.path.parent.glob(f"{self.path.stem}.*.tmp"):
            if not _alive(int(path.suffixes[-2][1:])):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.parent.rmdir()  # unless other cohorts have files there
